# Python's errors and warnings as R's. `core()` comes first: it reports missing requirements.
with_clean_errors <- function(expr) {
  core()$listen()
  outer <- loaded$warnings
  loaded$warnings <- list()
  on.exit({
    of_functions <- loaded$warnings
    loaded$warnings <- outer
    texts <- core()$said() # before a warning, which may leave this function
    for (condition in of_functions) warning(condition)
    for (text in texts) warning(in_r_words(text), call. = FALSE)
  })
  clean_errors(expr)
}

# An error from Python as one of R, without the name of its class and without a traceback.
clean_errors <- function(expr) {
  tryCatch(expr, error = function(e) if (is_interrupt(e)) interrupt() else refuse_again(e))
}

# An error of this package says what it expected, what it received, and what to do. Long values are shortened.
refuse <- function(expected, received, use = NULL, ..., bottom = parent.frame()) {
  expected <- in_one_line("Expected ", expected, ".")
  received <- cut_middle(in_one_line("Received: ", received, "."), 200)
  raise(c(expected, x = received, i = if (any(nzchar(use))) cut_middle(in_one_line(use), 600)), ..., bottom = bottom)
}

# `parts` are the lines of cli, or the text of Keras, TensorFlow or the user's own functions, whose lines stay.
raise <- function(parts, class = NULL, python = NULL, call = user_call(), bottom = parent.frame()) {
  text <- paste(parts, collapse = " ")
  class <- c(class, "multigpu_error")
  trace <- trace_of_calls(bottom)
  if (is.null(trace)) {
    stop(structure(class = c(class, "error", "condition"), list(message = text, call = NULL, text = text)))
  }
  if (length(parts) == 1) {
    rlang::abort(text, class = class, text = text, python = python, call = call, trace = trace)
  }
  shown <- stats::setNames(sprintf("{parts[[%d]]}", seq_along(parts)), names(parts))
  cli::cli_abort(shown, class = class, text = text, python = python, call = call, trace = trace)
}

in_one_line <- function(...) gsub("\\s+", " ", paste(c(...), collapse = ""))

# NULL for a call with a tensor that has no value yet, because rlang asks for the length of each argument.
trace_of_calls <- function(bottom) tryCatch(rlang::trace_back(bottom = bottom), error = function(e) NULL)

# For functions that Python calls. reticulate keeps only the first line of an R error with bullets. A handler that
# leaves `fit()`, as `tryCatch(warning = )` does, would jump over Python's frames, after which Python fails: warnings
# wait until Python returns. So do interrupts, which older versions of reticulate do not recognize.
for_python <- function(expr) {
  withCallingHandlers(expr,
    rlang_error = function(e) stop(said_by(e), call. = FALSE),
    warning = function(w) {
      if (is.null(loaded$warnings)) {
        return()
      }
      loaded$warnings <- c(loaded$warnings, list(w))
      tryInvokeRestart("muffleWarning")
    },
    interrupt = function(i) {
      loaded$is_interrupted <- TRUE
      stop("interrupted", call. = FALSE)
    }
  )
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
  in_function <- isTRUE(loaded$is_interrupted)
  loaded$is_interrupted <- FALSE
  in_function || startsWith(conditionMessage(e), "KeyboardInterrupt")
}

interrupt <- function() {
  signalCondition(structure(class = c("interrupt", "condition"), list(message = "", call = NULL)))
  invokeRestart("abort") # as R does if the interrupt is not handled
}

# A new condition, because in newer versions of reticulate the error is a Python object, which cannot be modified.
refuse_again <- function(e) {
  if (inherits(e, "multigpu_error")) rlang::cnd_signal(e)
  python <- python_error(e)
  class <- c(if (any(endsWith(class(python), ".TooFewGPUsError"))) "multigpu_too_few_gpus", class(e)[[1]])
  parts <- lapply(c("expected", "received", "use"), part_of, error = python)
  if (is.null(parts[[1]])) {
    raise(cli::ansi_strip(clean_message(full_message(e))), class = class, python = e)
  }
  refuse(parts[[1]], parts[[2]], parts[[3]], class = class, python = e)
}

# One of the three parts that an error of the Python package has, in R's words.
part_of <- function(name, error) {
  if (!is.null(error) && reticulate::py_has_attr(error, name)) put_in_r_words(cli::ansi_strip(error[[name]]))
}

# reticulate cuts long messages, and older versions fail at that.
full_message <- function(e) {
  last <- if (is_cut(e)) reticulate::py_last_error()
  if (is.null(last)) conditionMessage(e) else paste0(last$type, ": ", last$value)
}

is_cut <- function(e) {
  grepl("basic_string::substr|<[.]{3} ?(omitted|truncated) ?[.]{3}>", conditionMessage(e))
}

clean_message <- function(message) {
  if (grepl("object is from previous session", message, fixed = TRUE)) {
    refuse_other_session()
  }
  message <- sub("\\s*(Run `reticulate::py_last_error\\(\\)` for details\\.)?\\s*$", "", message)
  message <- sub("^KeyError: (\\S+)$", "There is no entry \\1.", message) # the name alone says nothing
  message <- sub("^([A-Za-z_.]*(Error|Exception)|multigpu\\.[A-Za-z_.]*): ", "", message)
  message <- sub("^\\[Errno [0-9]+\\] ", "", message)
  message <- sub("\n-{20}\nFor simplicity, JAX has removed .*$", "", message)
  explain_counts(explain_doubles(in_r_words(sub("\\s+$", "", first_cause(message)))))
}

# The first cause that TensorFlow names for an error in a step, without the files of Python that led to the step.
first_cause <- function(message) {
  if (!grepl("^(Graph execution error:|<stack traces unavailable>)", message)) {
    return(message)
  }
  lines <- strsplit(message, "\n", fixed = TRUE)[[1]]
  led_there <- "^(Graph execution error:|<stack .*>|Detected at node .*|  File \".*|[0-9]+ root error.*|\\s*)$"
  lines <- grep(led_there, lines, value = TRUE, invert = TRUE)
  about_nodes <- grep("^(\\s*\\[\\[|Traceback)", lines)
  if (length(about_nodes) > 0) lines <- utils::head(lines, about_nodes[[1]] - 1)
  sub("^ *\\(0\\) [A-Z_]+: *", "", paste(lines, collapse = "\n"))
}

# R counts from 1, so its users take that for classes and ids, too.
explain_counts <- function(message) {
  if (!grepl("is (not in|outside the valid range of) \\[0, [0-9]+\\)", message)) {
    return(message)
  }
  paste(message, "Keras counts classes and ids from 0: subtract 1 or, for classes, use a factor.")
}

# Keras' error does not explain that R's `4` is not an integer.
explain_doubles <- function(message) {
  is_refused <- grepl("(invalid|expected|cannot convert).*\\b[0-9]+[.]0\\b", message, ignore.case = TRUE)
  if (!is_refused || startsWith(message, "Expected ")) {
    return(message)
  }
  paste(message, "In R, whole numbers for Python are written with L: `4L`.")
}

refuse_other_session <- function() {
  refuse(
    "an object of this R session",
    "one of a session that has ended, from `readRDS()` or a saved workspace, which cannot hold objects of Python",
    "Save models with `save_model_hdf5()`."
  )
}

# The model, unless it is something else of R, or of a session that has ended: then it has no methods.
alive <- function(object) {
  if (!is_python_object(object)) {
    refuse(
      "`model` to be a Keras model", c("an object of class ", class(object)[[1]]),
      "Make one with `keras_model_sequential()` or `keras_model()`."
    )
  }
  if (is_null_object(object)) {
    refuse_other_session()
  }
  object
}

is_null_object <- function(object) is_python_object(object) && reticulate::py_is_null_xptr(object)

# The texts of this package are written in Python, for both languages. Python code that they quote is translated to R.
in_r_words <- function(text) {
  if (!grepl("(?s)^(Expected .*Received: |Left out|For multi-gpu|To call `multi_gpu_model`)", text, perl = TRUE)) {
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

r_type <- function(python, r) r_word(sprintf("(?<=of type |Received: |^)%s\\b", python), r)

r_words <- rbind(
  r_word("(?<![\\w./'])(parallel|template|model)\\.(?!keras\\b|h5\\b|weights\\.h5)(?=[a-z_])", "\\1$"),
  r_word("with on_device\\(([^)]*)\\): x = layer\\(x\\)", "with(on_device(\\1), x <- layer(x))"),
  r_word(
    "right after the imports, in a fresh process \\(in a notebook: restart the kernel\\)",
    "right after `library(multigpu)`, in a new session of R"
  ),
  r_word("`KERAS_BACKEND=(\\w+)`", "`Sys.setenv(KERAS_BACKEND = \"\\1\")` in a new session"),
  r_word("(?<=begins with )b'", "'"),
  r_word("`pip install 'tensorflow\\[and-cuda\\]'`", "`install_multigpu()` and restart R"),
  r_word("\\bdocs/([a-z-]+)\\.md", "https://github.com/OWNER/multigpu/blob/main/docs/\\1.md"),
  r_type("str", "character"), r_type("float", "numeric"), r_type("int", "integer"), r_type("bool", "logical"),
  r_type("(?:dict|list|tuple)", "list"), r_type("NoneType", "NULL"), r_type("ndarray", "array"),
  r_word(" in R, `\\(x, y\\)` in Python", ""),
  r_word("\\bmultigpu\\.(?=[a-z_0-9]+\\()", ""), # the module of a function
  r_word("\\bmultigpu\\.TooFewGPUsError\\b", "multigpu_too_few_gpus"),
  r_word("\\bNone\\b", "NULL"),
  r_word("\\bTrue\\b", "TRUE"),
  r_word("\\bFalse\\b", "FALSE"),
  r_word("(?<![-\\w.])([a-z_]+)=(?=[^\\s=])", "\\1 = "), # an argument, or a value received
  r_word(sprintf("(?<=\\[|, )\\[(%1$s(?:, %1$s)*)\\]", "(?:-?[0-9.]+|'[^']*')"), "c(\\1)"), # a group in a list
  r_word("(?<=[ (]|^)\\[([^\\[\\]]*\\bc\\([^\\[\\]]*)\\]", "list(\\1)"),
  r_word("(?<=[ (]|^)\\[\\]", "list()"),
  r_word(sprintf("(?<=[ (]|^)\\[(%1$s(?:, %1$s)*)\\]", "(?:-?[0-9.]+|'[^']*'|TRUE|FALSE)"), "c(\\1)"),
  r_word("(?<=[ (]|^)\\[(.*?\\bNULL\\b.*?)\\]", "list(\\1)"),
  r_word("\\blen\\(", "length("),
  r_word("text or `pathlib[.]Path`", "text"),
  r_word("(?<== |\\(|, )(-?\\d+)[.]0(?=[,.) ]|$)", "\\1"), # a whole number of R, which is a float in Python
  r_word("`pip install '(\\S+)' '(\\S+)'`", "`reticulate::py_install(c(\"\\1\", \"\\2\"))`"),
  r_word("`pip install '(\\S+)'`", "`reticulate::py_install(\"\\1\")`"),
  r_word("\\{'?(\\w+)'?: (\\w+)\\}", "list(\\1 = \\2)")
)
