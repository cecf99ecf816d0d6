#' What each device has to do
#'
#' @param object A parallel model, made by [multi_gpu_model()].
#' @param batch_size Rows of a batch, to see how many each replica gets.
#' @return A data frame with one row per device, which prints as a table with readable sizes. Its columns are `device`;
#'   `replica`, counted from 0, and `rows` of a batch that it gets; `weights` and `slots` (of the optimizer), in bytes,
#'   that the device owns; bytes `received` and `sent` in a training step, in so many `transfers`. What does not apply,
#'   or is not known yet, is `NA`.
#' @family devices
#' @examples
#' \dontrun{
#' overview(parallel_model, batch_size = 256)
#' }
#' @export
overview <- function(object, batch_size = NULL) {
  check_parallel(object)
  as_table(with_clean_errors(core()$overview(object, as_whole(batch_size))))
}

check_parallel <- function(object) {
  if (!core()$is_parallel(object)) {
    stop(
      "Expected a parallel model. Received: ", class(object)[[1]], ". Make one with `multi_gpu_model(model)`.",
      call. = FALSE
    )
  }
}

#' Will it fit, is it worth it?
#'
#' `estimate()` tells what [multi_gpu_model()] would take of each device: nothing is moved or run, and the GPUs need not
#' be there. `measure()` takes a few real training steps on one device and on all, and tells where the time goes.
#'
#' @section How far an estimate can be off:
#' Parameters, weights and what the optimizer keeps are counted, and exact. Copies of weights and gradients are counted
#' as if all were there at once, which is the most possible. Activations are the tensors that are needed at the same
#' time in one replica's training step, which is traced and not run: on a CPU the memory that rows took was 1.1 to 1.2
#' times that. What libraries need to work in, such as cuDNN, and TensorFlow's own share of a GPU are left out.
#'
#' @section What is measured:
#' *Compute* is what the template takes on one device for the rows of one replica. What the parallel model takes beyond
#' that is *transfer*, with cutting and merging; what the data take for a batch beyond a step is *waiting*. Weights,
#' optimizer, metrics and random states are afterwards what they were.
#'
#' @param model A template, or a parallel model, whose template is taken.
#' @param gpus As in [multi_gpu_model()]; one number, of 1 or more, is a count. They need not be on this machine.
#' @param batch_size Rows of a batch, of all GPUs together.
#' @param optimizer An optimizer or the name of one. `NULL` takes the model's own, or Keras' default, `"rmsprop"`.
#' @param cpu_merge,cpu_relocation As in [multi_gpu_model()].
#' @param parallel A compiled parallel model.
#' @param x,y Arrays, as in [fit()]; or a dataset of TensorFlow or Keras, without `y`.
#' @param steps How many steps are measured each way; one more is taken before.
#' @param verbose 1 shows a progress bar, 0 does not.
#' @return Data frames, which print as tables. `estimate()`: one row per device, with the columns `device`, `rows` of a
#'   batch, `parameters` that it owns, and in bytes `weights`, `optimizer`, `copies`, `gradients`, `activations` (`NA`
#'   where they cannot be traced), `total`, and `received` and `sent` in a step. `measure()`: one row, with seconds per
#'   step on `one_device` and on `all_devices`, seconds of `input` for a batch, the `speed_up`, the shares of time in
#'   `compute`, `transfer` and `waiting`, and a `verdict`: whether it pays, and if not, why, and what would help.
#' @family devices
#' @examples
#' \dontrun{
#' estimate(model, gpus = 8, batch_size = 256, optimizer = "adam")
#' measure(parallel_model, x, y, batch_size = 256)
#' }
#' @export
estimate <- function(model, gpus = NULL, batch_size = 32L, optimizer = NULL, cpu_merge = TRUE, cpu_relocation = FALSE) {
  gpus <- as_gpus(gpus)
  as_table(with_clean_errors(
    core()$estimate(model, gpus, as_whole(batch_size), optimizer, cpu_merge, cpu_relocation)
  ))
}

#' @rdname estimate
#' @export
measure <- function(parallel, x, y = NULL, batch_size = 32L, steps = 5L, verbose = 1L) {
  as_table(with_clean_errors(
    core()$measure(parallel, as_arrays(x), as_arrays(y), as_whole(batch_size), as_whole(steps), as_whole(verbose))
  ))
}

# A report of Python as a data frame that prints as in Python.
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
  if (is.null(attr(x, "lines"))) { # a part of a table
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
