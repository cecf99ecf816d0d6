# Python's errors and warnings as R's. `core()` comes first: it reports missing requirements.
with_clean_errors <- function(expr) {
  core()$listen()
  on.exit(for (text in core()$said()) warning(in_r_words(text), call. = FALSE))
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
  classes <- c(if (grepl(too_few_gpus, conditionMessage(e))) "multigpu_too_few_gpus", class(e)[[1]])
  errorCondition(clean_message(conditionMessage(e)), class = classes, parent = e)
}

too_few_gpus <- "^([a-z.]*\\.)?TooFewGPUsError: " # older versions of reticulate name the class in the message only

clean_message <- function(message) {
  if (grepl("object is from previous session", message, fixed = TRUE)) {
    return(from_another_session)
  }
  message <- sub("^([A-Za-z_.]*(Error|Exception)|multigpu\\.[A-Za-z_.]*): ", "", message)
  message <- sub("^\\[Errno [0-9]+\\] ", "", message)
  message <- sub("\\s*Run `reticulate::py_last_error\\(\\)` for details\\.\\s*$", "", message)
  explain_doubles(in_r_words(sub("\\s+$", "", message)))
}

# Keras has no word for R's `4` where it wants an integer.
explain_doubles <- function(message) {
  is_refused <- grepl("(invalid|expected|cannot convert).*\\b[0-9]+[.]0\\b", message, ignore.case = TRUE)
  if (!is_refused || startsWith(message, "Expected ")) {
    return(message)
  }
  paste(message, "In R, whole numbers for Python are written with L: `4L`.")
}

from_another_session <- paste0(
  "Expected an object of this R session. Received: one of a session that has ended, from `readRDS()` or a saved ",
  "workspace, which cannot hold objects of Python. Save models with `save_model_hdf5()`."
)

# The model, unless it is of a session that has ended: then it has no methods.
alive <- function(object) {
  if (is_python_object(object) && reticulate::py_is_null_xptr(object)) {
    stop(from_another_session, call. = FALSE)
  }
  object
}

# The texts of this package are written in Python, for both languages: what they quote of it is put in R's words.
in_r_words <- function(text) {
  if (!grepl("^(Expected|Left out|For multi-gpu|To call `multi_gpu_model`)", text)) {
    return(text) # of Keras or TensorFlow
  }
  for (number in seq_len(nrow(r_words))) {
    text <- gsub(r_words$python[[number]], r_words$r[[number]], text, perl = TRUE)
  }
  module <- gregexpr("(?<![\\w./'])(keras|tf)(\\.[A-Za-z]\\w*)+", text, perl = TRUE)
  regmatches(text, module) <- lapply(regmatches(text, module), gsub, pattern = ".", replacement = "$", fixed = TRUE)
  text
}

r_word <- function(python, r) data.frame(python = python, r = r)

r_words <- rbind(
  r_word("\\bmultigpu\\.(?=[a-z_0-9]+\\()", ""), # the module of a function
  r_word("\\bmultigpu\\.TooFewGPUsError\\b", "multigpu_too_few_gpus"),
  r_word("\\bNone\\b", "NULL"),
  r_word("\\bTrue\\b", "TRUE"),
  r_word("\\bFalse\\b", "FALSE"),
  r_word("(?<![-\\w.])([a-z_]+)=(?=[^\\s=])", "\\1 = "), # an argument, or a value received
  r_word(sprintf("(?<=\\[|, )\\[(%1$s(?:, %1$s)*)\\]", "(?:-?[0-9.]+|'[^']*')"), "c(\\1)"), # a group in a list
  r_word("(?<=[ (])\\[([^\\[\\]]*\\bc\\([^\\[\\]]*)\\]", "list(\\1)"),
  r_word("(?<=[ (])\\[\\]", "list()"),
  r_word(sprintf("(?<=[ (])\\[(%1$s(?:, %1$s)*)\\]", "(?:-?[0-9.]+|'[^']*'|TRUE|FALSE)"), "c(\\1)"),
  r_word("(?<=[ (])\\[(.*?\\bNULL\\b.*?)\\]", "list(\\1)"),
  r_word("\\blen\\(", "length("),
  r_word("`pip install '(\\S+)' '(\\S+)'`", "`reticulate::py_install(c(\"\\1\", \"\\2\"))`"),
  r_word("\\{'?(\\w+)'?: (\\w+)\\}", "list(\\1 = \\2)")
)
