# Callbacks for Keras: a list of callback objects. A list of R functions becomes one object.
as_callbacks <- function(callbacks) {
  if (is.null(callbacks) || inherits(callbacks, "python.builtin.object")) {
    return(list(callbacks)[!is.null(callbacks)])
  }
  if (is_hooks(callbacks)) {
    return(list(as_callback(callbacks)))
  }
  lapply(unname(callbacks), function(callback) if (is_hooks(callback)) as_callback(callback) else callback)
}

is_hooks <- function(callbacks) {
  is.list(callbacks) && length(callbacks) > 0 && all(vapply(callbacks, is.function, NA))
}

callback_hooks <- c(
  "on_train_begin", "on_train_end", "on_epoch_begin", "on_epoch_end", "on_train_batch_begin", "on_train_batch_end",
  "on_test_begin", "on_test_end", "on_test_batch_begin", "on_test_batch_end",
  "on_predict_begin", "on_predict_end", "on_predict_batch_begin", "on_predict_batch_end"
)

as_callback <- function(functions) {
  names <- names(functions) %||% ""
  names(functions) <- sub("^on_batch_", "on_train_batch_", names) # their names in Keras 2
  unknown <- setdiff(names(functions), callback_hooks)
  if (length(unknown) > 0) {
    refuse(
      "Expected functions in `callbacks` to be named by callback hooks. Received: ",
      paste0("`", unknown, "`", collapse = ", "), ". Use one of ", paste(callback_hooks, collapse = ", "), "."
    )
  }
  do.call(keras$callbacks$LambdaCallback, lapply(functions, as_hook))
}

# An R function for a hook, which may take fewer arguments than Keras passes.
as_hook <- function(f) {
  num_taken <- if ("..." %in% names(formals(f))) Inf else length(formals(f))
  reticulate::r_to_py(function(...) {
    arguments <- list(...)
    for_python(do.call(f, unname(arguments[seq_len(min(length(arguments), num_taken))])))
    NULL
  }, convert = TRUE)
}

# Python callables, such as metrics of Keras and classes, are functions in R as well. They are passed on unchanged.
is_r_function <- function(x) {
  is.function(x) && !is_python_object(x)
}

# An R function that Python calls with tensors. Keras names losses and metrics after the `__name__` of the function.
as_tensor_function <- function(f, name) {
  f <- with_tensor_functions(f)
  called <- function(y_true, y_pred, ...) {
    for_python(with_tensors(f(as_tensor(match_rank(y_true, y_pred)), as_tensor(y_pred), ...)))
  }
  attr(called, "py_function_name") <- name
  reticulate::r_to_py(called)
}

# Targets as a column if the predictions are a column. Otherwise `y_true - y_pred` would broadcast to all pairs of rows.
match_rank <- function(y_true, y_pred) {
  is_vector <- keras$ops$ndim(y_true) == 1 && keras$ops$ndim(y_pred) == 2
  if (is_vector) keras$ops$expand_dims(y_true, -1L) else y_true
}
