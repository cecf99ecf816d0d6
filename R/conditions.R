# Python's errors and warnings as R's. `core()` comes first: it reports missing requirements.
with_clean_errors <- function(expr) {
  core()$listen()
  on.exit(for (text in core()$said()) warning(in_r_words(text), call. = FALSE))
  clean_errors(expr)
}

# An error from Python as one of R, without the name of its class and without a traceback.
clean_errors <- function(expr) {
  tryCatch(expr, error = function(e) if (is_interrupt(e)) interrupt() else refuse_again(e))
}

# The texts of this package, in Python and in R, have one form: the expected value, the received value, and what to do.
refuse <- function(..., class = NULL, python = NULL, call = user_call()) {
  text <- in_one_line(cli::ansi_strip(paste0(...)))
  parts <- parts_of(text)
  class <- c(class, "multigpu_error")
  trace <- trace_of_calls(parent.frame())
  if (is.null(trace)) {
    stop(structure(class = c(class, "error", "condition"), list(message = text, call = NULL, text = text)))
  }
  if (is.null(parts)) { # of Keras, TensorFlow or the user's own functions: lines stay lines
    rlang::abort(text, class = class, text = text, python = python, call = call, trace = trace)
  }
  text <- paste(parts, collapse = " ")
  shown <- stats::setNames(sprintf("{parts[[%d]]}", seq_along(parts)), c("", "x", "i")[seq_along(parts)])
  cli::cli_abort(shown, class = class, text = text, python = python, call = call, trace = trace)
}

# NULL for a call with a tensor that has no value yet, because rlang asks for the length of each argument.
trace_of_calls <- function(bottom) tryCatch(rlang::trace_back(bottom = bottom), error = function(e) NULL)

# An error from R that passed through Python, in a callback, already has bullets.
in_one_line <- function(text) {
  if (startsWith(text, "Expected ")) gsub("\\s+(?:[\u2716\u2139xi] (?=[A-Z`]))?", " ", text, perl = TRUE) else text
}

# For functions that Python calls: reticulate keeps only the first line of an R error with bullets.
for_python <- function(expr) {
  withCallingHandlers(expr, rlang_error = function(e) stop(said_by(e), call. = FALSE))
}

# The sentences of each part, or NULL for other texts. A long received value is shortened.
parts_of <- function(text) {
  form <- "^(Expected .*?) (Received\\b.*?)(?:(?<=[.]) (?=[A-Z`])(.*))?$"
  found <- regmatches(text, regexec(form, text, perl = TRUE))[[1]]
  if (length(found) > 0) c(found[[2]], cut_middle(found[[3]], 200), if (nzchar(found[[4]])) cut_middle(found[[4]], 600))
}

cut_middle <- function(text, width) {
  half <- width %/% 2
  if (nchar(text) <= width) text else paste(substr(text, 1, half), "...", substring(text, nchar(text) - half + 1))
}

# The function of this package that the user has called: errors name it.
user_call <- function() {
  namespace <- topenv(environment())
  known <- c(mget(getNamespaceExports(namespace), namespace, ifnotfound = list(NULL), inherits = TRUE), model_methods())
  for (number in rev(seq_len(sys.nframe()))) {
    if (any(vapply(known, identical, NA, sys.function(number)))) {
      return(sys.frame(number))
    }
  }
}

model_methods <- function() {
  list(compile_model, fit_model, evaluate_model, predict_model, summarize_model, print_model)
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
refuse_again <- function(e) {
  message <- full_message(e)
  classes <- c(if (grepl(too_few_gpus, message)) "multigpu_too_few_gpus", class(e)[[1]])
  text <- if (inherits(e, "multigpu_error")) e$text else clean_message(message)
  refuse(text, class = setdiff(classes, "multigpu_error"), python = e)
}

# reticulate cuts long messages, and older versions fail at that.
full_message <- function(e) {
  message <- conditionMessage(e)
  is_cut <- grepl("basic_string::substr|<[.]{3} ?(omitted|truncated) ?[.]{3}>", message)
  last <- if (is_cut) reticulate::py_last_error()
  if (is.null(last)) message else paste0(last$type, ": ", last$value)
}

too_few_gpus <- "^([a-z.]*\\.)?TooFewGPUsError: " # older versions of reticulate name the class in the message only

clean_message <- function(message) {
  if (grepl("object is from previous session", message, fixed = TRUE)) {
    return(from_another_session)
  }
  message <- sub("^([A-Za-z_.]*(Error|Exception)|multigpu\\.[A-Za-z_.]*): ", "", message)
  message <- sub("^\\[Errno [0-9]+\\] ", "", message)
  message <- sub("\\s*Run `reticulate::py_last_error\\(\\)` for details\\.\\s*$", "", message)
  message <- sub("\n-{20}\nFor simplicity, JAX has removed .*$", "", message)
  explain_doubles(in_r_words(sub("\\s+$", "", message)))
}

# Keras' error does not explain that R's `4` is not an integer.
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
  if (is_null_object(object)) {
    refuse(from_another_session)
  }
  object
}

is_null_object <- function(object) is_python_object(object) && reticulate::py_is_null_xptr(object)

# The texts of this package are written in Python, for both languages. Python code that they quote is translated to R.
in_r_words <- function(text) {
  if (!grepl("^(Expected|Left out|For multi-gpu|To call `multi_gpu_model`)", text)) {
    return(text) # of Keras or TensorFlow
  }
  put_in_r_words(text)
}

put_in_r_words <- function(text) {
  for (number in seq_len(nrow(r_words))) {
    text <- gsub(r_words$python[[number]], r_words$r[[number]], text, perl = TRUE)
  }
  module <- gregexpr("(?<![\\w./'])(keras|tf)(\\.[A-Za-z]\\w*)+", text, perl = TRUE)
  regmatches(text, module) <- lapply(regmatches(text, module), gsub, pattern = ".", replacement = "$", fixed = TRUE)
  text
}

r_word <- function(python, r) data.frame(python = python, r = r)

r_type <- function(python, r) r_word(sprintf("(?<=of type |Received: )%s\\b", python), r)

r_words <- rbind(
  r_word("(?<![\\w./'])(parallel|template|model)\\.(?!keras\\b|h5\\b|weights\\.h5)(?=[a-z_])", "\\1$"),
  r_word("with on_device\\(([^)]*)\\): x = layer\\(x\\)", "with(on_device(\\1), x <- layer(x))"),
  r_word(
    "right after the imports, in a fresh process \\(in a notebook: restart the kernel\\)",
    "right after `library(multigpu)`, in a new session of R"
  ),
  r_word("Install `pip install 'multigpu\\[cuda\\]'`(?: on Linux)?", "Run `install_multigpu()` and restart R"),
  r_word("\\bdocs/([a-z-]+)\\.md", "https://github.com/OWNER/multigpu/blob/main/docs/\\1.md"),
  r_type("str", "character"), r_type("float", "numeric"), r_type("int", "integer"), r_type("bool", "logical"),
  r_type("(?:dict|list|tuple)", "list"), r_type("NoneType", "NULL"),
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
  r_word("`pip install '(\\S+)'`", "`reticulate::py_install(\"\\1\")`"),
  r_word("\\{'?(\\w+)'?: (\\w+)\\}", "list(\\1 = \\2)")
)
