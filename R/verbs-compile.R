#' Configure a model for training
#'
#' Sets the optimizer, the loss and the metrics. Call it once before the first \code{\link[=fit]{fit()}}, and again to
#' change them or after freezing layers.
#'
#' @param object A Keras model. Compiling a parallel model also compiles its template: both share one optimizer.
#' @param optimizer Name of an optimizer, or an object such as `keras$optimizers$Adam(1e-3)`.
#' @param loss Name of a loss, a loss object, or an R function of `y_true` and `y_pred`. For several outputs, a list of
#'   them, which may be named by output.
#' @param metrics A list of names of metrics, metric objects, or R functions of `y_true` and `y_pred`. A name in this
#'   list is the name of the metric or, if it is the name of an output, the output that the metric is for; so is
#'   `attr(f, "name")` of a function. For several outputs, one entry for each, which may be a list.
#' @param loss_weights Weights of the losses of several outputs.
#' @param sample_weight_mode,target_tensors Arguments of Keras 2, kept for their positions. Keras 3 does not have them:
#'   a value other than `NULL` is an error.
#' @param weighted_metrics Metrics to which sample and class weights are applied.
#' @param ... More arguments of Keras' `compile()`, such as `run_eagerly`, `steps_per_execution` or `jit_compile`.
#'
#' @section Losses and metrics in R:
#' A function is called with the targets and the predictions of the global batch, as tensors. R's operators, indices
#' such as `y_pred[, 1]`, `dim()`, `nrow()`, `length()` and functions such as `abs()`, `log()`, `sum()`, `max()`,
#' `mean()`, `pmax()`, `ifelse()`, `var()` and `rowSums()` work as in R, or raise an error that names the replacement.
#' Functions of yours that it calls can use them, too. `sum(x, axis = -1L)`, with `axis` by name, is the function of
#' Keras, which counts axes from 0. For other operations use `keras$ops`. Beside keras3, indices, `axis`, and vectors
#' combined with matrices mean what they mean there, in the methods of the packages tensorflow and reticulate.
#'
#' @return The model, invisibly.
#' @seealso Other verbs: \code{\link[=fit]{fit()}}, [fit_generator()], [train_on_batch()].
#' @examplesIf multigpu::multigpu_is_installed()
#' simulate_gpus(2) # does nothing on a machine with two GPUs
#' model <- keras_model_sequential(input_shape = 4, layers = list(keras$layers$Dense(1L)))
#' parallel_model <- multi_gpu_model(model, gpus = 2)
#' parallel_model |> compile(
#'   optimizer = "adam",
#'   loss = function(y_true, y_pred) mean((y_true - y_pred)^2),
#'   metrics = list("mae", largest_error = function(y_true, y_pred) max(abs(y_true - y_pred)))
#' )
#' @name compile
NULL

compile_model <- function(object,
                          optimizer = "rmsprop",
                          loss = NULL,
                          metrics = NULL,
                          loss_weights = NULL,
                          sample_weight_mode = NULL,
                          weighted_metrics = NULL,
                          target_tensors = NULL,
                          ...) {
  refuse_keras2(sample_weight_mode = sample_weight_mode, target_tensors = target_tensors)
  refuse_na(
    optimizer = optimizer, loss = loss, metrics = metrics, loss_weights = loss_weights,
    weighted_metrics = weighted_metrics
  )
  outputs <- output_names(alive(object))
  with_clean_errors(call_python(
    object$compile, more_arguments(object, "compile", ...),
    optimizer = if (!missing(optimizer)) called(optimizer), # a template's own `compile()` may have other arguments
    loss = as_loss(loss),
    metrics = as_metrics(metrics, outputs),
    loss_weights = as_loss_weights(loss_weights),
    weighted_metrics = as_metrics(weighted_metrics, outputs)
  ))
  invisible(object)
}

#' @rdname compile
#' @method compile multigpu.model.parallel_model.ParallelModel
#' @export
#' @rawNamespace S3method(compile, keras.src.trainers.trainer.Trainer, compile_model)
compile.multigpu.model.parallel_model.ParallelModel <- compile_model

# An optimizer, and not what makes one.
called <- function(optimizer) {
  if (is.function(optimizer) && (is_r_function(optimizer) || inherits(optimizer, "python.builtin.type"))) {
    refuse(
      "`optimizer` to be a name or an optimizer", "a function or a class that makes one",
      "Call it, as in `keras$optimizers$Adam()`."
    )
  }
  optimizer
}

# Arguments of Keras 2 keep their positions, so that the other arguments keep theirs.
refuse_keras2 <- function(...) {
  given <- Filter(Negate(is.null), list(...))
  for (name in names(given)) {
    refuse(
      c("`", name, "` to be NULL, since Keras 3 has no such argument"), c(name, " = ", shown(given[[name]])),
      c("Use ", instead_of_keras2[[name]], ".")
    )
  }
}

instead_of_keras2 <- c(
  sample_weight_mode = "a `sample_weight` of shape (rows, steps) in `fit()`, which weights each step",
  target_tensors = "`y` in `fit()`"
)

as_loss_weights <- function(weights) {
  if (is.integer(weights)) storage.mode(weights) <- "double"
  if (length(weights) > 1 && !is_python_object(weights)) as.list(weights) else weights
}

output_names <- function(object) {
  output <- tryCatch(object$output, error = function(e) NULL) # a model that was not called has none
  if (is_plain_list(output) && !is.null(names(output))) {
    return(names(output))
  }
  names <- if (reticulate::py_has_attr(object, "output_names")) object$output_names
  # reticulate does not convert the list class of Keras
  if (is_python_object(names)) unlist(reticulate::import_builtins()$list(names)) else names
}

as_loss <- function(loss) {
  if (is_python_object(loss)) {
    return(loss)
  }
  if (is_r_function(loss)) {
    return(as_callable(loss, "loss"))
  }
  if (is.list(loss) || length(loss) > 1) lapply(as.list(loss), as_loss) else loss
}

as_metrics <- function(metrics, outputs) {
  if (is.null(metrics) || inherits(metrics, paste0("python.builtin.", c("list", "dict", "tuple")))) {
    return(metrics)
  }
  metrics <- if (is_r_function(metrics) || is_python_object(metrics)) list(metrics) else as.list(metrics)
  names <- names(metrics) %||% rep("", length(metrics))
  if (length(metrics) > 0 && all(names %in% outputs)) {
    return(lapply(metrics, as_metrics, outputs = NULL))
  }
  check_for_outputs(metrics, outputs)
  unname(Map(as_metric, metrics, names))
}

as_metric <- function(metric, name) {
  if (is.list(metric) && !is_python_object(metric)) {
    return(as_metrics(metric, NULL)) # those of one output
  }
  if (!is_r_function(metric)) {
    return(metric)
  }
  own <- attr(metric, "py_function_name") %||% attr(metric, "name") %||% "metric"
  as_callable(metric, if (nzchar(name)) name else own)
}

# What Keras calls: a class of keras3, a loss or metric of Keras itself by its name, or a function of tensors.
as_callable <- function(f, name) class_of(f) %||% name_in_keras(f) %||% as_tensor_function(check_arguments_of(f), name)

# keras3 gives a function for a class, `layer_scale <- Layer("Scale", ...)`, in whose environment is the class.
class_of <- function(f) {
  class <- get0("__class__", environment(f) %||% emptyenv(), inherits = FALSE)
  if (is_python_object(class)) class
}

# keras3 has a function for each loss and metric, which makes one: `metric_auc` is "auc".
name_in_keras <- function(f) {
  if (isNamespaceLoaded("keras3") && identical(environment(f), asNamespace("keras3"))) {
    names <- grep("^(loss|metric)_", getNamespaceExports("keras3"), value = TRUE)
    is_f <- vapply(names, function(name) identical(getExportedValue("keras3", name), f), NA)
    if (any(is_f)) sub("^[a-z]+_", "", names[is_f][[1]])
  }
}

# Keras 2 took metrics for all outputs, Keras 3 takes one entry for each.
check_for_outputs <- function(metrics, outputs) {
  num_metrics <- length(metrics)
  if (length(outputs) > 1 && !num_metrics %in% c(0, length(outputs)) && !any(vapply(metrics, is.list, NA))) {
    by_output <- paste0("metrics = list(", outputs[[1]], " = \"mae\", ", outputs[[2]], " = list(\"mse\", \"mae\"))")
    refuse(
      c("an entry of `metrics` for each of the outputs ", toString(outputs)),
      c(num_metrics, if (num_metrics == 1) " entry" else " entries"), c("Use for instance `", by_output, "`.")
    )
  }
}

check_arguments_of <- function(f) {
  if (num_taken(f) < 2) {
    refuse(
      "losses and metrics to be functions of `y_true` and `y_pred`",
      c("a function of ", if (num_taken(f) == 0) "nothing" else names(formals(args(f)))),
      "Use for instance `function(y_true, y_pred) mean((y_true - y_pred)^2)`."
    )
  }
  f
}
