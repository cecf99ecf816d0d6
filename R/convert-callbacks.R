# Callbacks as Keras takes them: a list of objects, in which R functions have become one object.
as_callbacks <- function(callbacks) {
  if (is.null(callbacks) || inherits(callbacks, "python.builtin.object")) {
    return(list(callbacks)[!is.null(callbacks)])
  }
  if (is_moments(callbacks)) {
    return(list(as_callback(callbacks)))
  }
  lapply(unname(callbacks), function(each) if (is_moments(each)) as_callback(each) else each)
}

is_moments <- function(callbacks) {
  is.list(callbacks) && length(callbacks) > 0 && all(vapply(callbacks, is.function, NA))
}

moments <- c(
  "on_train_begin", "on_train_end", "on_epoch_begin", "on_epoch_end", "on_train_batch_begin", "on_train_batch_end",
  "on_test_begin", "on_test_end", "on_test_batch_begin", "on_test_batch_end",
  "on_predict_begin", "on_predict_end", "on_predict_batch_begin", "on_predict_batch_end"
)

as_callback <- function(functions) {
  names <- names(functions) %||% ""
  names(functions) <- sub("^on_batch_", "on_train_batch_", names) # as they were called before
  unknown <- setdiff(names(functions), moments)
  if (length(unknown) > 0) {
    stop(
      "Expected functions in `callbacks` to be named by the moment when they are called. Received: ",
      paste0("`", unknown, "`", collapse = ", "), ". Use one of ", paste(moments, collapse = ", "), ".",
      call. = FALSE
    )
  }
  do.call(keras$callbacks$LambdaCallback, lapply(functions, as_moment))
}

# A function may take fewer arguments than Keras gives.
as_moment <- function(f) {
  taken <- if ("..." %in% names(formals(f))) Inf else length(formals(f))
  reticulate::r_to_py(function(...) {
    given <- list(...)
    do.call(f, unname(given[seq_len(min(length(given), taken))]))
    NULL
  }, convert = TRUE)
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
