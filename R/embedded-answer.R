# R inside a Python process: R's answer to a request from Python. Each request is a Python object, which R reads and in
# which R stores the reply, so that reticulate converts everything.

answer_python <- function() {
  request <- core()$current()
  forget(core()$numbers_let_go())
  withRestarts(
    tryCatch(
      withCallingHandlers(
        request$succeed(as_python(run_request(request))),
        warning = function(w) record(request$warn, w, "muffleWarning"),
        message = function(m) record(request$say, m, "muffleMessage")
      ),
      error = function(e) {
        if (is_interrupt(e)) request$interrupt() else request$fail(plain_message(said_by(e)), python_error(e))
      },
      interrupt = function(i) request$interrupt()
    ),
    abort = function() request$interrupt()
  )
  invisible()
}

# One direction each, for the cells of rpy2: rpy2 makes the call, reticulate converts the value.
to_python <- function(x) {
  core()$current()$succeed(as_python(x))
  invisible()
}

from_python <- function() {
  as_r(reticulate::py_get_attr(core()$current(), "code"))
}

run_request <- function(request) {
  named <- as_r(reticulate::py_get_attr(request, "named"))
  if (!request$is_call) {
    list2env(named, globalenv())
    return(eval(parse(text = request$code, keep.source = FALSE), globalenv()))
  }
  f <- as_r(reticulate::py_get_attr(request, "code"))
  f <- if (is.function(f)) f else eval(str2expression(f), globalenv())
  do.call(f, c(as_r(reticulate::py_get_attr(request, "unnamed")), named), quote = TRUE)
}

record <- function(to, condition, restart) {
  to(conditionMessage(condition))
  invokeRestart(restart)
}

# The text of an error of this package as it is in Python: in one line, without bullets.
said_by <- function(e) if (inherits(e, "multigpu_error")) e$text else conditionMessage(e)

# The Python error that caused an R error.
python_error <- function(e) {
  if (inherits(e, "python.builtin.BaseException")) {
    return(e)
  }
  if (inherits(e, "multigpu_error") && !is.null(e$python)) {
    return(python_error(e$python))
  }
  last <- reticulate::py_last_error() # older versions of reticulate keep it only here
  message <- plain_message(said_by(e))
  if (is_cut(e) || nzchar(message) && endsWith(plain_message(last$message), message)) attr(last, "exception")
}

plain_message <- function(message) {
  sub("\\s*(Run `reticulate::py_last_error\\(\\)` for details\\.)?\\s*$", "", message %||% "")
}
