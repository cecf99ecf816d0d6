# Callbacks for Keras: a list of callback objects. A list of R functions becomes one object.
as_callbacks <- function(callbacks) {
  if (is.null(callbacks)) {
    return(list())
  }
  if (inherits(callbacks, "python.builtin.list")) callbacks <- reticulate::py_to_r(callbacks)
  if (is_hooks(callbacks) || is_callback(callbacks)) {
    callbacks <- list(callbacks)
  }
  if (!is.list(callbacks) || is.object(callbacks)) {
    refuse_callback(callbacks)
  }
  is_hook <- nzchar(names(callbacks) %||% "") & vapply(callbacks, is_r_function, NA)
  if (any(is_hook)) callbacks <- c(callbacks[!is_hook], list(callbacks[is_hook])) # beside callbacks of Keras
  unlist(lapply(unname(callbacks), function(callback) {
    if (is_hooks(callback)) {
      return(as_callback(callback))
    }
    if (is_plain_list(callback)) {
      return(as_callbacks(callback))
    }
    if (is_callback(callback)) callback else refuse_callback(callback)
  }))
}

is_hooks <- function(callbacks) {
  is.list(callbacks) && length(callbacks) > 0 && !is.null(names(callbacks)) && all(vapply(callbacks, is_r_function, NA))
}

is_callback <- function(object) inherits(object, "keras.src.callbacks.callback.Callback")

refuse_callback <- function(object) {
  expected <- "`callbacks` to be a list of callbacks of Keras, or of R functions named by hooks"
  if (inherits(object, "python.builtin.type")) {
    refuse(expected, c("the class ", object$`__name__`), c("Call it: `", object$`__name__`, "()`."))
  }
  if (is_r_function(object)) {
    refuse(
      expected, "a function without a name",
      "If it makes a callback, call it. Otherwise name its hook, as in `list(on_epoch_end = function(epoch, logs) 1)`."
    )
  }
  refuse(
    expected, c("an object of class ", class(object)[[1]]),
    c(
      "Use `callbacks = list(keras$callbacks$TerminateOnNaN())` or ",
      "`callbacks = list(on_epoch_end = function(epoch, logs) print(logs))`."
    )
  )
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
      "functions in `callbacks` to be named by callback hooks", paste0("`", unknown, "`", collapse = ", "),
      c("Use one of ", toString(callback_hooks), ".")
    )
  }
  by_hook <- split(functions, factor(names(functions), unique(names(functions)))) # a hook may have several
  do.call(keras$callbacks$LambdaCallback, lapply(by_hook, as_hook))
}

# The R functions for a hook, which may take fewer arguments than Keras passes.
as_hook <- function(functions) {
  reticulate::r_to_py(function(...) {
    arguments <- list(...)
    for (f in functions) for_python(do.call(f, unname(arguments[seq_len(min(length(arguments), num_taken(f)))])))
    NULL
  }, convert = TRUE)
}

num_taken <- function(f) if ("..." %in% names(formals(args(f)))) Inf else length(formals(args(f)))

# Python callables, such as metrics of Keras and classes, are functions in R as well. They are passed on unchanged.
is_r_function <- function(x) {
  is.function(x) && !is_python_object(x)
}

# An R function that Python calls with tensors. Keras names losses and metrics after the `__name__` of the function.
as_tensor_function <- function(f, name) {
  f <- with_tensor_functions(f)
  called <- function(y_true, y_pred, ...) {
    for_python(check_result(with_tensors(f(as_tensor(match_rank(y_true, y_pred)), as_tensor(y_pred), ...))))
  }
  attr(called, "py_function_name") <- name
  reticulate::r_to_py(called, convert = TRUE)
}

check_result <- function(result) {
  is_number <- is.numeric(result) || is.logical(result) && !anyNA(result)
  if (!is_python_object(result) && !is_number && !is.list(result)) {
    refuse(
      "an R function for a loss or a metric to return a tensor or a number", shown(result),
      "End it with the value, as in `mean((y_true - y_pred)^2)`."
    )
  }
  result
}

# Targets as a column if the predictions are a matrix. Otherwise `y_true - y_pred` would broadcast to all pairs of rows.
# Beside keras3, plain models get what Keras passes: a column for a loss of one output, and a vector otherwise.
match_rank <- function(y_true, y_pred) {
  is_vector <- keras$ops$ndim(y_true) == 1 && keras$ops$ndim(y_pred) == 2
  if (is_vector && !isNamespaceLoaded("keras3")) keras$ops$expand_dims(y_true, -1L) else y_true
}
