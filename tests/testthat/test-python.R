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
