# Python's errors and warnings as R's. `core()` comes first: it reports missing requirements.
with_clean_errors <- function(expr) {
  core()$listen()
  on.exit(for (text in core()$said()) warning(text, call. = FALSE))
  clean_errors(expr)
}

# An error from Python as an R error with the message only, without the name of the class and without a traceback.

clean_errors <- function(expr) {
  tryCatch(expr, error = function(e) if (is_interrupt(e)) interrupt() else stop(clean_error(e)))
}

# Older versions of reticulate turn an interrupt that Python has handled into an error.
is_interrupt <- function(e) {
  startsWith(conditionMessage(e), "KeyboardInterrupt")
}

interrupt <- function() {
  signalCondition(structure(class = c("interrupt", "condition"), list(message = "", call = NULL)))
  invokeRestart("abort") # as R does if the interrupt is not handled
}

# A new condition, because in newer versions of reticulate the error is a Python object, which cannot be modified.
clean_error <- function(e) {
  errorCondition(clean_message(conditionMessage(e)), class = class(e)[[1]], parent = e)
}

clean_message <- function(message) {
  message <- sub("^([A-Za-z_.]*(Error|Exception)|multigpu\\.[A-Za-z_.]*): ", "", message)
  message <- sub("^\\[Errno [0-9]+\\] ", "", message)
  message <- sub("\\s*Run `reticulate::py_last_error\\(\\)` for details\\.\\s*$", "", message)
  sub("\\s+$", "", message)
}
