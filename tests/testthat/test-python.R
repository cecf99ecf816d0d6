test_that("the package loads without Python, and does not start it", {
  printed <- run_in_new_r(
    c("library(multigpu)", "cat(reticulate::py_available())"),
    env = "RETICULATE_PYTHON=/nowhere/python"
  )
  expect_identical(printed, "FALSE")
})

test_that("a link that became a file is explained", {
  link <- tempfile()
  writeLines("../python", link)
  expect_snapshot(writeLines(error_text(python_folder(link))))
  expect_true(file.exists(file.path(python_folder(), "multigpu", "replicate.py")))
})

test_that("a missing or old piece is named, with its cure", {
  expect_null(check_python(c(Python = "3.13.1", TensorFlow = "2.21.0", Keras = "3.15.1")))
  expect_null(check_python(c(Python = "3.11", TensorFlow = "2.22.0rc1", Keras = "4.0")))
  refusal <- function(...) {
    text <- error_text(check_python(c(...)))
    writeLines(sub(reticulate::py_config()$python, "PATH", text, fixed = TRUE))
  }
  chosen <- Sys.getenv("RETICULATE_PYTHON", NA)
  Sys.unsetenv("RETICULATE_PYTHON")
  on.exit(if (!is.na(chosen)) Sys.setenv(RETICULATE_PYTHON = chosen))
  expect_snapshot({
    refusal(Python = NA, TensorFlow = NA, Keras = NA)
    refusal(Python = "3.9", TensorFlow = NA, Keras = NA)
    refusal(Python = "3.11", TensorFlow = NA, Keras = NA)
    refusal(Python = "3.11", TensorFlow = "2.21.0", Keras = "2.15.0")
  })
})

test_that("the cure for a chosen Python is another one than for none", {
  expect_snapshot({
    writeLines(cure_for_python(""))
    writeLines(cure_for_python("/usr/bin/python3"))
  })
  expect_identical(what_failed("ModuleNotFoundError: No module named 'keras'"), NA)
  expect_identical(what_failed("ImportError: libcuda\n"), "libcuda")
})

test_that("a Python without Keras is named with its cure, by every function", {
  folder <- tempfile("bare")
  system2(reticulate::py_config()$python, c("-m", "venv", "--without-pip", folder))
  bare <- file.path(folder, "bin", "python")
  lines <- c(
    "library(multigpu)", "say <- function(expr) tryCatch(expr, error = function(e) cat(conditionMessage(e), ''))",
    "say(multi_gpu_model(1, 2))", "say(keras_model_sequential())", "say(simulate_gpus(2))"
  )
  printed <- paste(run_in_new_r(lines, env = paste0("RETICULATE_PYTHON=", bare)), collapse = " ")
  found <- gregexpr("Expected TensorFlow 2.21 or later. Received: none, with Python at", printed, fixed = TRUE)[[1]]
  expect_length(found, 3)
})

test_that("numpy is old enough for an old reticulate", {
  expect_true("numpy>=1.26,<2" %in% python_packages(package_version("1.28")))
  expect_true("numpy>=1.26" %in% python_packages(package_version("1.41")))
  expect_true("tensorflow[and-cuda]>=2.21" %in% python_packages(cuda = TRUE))
})

test_that("an error of Python is its message alone", {
  expect_identical(clean_message("ValueError: two\nlines\n"), "two\nlines")
  expect_identical(clean_message("keras.src.Error: x\nRun `reticulate::py_last_error()` for details."), "x")
})

# All calls in an expression, and in those that it holds.
calls_in <- function(expr) {
  if (!is.recursive(expr)) {
    return(list())
  }
  parts <- Filter(function(part) !identical(part, quote(expr = )), as.list(expr)) # an argument may be missing
  c(if (is.call(expr)) list(expr), unlist(lapply(unname(parts), calls_in)))
}

calls_of_package <- function() {
  functions <- Filter(is.function, as.list(asNamespace("multigpu"), all.names = TRUE))
  unlist(lapply(unname(functions), function(f) calls_in(c(as.list(formals(f)), body(f)))))
}

test_that("R calls one Python module of the package, and every name in its list but no other", {
  calls <- calls_of_package()
  strings <- Filter(is.character, unlist(lapply(calls, as.list)))
  expect_identical(unique(grep("^multigpu\\.", strings, value = TRUE)), "multigpu.r_interface")

  around_core <- Filter(function(call) list(quote(core())) %in% as.list(call), calls)
  accesses <- Filter(function(call) identical(call[[1]], quote(`$`)), around_core)
  others <- setdiff(lapply(around_core, `[[`, 1), list(quote(`$`)))
  expect_setequal(vapply(others, as.character, ""), c("{", "if")) # which load it and take nothing from it
  names <- unique(vapply(accesses, function(call) as.character(call[[3]]), ""))
  expect_setequal(names, unlist(core()$`__all__`))
  for (name in names) expect_true(reticulate::py_has_attr(core(), name), info = name)
})

test_that("R without embedding needs no rpy2", {
  core()
  expect_false("rpy2" %in% names(reticulate::import("sys")$modules))
})
