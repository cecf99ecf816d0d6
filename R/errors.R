# An error of Python as one of R: its message alone, without the name of a class and without a trace.
# What Python lacks is said first.
with_clean_errors <- function(expr) {
  core()
  tryCatch(expr, error = function(e) if (is_interrupt(e)) interrupt() else stop(clean_error(e)))
}

# Older versions of reticulate pass on an interrupt that Python took as an error.
is_interrupt <- function(e) {
  startsWith(conditionMessage(e), "KeyboardInterrupt")
}

interrupt <- function() {
  signalCondition(structure(class = c("interrupt", "condition"), list(message = "", call = NULL)))
  invokeRestart("abort") # as R does where nobody waits for it
}

# A condition of its own: in newer versions of reticulate the one that arrives is a Python object that stays as it is.
clean_error <- function(e) {
  errorCondition(clean_message(conditionMessage(e)), class = class(e)[[1]], parent = e)
}

clean_message <- function(message) {
  message <- sub("^([A-Za-z_.]*(Error|Exception)|multigpu\\.[A-Za-z_.]*): ", "", message)
  message <- sub("^\\[Errno [0-9]+\\] ", "", message)
  message <- sub("\\s*Run `reticulate::py_last_error\\(\\)` for details\\.\\s*$", "", message)
  sub("\\s+$", "", message)
}
