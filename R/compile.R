#' Configure a model for training
#'
#' Says how a model is trained and measured: once before the first [fit()], and again to change that, or after freezing
#' layers.
#'
#' @param object A Keras model. Of a parallel model, the template is compiled too: both share one optimizer.
#' @param optimizer Name of an optimizer, or an object such as `keras$optimizers$Adam(1e-3)`.
#' @param loss Name of a loss, an object, or an R function of `y_true` and `y_pred`; for several outputs a list of them,
#'   which may be named by output.
#' @param metrics Names of metrics, objects, or R functions of `y_true` and `y_pred`, in a list. A name in that list is
#'   the name of the metric or, if it is that of an output, the output that it is for.
#' @param loss_weights Weights of the losses of several outputs.
#' @param weighted_metrics Metrics that take sample and class weights into account.
#' @param ... More arguments of Keras' `compile()`, such as `run_eagerly`, `steps_per_execution` or `jit_compile`.
#'
#' @section Losses and metrics in R:
#' A function gets the targets and the predictions of the whole batch as tensors. R's operators and functions such as
#' `abs()`, `sqrt()`, `exp()`, `log()`, `sum()`, `max()` and `mean()` work on them; for all else there is `keras$ops`.
#'
#' @return The model, invisibly.
#' @family verbs
#' @examples
#' \dontrun{
#' model %>% compile(
#'   optimizer = "adam",
#'   loss = function(y_true, y_pred) mean((y_true - y_pred)^2),
#'   metrics = list("mae", largest_error = function(y_true, y_pred) max(abs(y_true - y_pred)))
#' )
#' }
#' @name compile.keras
#' @aliases compile
NULL

#' @rdname compile.keras
#' @method compile keras.src.trainers.trainer.Trainer
#' @export
compile.keras.src.trainers.trainer.Trainer <- function(object,
                                                       optimizer = "rmsprop",
                                                       loss = NULL,
                                                       metrics = NULL,
                                                       loss_weights = NULL,
                                                       weighted_metrics = NULL,
                                                       ...) {
  outputs <- output_names(object)
  with_clean_errors(object$compile(
    optimizer = optimizer,
    loss = as_loss(loss),
    metrics = as_metrics(metrics, outputs),
    loss_weights = if (length(loss_weights) > 1) as.list(loss_weights) else loss_weights,
    weighted_metrics = as_metrics(weighted_metrics, outputs),
    ...
  ))
  invisible(object)
}

# A list of Keras' own kind does not become one of R by itself.
output_names <- function(object) {
  if (reticulate::py_has_attr(object, "output_names")) {
    unlist(reticulate::import_builtins()$list(object$output_names))
  }
}

as_loss <- function(loss) {
  if (is_r_function(loss)) {
    return(as_tensor_function(loss, "loss"))
  }
  if (is.list(loss) || length(loss) > 1) lapply(as.list(loss), as_loss) else loss
}

as_metrics <- function(metrics, outputs) {
  if (is.null(metrics) || inherits(metrics, "python.builtin.object")) {
    return(metrics)
  }
  metrics <- if (is_r_function(metrics)) list(metrics) else as.list(metrics)
  names <- names(metrics) %||% rep("", length(metrics))
  if (length(metrics) > 0 && all(names %in% outputs)) {
    return(lapply(metrics, as_metrics, outputs = NULL))
  }
  unname(Map(as_metric, metrics, ifelse(names == "", "metric", names)))
}

as_metric <- function(metric, name) {
  if (is_r_function(metric)) as_tensor_function(metric, name) else metric
}

# What Python can call is a function to R too: a metric of Keras, a class. Python is handed these as they are.
is_r_function <- function(x) {
  is.function(x) && !is_of_python(x)
}

# An R function that Python calls with tensors. Keras names losses and metrics by the function's `__name__`.
as_tensor_function <- function(f, name) {
  called <- function(y_true, y_pred, ...) f(beside(y_true, y_pred), y_pred, ...)
  attr(called, "py_function_name") <- name
  reticulate::r_to_py(called)
}

# Targets as a column where the predictions are one: else `y_true - y_pred` would be all differences between rows.
beside <- function(y_true, y_pred) {
  is_vector <- keras$ops$ndim(y_true) == 1 && keras$ops$ndim(y_pred) == 2
  if (is_vector) keras$ops$expand_dims(y_true, -1L) else y_true
}
