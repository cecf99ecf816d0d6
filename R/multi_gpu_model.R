#' Replicate a model on several GPUs
#'
#' Returns a model that you use like `model`. It trains with the same results, while several GPUs share the work.
#'
#' @param model The template: a built Keras 3 model, compiled or not.
#' @param gpus The GPUs to use: `NULL` for all, one number for a count of 2 or more, several ids counted from 0 (`c(0,
#'   2)`), or several names (`c("GPU:0", "GPU:1")`). 0 and an empty vector are errors. For a template whose parts are
#'   placed with [on_device()]: a list with one group of ids or names for each replica (`list(c(0, 1), c(2, 3))`); see
#'   the section on parts.
#' @param cpu_merge Whether to merge the outputs, and compute the loss and the metrics, on the CPU instead of the first
#'   GPU.
#' @param cpu_relocation Whether to move the template's weights to CPU memory, in place, without changing their values.
#'
#' @return A Keras model. `$template` is `model`; [overview()] shows what each device stores and transfers.
#'
#' @section How a batch is divided:
#' Each global batch is split into one slice per GPU. With `gpus = 2`, a batch of 64 rows becomes two slices of 32; if
#' the rows cannot be divided evenly, slices differ by one row. A batch may have any number of rows, down to one. Each
#' GPU runs a replica of the template on its slice, forward and backward. The outputs are merged into one batch, and the
#' loss is computed once on that batch, so the results are those of one device with the same batch.
#'
#' One kind of layer differs: on TensorFlow, batch normalization computes its statistics per slice, unless you call
#' [synchronize_batch_norm()]. On JAX it uses the whole batch. Dropout draws the random numbers of one device.
#'
#' @section Weights:
#' The template owns the weights. After `fit()`, and in every callback, it has the trained weights. They are stored on
#' the GPUs, balanced by size, or on the CPU if `cpu_relocation = TRUE`. On TensorFlow each weight is on one GPU; on
#' JAX, large weights are divided. They are moved there in place, even if the template was created under
#' `tf$device("/cpu:0")`. When parallel training is finished, [bring_home()] moves them to one device.
#'
#' @section Templates with parts:
#' A model whose layers were called in [on_device()] has parts on several GPUs. With a group of GPUs for each replica,
#' as in `gpus = list(c(0, 1), c(2, 3))`, the devices of each group replace the devices of the template, in the order in
#' which the template named them. Each group gets one slice of the batch. If a group is listed several times, it
#' processes several slices one behind the other, so that its parts work at the same time. The results are those of one
#' device.
#'
#' @section Saving:
#' Save the template or the parallel model. Either way the file contains the template, and Keras loads it on one device,
#' without this package.
#'
#' @section Errors:
#' An error is raised for fewer than two GPUs, for GPUs that do not exist, are listed twice or cannot be parsed, and
#' for models that cannot be split by rows. The message states what was expected, what was received and what to do. The
#' error for fewer GPUs than two, or fewer than `gpus` asks for, has the class `multigpu_too_few_gpus`. A script that
#' must also run on a machine with one GPU can catch it: `parallel_model <- tryCatch(multi_gpu_model(model),
#' multigpu_too_few_gpus = function(e) model)`.
#'
#' @references A. Krizhevsky (2014): One weird trick for parallelizing convolutional neural networks,
#'   <https://arxiv.org/abs/1404.5997>. This package implements its synchronous data parallelism.
#'
#' @seealso [simulate_gpus()] to try this without GPUs, [save_model_hdf5()].
#' @family devices
#' @examples
#' \dontrun{
#' # Eight GPUs, images of 224 x 224
#' num_samples <- 1000
#' height <- 224
#' width <- 224
#' num_classes <- 1000
#'
#' # The template. It may be created on the CPU, as here, or on any other device.
#' with(tf$device("/cpu:0"), {
#'   model <- application_xception(
#'     weights = NULL,
#'     input_shape = c(height, width, 3),
#'     classes = num_classes
#'   )
#' })
#'
#' # Replicate it on 8 GPUs. To try this without GPUs, call simulate_gpus(8) first.
#' parallel_model <- multi_gpu_model(model, gpus = 8)
#' parallel_model %>% compile(
#'   loss = "categorical_crossentropy",
#'   optimizer = "rmsprop"
#' )
#'
#' # Random data
#' x <- array(runif(num_samples * height * width * 3), dim = c(num_samples, height, width, 3))
#' y <- array(runif(num_samples * num_classes), dim = c(num_samples, num_classes))
#'
#' # Each global batch of 256 rows is split into slices of 32 rows, one for each of the 8 GPUs.
#' parallel_model %>% fit(x, y, epochs = 20, batch_size = 256)
#'
#' # The template has the trained weights.
#' model %>% save_model_hdf5("my_model.h5")
#' }
#' @examplesIf multigpu::multigpu_is_installed()
#' simulate_gpus(2) # does nothing on a machine with two GPUs
#' model <- keras_model_sequential(input_shape = 4, layers = list(keras$layers$Dense(1L)))
#' parallel_model <- multi_gpu_model(model, gpus = 2)
#' parallel_model |> compile(optimizer = "sgd", loss = "mse")
#' x <- matrix(rnorm(400), 100)
#' y <- rowSums(x)
#' parallel_model |> fit(x, y, epochs = 2, batch_size = 32)
#' model |> save_model_hdf5(tempfile(fileext = ".h5")) # the template has the trained weights
#' @export
multi_gpu_model <- function(model, gpus = NULL, cpu_merge = TRUE, cpu_relocation = FALSE) {
  gpus <- as_gpus(gpus)
  refuse_na(cpu_merge = cpu_merge, cpu_relocation = cpu_relocation)
  with_clean_errors(core()$multi_gpu_model(alive(model), gpus, cpu_merge, cpu_relocation))
}

# `gpus` for Python: NULL, a count, or a list of ids and names. A single number is a count, also in a list.
as_gpus <- function(gpus) {
  if (is.data.frame(gpus)) { # from `available_gpus()`
    gpus <- gpus$name
  }
  if (is.factor(gpus)) {
    gpus <- as.character(gpus)
  }
  if (is.null(gpus) || is_python_object(gpus)) {
    return(gpus)
  }
  if (is.function(gpus)) gpus <- list(gpus)
  entries <- lapply(unname(as.list(gpus)), as_gpu_or_group, gpus = gpus)
  if (length(entries) == 1 && (!is.list(gpus) || is.numeric(entries[[1]]))) entries[[1]] else entries
}

# A group of devices is a list in Python.
as_gpu_or_group <- function(entry, gpus) {
  if (is.list(entry) || is.atomic(entry) && length(entry) > 1) {
    lapply(unname(as.list(entry)), as_gpu, gpus = gpus)
  } else {
    as_gpu(entry, gpus)
  }
}

as_gpu <- function(entry, gpus) {
  if (is.function(entry)) refuse_gpus(gpus, "a function")
  if (length(entry) != 1 || !is.atomic(entry)) {
    return(entry) # Python raises the error
  }
  if (is.na(entry)) {
    refuse_gpus(gpus, "missing values")
  }
  if (is.character(entry) || is.logical(entry)) {
    return(entry)
  }
  if (!is.numeric(entry)) refuse_gpus(gpus, c("one of class ", class(entry)[[1]]))
  if (entry != trunc(entry) || abs(entry) > .Machine$integer.max) {
    refuse_gpus(gpus, "numbers that are not integers")
  }
  as.integer(entry)
}

refuse_gpus <- function(gpus, what) {
  refuse(
    "`gpus` to be whole numbers or names of devices", c("gpus = ", deparse1(gpus), ", with ", what),
    "Use `gpus = 2`, `gpus = c(0, 1)`, or `gpus = NULL` for all GPUs."
  )
}

#' Batch normalization with the statistics of the global batch
#'
#' Makes all batch normalization layers of a model use the statistics of the global batch, as on one device. This
#' includes nested layers, and models of `keras$applications`, which have no argument for it. Without it, each GPU
#' normalizes its slice by the mean and variance of the slice's own rows. This is faster, but the results differ from
#' those of one device, and they are noisy if slices are small.
#'
#' Weights do not change. You can call the function at any time, and it applies from the next \code{\link[=fit]{fit()}}
#' on. A synchronized layer waits for all GPUs twice in each step, XLA does not compile such a model, and it does not
#' train with `run_eagerly = TRUE`. Keras on JAX cannot load its files. On JAX, the statistics are always those of the
#' global batch, and the function changes nothing.
#'
#' @param model A template or a parallel model.
#' @param synchronized Whether to compute the statistics from the global batch. `FALSE` goes back to the statistics of
#'   each slice.
#' @return The model, invisibly.
#' @examplesIf multigpu::multigpu_is_installed()
#' simulate_gpus(2) # does nothing on a machine with two GPUs
#' model <- keras$applications$MobileNetV2(
#'   input_shape = list(32L, 32L, 3L), weights = NULL, classes = 10L
#' )
#' synchronize_batch_norm(model)
#' parallel_model <- multi_gpu_model(model, gpus = 2)
#' @export
synchronize_batch_norm <- function(model, synchronized = TRUE) {
  refuse_na(synchronized = synchronized)
  with_clean_errors(core()$synchronize_batch_norm(alive(model), synchronized))
  invisible(model)
}
