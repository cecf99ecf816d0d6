#' Spread a model over several GPUs
#'
#' Gives a model that is used like `model` and trained with the same numbers, while several GPUs share the work.
#'
#' @param model The template: a built Keras 3 model, compiled or not.
#' @param gpus Which GPUs: `NULL` for all, one number of 2 or more for that many, or several ids that count from 0
#'   (`c(0, 2)`), or several names (`c("GPU:0", "GPU:1")`). 0 and an empty vector are refused.
#' @param cpu_merge Whether outputs are merged, and loss and metrics taken, on the CPU rather than on the first GPU.
#' @param cpu_relocation Whether the template's weights are moved to CPU memory, in place and with their values.
#'
#' @return A Keras model. `$template` is `model`; [overview()] shows what each device has to do.
#'
#' @section How a batch is divided:
#' Each batch is cut into one slice per GPU. With `gpus = 2`, a batch of 64 rows becomes two slices of 32; where rows
#' do not come out even, slices differ by one row. A batch may have any number of rows, down to one. Each GPU runs the
#' template on its slice, forward and backward. The outputs are merged into one batch, on which the loss is
#' taken once, so results are those of one device with the same batch.
#'
#' Two kinds of layers are exceptions: batch normalization takes its statistics per slice unless it says
#' `synchronized = TRUE`, and dropout draws other noise on each GPU.
#'
#' @section Weights:
#' The template owns the weights. After `fit()`, and in any callback, it has the trained ones. Unless
#' `cpu_relocation = TRUE`, the GPUs share them by size; they are moved there in place, also where the template was
#' made under `tf$device("/cpu:0")`. [bring_home()] puts them back on one device when the parallel work is done.
#'
#' @section Saving:
#' Save the template or the parallel model: either way the file is that of the template, which Keras loads on one
#' device and without this package.
#'
#' @section Errors:
#' Fewer than two GPUs, GPUs that are missing, named twice or not understood, and models that cannot be cut by rows are
#' refused, with a message that says what was expected, what was received and what to do. A script that should also run
#' on a machine with one GPU can catch that:
#' `parallel_model <- tryCatch(multi_gpu_model(model), error = function(e) model)`.
#'
#' @references A. Krizhevsky (2014): One weird trick for parallelizing convolutional neural networks,
#'   <https://arxiv.org/abs/1404.5997>. This is its synchronous data parallelism.
#'
#' @seealso [simulate_gpus()] to try this without GPUs, [save_model_hdf5()].
#' @family devices
#' @examples
#' \dontrun{
#' num_samples <- 1000
#' height <- 224
#' width <- 224
#' num_classes <- 1000
#'
#' # The template. It may be made on the CPU, as here, or anywhere else.
#' with(tf$device("/cpu:0"), {
#'   model <- application_xception(
#'     weights = NULL,
#'     input_shape = c(height, width, 3),
#'     classes = num_classes
#'   )
#' })
#'
#' # Spread it over 8 GPUs. Without any: simulate_gpus(8), before all else.
#' parallel_model <- multi_gpu_model(model, gpus = 8)
#' parallel_model %>% compile(
#'   loss = "categorical_crossentropy",
#'   optimizer = "rmsprop"
#' )
#'
#' # Made-up data
#' x <- array(runif(num_samples * height * width * 3), dim = c(num_samples, height, width, 3))
#' y <- array(runif(num_samples * num_classes), dim = c(num_samples, num_classes))
#'
#' # Each batch of 256 rows is 32 rows for each of 8 GPUs.
#' parallel_model %>% fit(x, y, epochs = 20, batch_size = 256)
#'
#' # The template has the trained weights.
#' model %>% save_model_hdf5("my_model.h5")
#' }
#' @export
multi_gpu_model <- function(model, gpus = NULL, cpu_merge = TRUE, cpu_relocation = FALSE) {
  gpus <- as_gpus(gpus)
  with_clean_errors(core()$multi_gpu_model(model, gpus, cpu_merge, cpu_relocation))
}

# `gpus` as Python takes it: NULL, a count, or a list of ids and names. A single number is a count, in a list too.
as_gpus <- function(gpus) {
  if (inherits(gpus, "multigpu_table")) { # of `available_gpus()`
    gpus <- gpus$name
  }
  if (is.factor(gpus)) {
    gpus <- as.character(gpus)
  }
  if (!is.list(gpus) && !is.atomic(gpus) || is.null(gpus)) {
    return(gpus)
  }
  entries <- lapply(unname(as.list(gpus)), as_gpu, gpus = gpus)
  if (length(entries) == 1 && (!is.list(gpus) || is.numeric(entries[[1]]))) entries[[1]] else entries
}

as_gpu <- function(entry, gpus) {
  if (length(entry) != 1 || !is.atomic(entry)) {
    return(entry) # Python says why not
  }
  if (is.na(entry)) {
    refuse_gpus(gpus, "missing values")
  }
  if (!is.numeric(entry)) {
    return(entry)
  }
  if (entry != trunc(entry) || abs(entry) > .Machine$integer.max) {
    refuse_gpus(gpus, "other numbers")
  }
  as.integer(entry)
}

refuse_gpus <- function(gpus, what) {
  stop(
    "Expected `gpus` to be whole numbers or names of devices. Received: gpus = ", paste(deparse(gpus), collapse = " "),
    ", with ", what, ". Use `gpus = 2`, `gpus = c(0, 1)`, or `gpus = NULL` for all GPUs.",
    call. = FALSE
  )
}
