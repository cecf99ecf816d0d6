#' Save and load models and weights as HDF5 files
#'
#' For a parallel model, the template is saved, as a plain file that Keras loads on one device and without this package.
#' Files are written atomically: a new file is written next to the old one and then replaces it, so that one of them
#' always exists and is complete.
#'
#' Files of parallel models that the `multi_gpu_model()` of Keras 2 has saved can be loaded too: the result is the
#' template or the weights of the template. `clean_parallel_hdf5()` converts such a file of a model to a plain file.
#'
#' @param object A Keras model, parallel or not.
#' @param filepath Path of the file; `~` is the home directory. Weights are written in the format of Keras 3 if the path
#'   ends in `.weights.h5`, otherwise in the older format, which can be loaded by name.
#' @param overwrite Whether to replace an existing file. If `FALSE`, an interactive session asks, and other sessions
#'   raise an error.
#' @param include_optimizer Whether to save the arguments of `compile()` and the state of the optimizer, to resume
#'   training.
#' @param custom_objects A named list of custom classes and functions.
#' @param compile Whether to compile the model as it was compiled when it was saved.
#' @param safe_mode Whether to treat the file as untrusted. It is then read in a separate process with limits. Links,
#'   code such as that of a Lambda layer, and all names except those of parts of Keras models and of objects that you
#'   passed or registered raise an error. The model is first built in that process; custom objects are not sent there,
#'   only the configuration that the file has for them is checked. `FALSE` reads a trusted file directly, which is
#'   faster.
#' @param max_seconds,max_gigabytes Limits for building the model in safe mode: processor time, and memory in addition
#'   to its weights.
#' @param by_name Whether to match layers by name instead of by position.
#' @param skip_mismatch Whether layers whose weights in the file differ in number or shape keep their own weights, with
#'   a warning.
#' @param reshape Whether to reshape weights to the shape in the layer if the number of values is the same; only for
#'   files in the older format.
#' @param to Path of the plain file.
#'
#' @return `load_model_hdf5()`: a model, on one device. `load_model_weights_hdf5()`: the model, invisibly. The others:
#'   whether a file was written, invisibly.
#' @examplesIf multigpu::multigpu_is_installed()
#' model <- keras_model_sequential(input_shape = 4, layers = list(keras$layers$Dense(1L)))
#' file <- tempfile(fileext = ".h5")
#' model |> save_model_hdf5(file)
#' model <- load_model_hdf5(file)
#' @export
save_model_hdf5 <- function(object, filepath, overwrite = TRUE, include_optimizer = TRUE) {
  refuse_na(filepath = filepath, overwrite = overwrite, include_optimizer = include_optimizer)
  save_if_wanted(filepath, overwrite, function(overwrite) {
    core()$save_model_hdf5(alive(object), filepath, overwrite, include_optimizer)
  })
}

#' @rdname save_model_hdf5
#' @export
load_model_hdf5 <- function(filepath, custom_objects = NULL, compile = TRUE, safe_mode = TRUE, max_seconds = 60,
                            max_gigabytes = 2) {
  refuse_na(filepath = filepath, compile = compile, safe_mode = safe_mode)
  custom_objects <- as_custom_objects(custom_objects)
  with_clean_errors(
    core()$load_model_hdf5(filepath, custom_objects, compile, safe_mode, max_seconds, max_gigabytes)
  )
}

#' @rdname save_model_hdf5
#' @export
save_model_weights_hdf5 <- function(object, filepath, overwrite = TRUE) {
  refuse_na(filepath = filepath, overwrite = overwrite)
  save_if_wanted(filepath, overwrite, function(overwrite) {
    core()$save_model_weights_hdf5(alive(object), filepath, overwrite)
  })
}

#' @rdname save_model_hdf5
#' @export
load_model_weights_hdf5 <- function(object, filepath, by_name = FALSE, skip_mismatch = FALSE, reshape = FALSE,
                                    safe_mode = TRUE) {
  refuse_na(
    filepath = filepath, by_name = by_name, skip_mismatch = skip_mismatch, reshape = reshape, safe_mode = safe_mode
  )
  with_clean_errors(core()$load_model_weights_hdf5(
    alive(object), filepath, by_name, skip_mismatch, reshape, safe_mode
  ))
  invisible(object)
}

#' @rdname save_model_hdf5
#' @export
clean_parallel_hdf5 <- function(filepath, to, custom_objects = NULL, overwrite = FALSE, safe_mode = TRUE,
                                max_seconds = 60, max_gigabytes = 2) {
  refuse_na(filepath = filepath, to = to, overwrite = overwrite, safe_mode = safe_mode)
  custom_objects <- as_custom_objects(custom_objects)
  save_if_wanted(to, overwrite, function(overwrite) {
    core()$clean_parallel_hdf5(filepath, to, custom_objects, overwrite, safe_mode, max_seconds, max_gigabytes)
  })
}

# An interactive session asks before a file is replaced; in other sessions Python raises an error.
save_if_wanted <- function(filepath, overwrite, save, ask = if (interactive()) readline) {
  if (isFALSE(overwrite) && !is.null(ask) && file.exists(filepath)) {
    answer <- ask(paste0(filepath, " exists. Replace it? [y/N] "))
    overwrite <- tolower(answer) %in% c("y", "yes")
    if (!overwrite) {
      return(invisible(FALSE))
    }
  }
  with_clean_errors(save(overwrite))
  invisible(TRUE)
}

as_custom_objects <- function(objects) {
  if (is.null(objects) || is_python_object(objects)) {
    return(objects)
  }
  if (is.null(names(objects)) || !all(nzchar(names(objects)))) {
    refuse(
      "`custom_objects` to be a named list", "a list with an object without a name",
      "Use the names that the model has for them: `custom_objects = list(Scale = Scale)`."
    )
  }
  Map(as_custom_object, as.list(objects), names(objects))
}

as_custom_object <- function(object, name) {
  if (!is_r_function(object)) {
    return(object)
  }
  if (is.null(class_of(object)) && num_taken(object) < 2) { # of an activation, for instance
    attr(object, "py_function_name") <- name
    return(object)
  }
  class_of(object) %||% as_tensor_function(object, name)
}
