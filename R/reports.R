#' Show what each device stores and transfers
#'
#' Lists for each device of a parallel model the bytes that it stores, and those that it receives and sends in a
#' training step.
#'
#' @param object A parallel model, made by [multi_gpu_model()].
#' @param batch_size Rows of a global batch, to show how many of them each replica gets.
#' @return A data frame with one row per device. Bytes are numbers that print with a unit. Columns: `device`;
#'   `replica`, the number of the replica that runs there, counted from 0 (the first one, if parts of several run
#'   there); `rows`, the rows of a batch that run there; `weights` and `slots` (variables of the optimizer), the bytes
#'   that the device stores; `received` and `sent`, the bytes transferred in a training step; `transfers`, the number
#'   of tensors that are transferred. A value that does not apply or is not known yet is `NA`.
#' @family devices
#' @examplesIf multigpu::multigpu_is_installed()
#' simulate_gpus(2) # does nothing on a machine with two GPUs
#' model <- keras_model_sequential(input_shape = 4, layers = list(keras$layers$Dense(1L)))
#' parallel_model <- multi_gpu_model(model, gpus = 2)
#' parallel_model |> compile(optimizer = "sgd", loss = "mse")
#' overview(parallel_model, batch_size = 256)
#' @export
overview <- function(object, batch_size = NULL) {
  check_parallel(object)
  refuse_na(batch_size = batch_size)
  as_table(with_clean_errors(core()$overview(object, as_integer(batch_size))))
}

check_parallel <- function(object) {
  if (!is_parallel(object)) {
    refuse("a parallel model", class(object)[[1]], "Make one with `multi_gpu_model(model)`.")
  }
}

#' Estimate memory and measure speed
#'
#' `estimate()` predicts the memory and the transfers that [multi_gpu_model()] would need on each device. It moves and
#' runs nothing, and the GPUs need not be on this machine. `layers_of()` and `slices_that_fit()` use an estimate to
#' find out where a model can be divided with [on_device()], and how many slices of a batch can go through its parts.
#' `measure()` runs a few real training steps on one device and on all devices, and reports where the time is spent.
#'
#' @section Accuracy of an estimate:
#' Parameters, weights and optimizer slots are counted exactly. Copies of weights and gradients are counted as if all
#' existed at the same time, which is an upper bound. Activations are the tensors that the training step of one replica
#' needs at the same time; the step is traced, not run. On a CPU, the measured memory was 1.1 to 1.2 times that
#' estimate. The workspace of libraries such as cuDNN and the memory that TensorFlow itself uses on a GPU are not
#' included. On one GPU, the peak of the first steps was 0.7 to 5.0 times the estimate on TensorFlow, and 2.0 to 3.3
#' times on JAX, because cuDNN and XLA need memory to try kernels.
#'
#' @section Where to divide a model:
#' `layers_of()` traces one row of the data through the layers. Divide a model where half of the work is done, and
#' where `crossing` is small: these bytes of each row are sent to the next part, and their gradients are sent back.
#' Operations outside of layers count with the layer before them. The layers of a nested model are listed one by one.
#'
#' @section Shares of a step:
#' *Compute* is the time of the template on one device for the rows of one replica. *Transfer* is the additional time of
#' the parallel model, which includes slicing and merging. *Waiting* is the time per step spent waiting for the input.
#' `measure()` restores the weights, the optimizer, the metrics and the random states.
#'
#' @param model A template, or a parallel model, whose template is used.
#' @param gpus As in [multi_gpu_model()], but a number may be 1 or more. On
#'   TensorFlow they need not be on this machine; on JAX they must exist, or be simulated.
#' @param batch_size Rows of a global batch, for all GPUs together.
#' @param optimizer An optimizer or its name. `NULL` is the optimizer of the model or, if it is not compiled, Keras'
#'   default, `"rmsprop"`.
#' @param cpu_merge,cpu_relocation As in [multi_gpu_model()].
#' @param estimate A result of `estimate()`.
#' @param memory Memory of a device in bytes, such as `24e9`.
#' @param parallel A compiled parallel model.
#' @param x,y Arrays, as in \code{\link[=fit]{fit()}}; or a dataset of TensorFlow or Keras as `x`, without `y`.
#' @param steps Number of steps to measure, on one device and on all. One more step runs before them.
#' @param verbose 1 shows a progress bar, 0 does not.
#' @return Data frames. Bytes are numbers that print with a unit. `estimate()`: one row per device, with the columns
#'   `device`, `slices` and `rows` of a batch that run there, `parameters` stored there, and in bytes `weights`,
#'   `optimizer`, `copies`, `gradients`, `activations` (`NA` if they cannot be traced), `inputs` (rows of the next
#'   batch, which several GPUs receive ahead of time), `per_slice` (the memory that each further slice would need; `NA`
#'   on JAX), `total`, and `received` and `sent` in a step.
#'
#'   `layers_of()`: one row per call of a layer, with its `name`; the bytes of its `weights`, 0 if an earlier call of
#'   the layer counts them; `work`, the floating-point operations of one row of the data, forward (`NA` if they cannot
#'   be counted); the bytes of its `output` for one row; `crossing`; and `weights_share` and `work_share`, the fractions
#'   of all weights and of all work up to there.
#'
#'   `measure()`: one row, with seconds per step on `one_device` and on `all_devices`, seconds per batch of `input`, the
#'   `speed_up`, the fractions of time spent in `compute`, `transfer` and `waiting`, and a `verdict`: whether the
#'   parallel model is faster and, if not, why, and what would help.
#'
#'   `slices_that_fit()`: the number of slices that can go through devices with this memory, if a slice has as many rows
#'   as in the estimate; `NA` if activations cannot be traced, and on JAX.
#' @family devices
#' @examplesIf multigpu::multigpu_is_installed()
#' simulate_gpus(2) # does nothing on a machine with two GPUs
#' model <- keras_model_sequential(input_shape = 4, layers = list(keras$layers$Dense(1L)))
#' parallel_model <- multi_gpu_model(model, gpus = 2)
#' parallel_model |> compile(optimizer = "sgd", loss = "mse")
#' x <- matrix(rnorm(400), 100)
#' y <- rowSums(x)
#' estimated <- estimate(model, gpus = 8, batch_size = 256, optimizer = "adam")
#' estimated
#' layers_of(estimated)
#' slices_that_fit(estimated, 24e9)
#' measure(parallel_model, x, y, batch_size = 50, verbose = 0)
#' @export
estimate <- function(model, gpus = NULL, batch_size = 32L, optimizer = NULL, cpu_merge = TRUE, cpu_relocation = FALSE) {
  gpus <- as_gpus(gpus)
  refuse_na(batch_size = batch_size, optimizer = optimizer, cpu_merge = cpu_merge, cpu_relocation = cpu_relocation)
  report <- with_clean_errors(
    core()$estimate(alive(model), gpus, as_integer(batch_size), optimizer, cpu_merge, cpu_relocation)
  )
  structure(as_table(report), report = report)
}

#' @rdname estimate
#' @export
layers_of <- function(estimate) {
  report <- report_of(estimate)
  as_table(with_clean_errors(core()$layers_of(report)))
}

#' @rdname estimate
#' @export
slices_that_fit <- function(estimate, memory) {
  report <- report_of(estimate)
  with_clean_errors(core()$slices_that_fit(report, memory)) %||% NA_integer_
}

# The table in Python that a data frame shows.
report_of <- function(estimate) {
  report <- attr(estimate, "report")
  if (is.null(report) || !is_null_object(report) && length(report$columns$device) != nrow(estimate)) {
    refuse(
      "`estimate` to be the unchanged result of `estimate()`", class(estimate)[[1]], "Use `estimate(model, gpus = 2)`."
    )
  }
  alive(report)
}

#' @rdname estimate
#' @export
measure <- function(parallel, x, y = NULL, batch_size = 32L, steps = 5L, verbose = 1L) {
  refuse_na(batch_size = batch_size, steps = steps, verbose = verbose)
  as_table(with_clean_errors(
    core()$measure(
      parallel, as_inputs(x, parallel), as_targets(y), as_integer(batch_size), as_integer(steps), as_integer(verbose)
    )
  ))
}

is_parallel <- function(object) is_python_object(object) && core()$is_parallel(object)

# A report from Python as a data frame.
as_table <- function(report) {
  columns <- lapply(report$columns, as_column)
  is_size <- names(columns) %in% sizes
  columns[is_size] <- lapply(columns[is_size], structure, class = "multigpu_bytes")
  as.data.frame(columns)
}

as_column <- function(values) {
  if (length(values) == 0) logical() else unlist(lapply(values, function(value) value %||% NA))
}

# Columns of bytes.
sizes <- c(
  "memory_total", "memory_free", "weights", "slots", "received", "sent", "optimizer", "copies", "gradients",
  "activations", "inputs", "per_slice", "total", "output", "crossing"
)
