skip_on_cran()

test_that("the report has every requirement and its version", {
  printed <- capture.output(report <- multigpu_sitrep())
  expect_true(all(is.na(report$cure)))
  expect_match(printed, paste0("Keras +", keras$`__version__`), all = FALSE)
  expect_lt(length(printed), 24) # one screen
})

test_that("a missing requirement is shown with its remedy", {
  found <- c(R = "4.2.2", reticulate = "1.20", Python = "3.11", TensorFlow = NA, Keras = "2.9")
  expect_snapshot(writeLines(requirement_lines(requirements_report(found))))
  expect_identical(gpu_line(requirements_report(found)), "GPUs: unknown, because requirements are missing")
})

test_that("the add-in calls an exported function", {
  addin <- read.dcf(system.file("rstudio", "addins.dcf", package = "multigpu"))
  expect_true(addin[, "Binding"] %in% getNamespaceExports("multigpu"))
})

test_that("a missing or outdated requirement is named, with the remedy", {
  expect_null(check_python(c(Python = "3.13.1", TensorFlow = "2.21.0", Keras = "3.15.1")))
  expect_null(check_python(c(Python = "3.11", TensorFlow = "2.22.0rc1", Keras = "4.0")))
  backend <- Sys.getenv("KERAS_BACKEND", NA)
  Sys.setenv(KERAS_BACKEND = "jax")
  expect_null(check_python(c(Python = "3.11", TensorFlow = NA, JAX = "0.10.2", Keras = "3.15.1")))
  without_jax <- c(Python = "3.11", TensorFlow = "2.21.0", JAX = NA, Keras = "3.15.1")
  expect_error(check_python(without_jax), "JAX 0.6.2 or later")
  expect_match(python_packages(), "^jax>=", all = FALSE)
  expect_no_match(python_packages(), "^tensorflow")
  if (is.na(backend)) Sys.unsetenv("KERAS_BACKEND") else Sys.setenv(KERAS_BACKEND = backend)
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

test_that("the remedy depends on whether a Python is selected", {
  expect_snapshot({
    writeLines(python_remedy(""))
    writeLines(python_remedy("/usr/bin/python3"))
  })
  expect_identical(failure_reason("ModuleNotFoundError: No module named 'keras'"), NA)
  expect_identical(failure_reason("ImportError: libcuda\n"), "libcuda")
})

# What new sessions print, none of which gets as far as TensorFlow.
printed_by <- local({
  printed <- NULL
  function(name) {
    if (is.null(printed)) printed <<- run_in_new_rs(scripts(reticulate::py_config()$python))
    printed[[name]]
  }
})

scripts <- function(python) {
  folder <- tempfile("bare")
  system2(python, c("-m", "venv", "--without-pip", folder))
  bare <- file.path(folder, "bin", "python")
  list(
    nowhere = c(
      "Sys.setenv(RETICULATE_PYTHON = '/nowhere/python')", "library(multigpu)", "cat(reticulate::py_available())"
    ),
    without_keras = c(
      sprintf("Sys.setenv(RETICULATE_PYTHON = '%s')", bare),
      "library(multigpu)", "say <- function(expr) tryCatch(expr, error = function(e) cat(conditionMessage(e), ''))",
      "say(multi_gpu_model(1, 2))", "say(keras_model_sequential())", "say(simulate_gpus(2))"
    ),
    failed = c(
      "library(multigpu)", sprintf("Sys.setenv(WORKON_HOME = '%s')", tempfile("environments")),
      "failed <- try(install_multigpu('mine', python = '/no/python'), silent = TRUE)",
      "stopifnot(inherits(failed, 'try-error'))",
      "Sys.setenv(PIP_INDEX_URL = 'http://127.0.0.1:9', PIP_RETRIES = 0)",
      # an environment is made, in a second instead of ten, and then nothing can be installed into it
      "options(reticulate.virtualenv.module = 'venv', reticulate.virtualenv.extra = '--without-pip')",
      sprintf("failed <- try(install_multigpu('mine', python = '%s', cuda = FALSE), silent = TRUE)", python),
      "stopifnot(inherits(failed, 'try-error'))",
      "cat('left:', list.files(Sys.getenv('WORKON_HOME')), '\\n')"
    )
  )
}

test_that("the package loads without Python, and does not start it", {
  expect_identical(printed_by("nowhere"), "FALSE")
})

test_that("every function reports a Python without Keras", {
  printed <- paste(printed_by("without_keras"), collapse = " ")
  found <- gregexpr("Expected TensorFlow 2.21 or later[.]\\s+\\S+\\s+Received: none", printed)[[1]]
  expect_length(found, 3)
})

test_that("numpy is old enough for an old reticulate", {
  expect_true("numpy>=1.26,<2" %in% python_packages(package_version("1.28")))
  expect_true("numpy>=1.26" %in% python_packages(package_version("1.41")))
  expect_true("tensorflow[and-cuda]>=2.21" %in% python_packages(cuda = TRUE))
})

test_that("an attempt to install that fails leaves nothing behind", {
  expect_match(printed_by("failed"), "^left: *$", all = FALSE)
})

test_that("an environment with another Python is named, not used", {
  version_of <- function(python) if (python == "/new/python") "3.12.1" else "3.9.2"
  existing <- tempfile("existing")
  dir.create(file.path(existing, "bin"), recursive = TRUE)
  file.create(file.path(existing, "bin", c("python", "activate")))
  writeLines("home = /usr", file.path(existing, "pyvenv.cfg"))
  text <- error_text(check_same_python(existing, "/new/python", version_of))
  expect_match(text, "which is 3.9.2. Received: 3.12.1. Remove it, `reticulate::virtualenv_remove(", fixed = TRUE)
  expect_null(check_same_python(existing, NULL, version_of))
  expect_null(check_same_python(existing, "/old/python", version_of))
})
