#' Save and load models and weights as HDF5 files
#'
#' Of a parallel model the template is saved: a plain file, which Keras loads on one device and without this package.
#' The file is written beside the old one and then put in its place, so that one of them is always there, whole.
#'
#' Files that were saved from a parallel model of the old `multi_gpu_model()` are read too: of the model the template,
#' of the weights those of the template. `clean_parallel_hdf5()` turns such a file of a model into a plain one.
#'
#' @param object A Keras model, parallel or not.
#' @param filepath The file; `~` is the home directory. Weights are written in the format of Keras 3 if the name ends in
#'   `.weights.h5`, and else in the older one, which can be loaded by name.
#' @param overwrite Whether to replace a file that is there. If `FALSE`, an interactive session asks, and any other one
#'   stops.
#' @param include_optimizer Whether to save how the model was compiled, and the optimizer's state, to resume training.
#' @param custom_objects Custom classes and functions by name, in a named list.
#' @param compile Whether to compile the model as it was when it was saved.
#' @param safe_mode Whether to read the file in a process of its own, within limits, and to refuse what no such file
#'   needs: links, and models that name anything but parts of models of Keras and what you passed or registered, or that
#'   hold code, such as a Lambda layer. The model is built in that process first; of objects of your own, which stay
#'   here, only what the file says beside them. `FALSE` says that you trust the file: it is then read directly, which is
#'   faster.
#' @param max_seconds,max_gigabytes Processor time, and memory besides its weights, that building the model may take, in
#'   safe mode.
#' @param by_name Whether layers get the weights of the layer of the same name, rather than of that at the same place.
#' @param skip_mismatch Whether to skip layers whose number or shape of weights differs; only with `by_name = TRUE`.
#' @param reshape Whether to reshape weights to those of the layer, if they have as many values; only with
#'   `by_name = TRUE`.
#' @param to Where the plain file goes.
#'
#' @return `load_model_hdf5()`: a model, on one device. `load_model_weights_hdf5()`: the model, invisibly. The others:
#'   whether a file was written, invisibly.
#' @examples
#' \dontrun{
#' model %>% save_model_hdf5("my_model.h5")
#' model <- load_model_hdf5("my_model.h5")
#' }
#' @export
save_model_hdf5 <- function(object, filepath, overwrite = TRUE, include_optimizer = TRUE) {
  save_if_wanted(filepath, overwrite, function(overwrite) {
    core()$save_model_hdf5(object, filepath, overwrite, include_optimizer)
  })
}

#' @rdname save_model_hdf5
#' @export
load_model_hdf5 <- function(filepath, custom_objects = NULL, compile = TRUE, safe_mode = TRUE, max_seconds = 60,
                            max_gigabytes = 2) {
  custom_objects <- as_custom_objects(custom_objects)
  with_clean_errors(
    core()$load_model_hdf5(filepath, custom_objects, compile, safe_mode, max_seconds, max_gigabytes)
  )
}

#' @rdname save_model_hdf5
#' @export
save_model_weights_hdf5 <- function(object, filepath, overwrite = TRUE) {
  save_if_wanted(filepath, overwrite, function(overwrite) core()$save_model_weights_hdf5(object, filepath, overwrite))
}

#' @rdname save_model_hdf5
#' @export
load_model_weights_hdf5 <- function(object, filepath, by_name = FALSE, skip_mismatch = FALSE, reshape = FALSE,
                                    safe_mode = TRUE) {
  with_clean_errors(core()$load_model_weights_hdf5(object, filepath, by_name, skip_mismatch, reshape, safe_mode))
  invisible(object)
}

#' @rdname save_model_hdf5
#' @export
clean_parallel_hdf5 <- function(filepath, to, custom_objects = NULL, overwrite = FALSE, safe_mode = TRUE,
                                max_seconds = 60, max_gigabytes = 2) {
  custom_objects <- as_custom_objects(custom_objects)
  save_if_wanted(to, overwrite, function(overwrite) {
    core()$clean_parallel_hdf5(filepath, to, custom_objects, overwrite, safe_mode, max_seconds, max_gigabytes)
  })
}

# Asks before a file is replaced, where there is someone to ask; otherwise Python refuses.
save_if_wanted <- function(filepath, overwrite, save, ask = if (interactive()) readline) {
  if (isFALSE(overwrite) && !is.null(ask) && file.exists(filepath)) {
    answer <- ask(paste0(filepath, " is there. Replace it? [y/N] "))
    overwrite <- tolower(answer) %in% c("y", "yes")
    if (!overwrite) {
      return(invisible(FALSE))
    }
  }
  with_clean_errors(save(overwrite))
  invisible(TRUE)
}

as_custom_objects <- function(objects) {
  as_object <- function(object, name) if (is_r_function(object)) as_tensor_function(object, name) else object
  if (!is.null(objects)) Map(as_object, objects, names(objects))
}
