#' Show what each device stores and transfers
#'
#' @param object A parallel model, made by [multi_gpu_model()].
#' @param batch_size Rows of a global batch, to show how many of them each replica gets.
#' @return A data frame with one row per device, which prints as a table with readable sizes. Columns: `device`;
#'   `replica`, the number of the replica that runs there, counted from 0, and the first one if parts of several run
#'   there; `rows` of a batch that run there;
#'   `weights` and `slots` (variables of the optimizer), the bytes that the device stores; `received` and `sent`, the
#'   bytes transferred in a training step; `transfers`, the number of tensors in which they are transferred. A value
#'   that does not apply or is not known yet is `NA`.
#' @family devices
#' @examplesIf multigpu::multigpu_is_installed()
#' simulate_gpus(2) # does nothing on a machine with two GPUs
#' model <- keras_model_sequential(list(keras$Input(list(4L)), keras$layers$Dense(1L)))
#' parallel_model <- multi_gpu_model(model, gpus = 2)
#' parallel_model %>% compile(optimizer = "sgd", loss = "mse")
#' overview(parallel_model, batch_size = 256)
#' @export
overview <- function(object, batch_size = NULL) {
  check_parallel(object)
  as_table(with_clean_errors(core()$overview(object, as_integer(batch_size))))
}

check_parallel <- function(object) {
  if (!core()$is_parallel(object)) {
    stop(
      "Expected a parallel model. Received: ", class(object)[[1]], ". Make one with `multi_gpu_model(model)`.",
      call. = FALSE
    )
  }
}

#' Estimate memory and measure speed
#'
#' `estimate()` predicts the memory and the transfers that [multi_gpu_model()] would need on each device. Nothing is
#' moved or run, and the GPUs need not be on this machine. `measure()` runs a few real training steps on one device and
#' on all devices, and reports where the time is spent.
#'
#' @section Accuracy of an estimate:
#' Parameters, weights and optimizer slots are counted exactly. Copies of weights and gradients are counted as if all
#' existed at the same time, which is an upper bound. Activations are the tensors that the training step of one replica
#' needs at the same time; the step is traced, not run. On a CPU, the measured memory was 1.1 to 1.2 times that
#' estimate. The workspace of libraries such as cuDNN and the memory that TensorFlow itself uses on a GPU are not
#' included.
#'
#' @section What is measured:
#' *Compute* is the time of the template on one device for the rows of one replica. *Transfer* is the additional time of
#' the parallel model, which includes slicing and merging. *Waiting* is the time by which the input takes longer than a
#' step. `measure()` restores the weights, the optimizer, the metrics and the random states.
#'
#' @param model A template, or a parallel model, of which the template is used.
#' @param gpus As in [multi_gpu_model()], but a number may be 1 or more. They need not be on this machine.
#' @param batch_size Rows of a global batch, for all GPUs together.
#' @param optimizer An optimizer or its name. `NULL` is the optimizer of the model or, if it is not compiled, Keras'
#'   default, `"rmsprop"`.
#' @param cpu_merge,cpu_relocation As in [multi_gpu_model()].
#' @param parallel A compiled parallel model.
#' @param x,y Arrays, as in [fit()]; or a dataset of TensorFlow or Keras as `x`, without `y`.
#' @param steps Number of steps to measure, on one device and on all. One more step runs before them.
#' @param verbose 1 shows a progress bar, 0 does not.
#' @return Data frames that print as tables. `estimate()`: one row per device, with the columns `device`, `slices` and
#'   `rows` of a batch that run there, `parameters` stored there, and in bytes `weights`, `optimizer`, `copies`,
#'   `gradients`, `activations` (`NA` if they cannot be traced), `inputs` (rows of the next batch, which several GPUs
#'   get ahead of time), `per_slice` (what each further slice through the device would add), `total`, and `received`
#'   and `sent` in a step. `measure()`: one row, with seconds per step on `one_device` and on `all_devices`,
#'   seconds per batch of `input`, the `speed_up`, the fractions of time spent in `compute`, `transfer` and `waiting`,
#'   and a `verdict`: whether the parallel model is faster and, if not, why, and what would help.
#' @family devices
#' @examplesIf multigpu::multigpu_is_installed()
#' simulate_gpus(2) # does nothing on a machine with two GPUs
#' model <- keras_model_sequential(list(keras$Input(list(4L)), keras$layers$Dense(1L)))
#' parallel_model <- multi_gpu_model(model, gpus = 2)
#' parallel_model %>% compile(optimizer = "sgd", loss = "mse")
#' x <- matrix(rnorm(400), 100)
#' y <- rowSums(x)
#' estimate(model, gpus = 8, batch_size = 256, optimizer = "adam")
#' measure(parallel_model, x, y, batch_size = 50, verbose = 0)
#' @export
estimate <- function(model, gpus = NULL, batch_size = 32L, optimizer = NULL, cpu_merge = TRUE, cpu_relocation = FALSE) {
  gpus <- as_gpus(gpus)
  as_table(with_clean_errors(
    core()$estimate(model, gpus, as_integer(batch_size), optimizer, cpu_merge, cpu_relocation)
  ))
}

#' @rdname estimate
#' @export
measure <- function(parallel, x, y = NULL, batch_size = 32L, steps = 5L, verbose = 1L) {
  as_table(with_clean_errors(
    core()$measure(parallel, as_arrays(x), as_arrays(y), as_integer(batch_size), as_integer(steps), as_integer(verbose))
  ))
}

# A report from Python as a data frame that prints as in Python.
as_table <- function(report) {
  structure(
    as.data.frame(lapply(report$columns, as_column)),
    class = c("multigpu_table", "data.frame"),
    lines = strsplit(report$text, "\n")[[1]]
  )
}

as_column <- function(values) {
  if (length(values) == 0) logical() else unlist(lapply(values, function(value) value %||% NA))
}

#' @export
print.multigpu_table <- function(x, ...) {
  if (is.null(attr(x, "lines"))) { # a subset of a table
    return(NextMethod())
  }
  cat(attr(x, "lines"), sep = "\n")
  invisible(x)
}

#' @export
`[.multigpu_table` <- function(x, ...) {
  attr(x, "lines") <- NULL
  class(x) <- "data.frame"
  x[...]
}
