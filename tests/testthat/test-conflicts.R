# Mocks of packages that cannot be installed here, with their names and classes.
install_mock <- function(name, exports, code) {
  lib <- tempfile("lib")
  folder <- file.path(tempfile("src"), name)
  dir.create(lib)
  dir.create(file.path(folder, "R"), recursive = TRUE)
  description <- c(paste("Package:", name), "Version: 9.9", "Title: x", "Description: x.", "License: x")
  writeLines(description, file.path(folder, "DESCRIPTION"))
  writeLines(exports, file.path(folder, "NAMESPACE"))
  writeLines(code, file.path(folder, "R", "code.R"))
  r <- file.path(R.home("bin"), "R")
  seen <- c( # R CMD check --as-cran hides what is not declared
    paste0("R_LIBS=", paste(.libPaths(), collapse = .Platform$path.sep)), "_R_CHECK_INSTALL_DEPENDS_=false"
  )
  printed <- system2(r, c("CMD", "INSTALL", "-l", lib, folder), stdout = TRUE, stderr = TRUE, env = seen)
  if (!dir.exists(file.path(lib, name))) {
    stop(paste(printed, collapse = "\n"))
  }
  lib
}

mock_keras3 <- function() {
  verbs <- c("compile", "evaluate", "fit", "predict", "print", "summary")
  functions <- c(
    "keras", "keras_model", "keras_model_sequential", "application_xception", "get_layer", "get_config", "pop_layer",
    "train_on_batch", "test_on_batch", "predict_on_batch"
  )
  install_mock(
    "keras3",
    c(
      "importFrom(generics, compile, fit)", "importFrom(magrittr, '%>%')", "export(compile, fit, '%>%')",
      paste0("export(evaluate, ", paste(functions, collapse = ", "), ")"),
      paste0("S3method(", verbs, ", keras.src.models.model.Model)")
    ),
    c(
      "evaluate <- function(object, ...) UseMethod('evaluate')",
      paste0(functions, " <- function(...) 'keras3'"),
      paste0(verbs, ".keras.src.models.model.Model <- function(...) cat('keras3 ')")
    )
  )
}

use_everything <- c(
  "model <- structure(list(), class = c('multigpu.parallel.model.ParallelModel', 'keras.src.models.model.Model',",
  "  'keras.src.trainers.trainer.Trainer', 'python.builtin.object'))",
  "for (verb in c('compile', 'evaluate', 'fit', 'predict', 'print', 'summary')) get(verb)(model)",
  "theirs <- getNamespaceExports('keras3')",
  "same <- vapply(theirs, function(name) identical(get(name), getExportedValue('keras3', name)), NA)",
  "cat(theirs[!same])",
  "cat(environmentName(environment(multi_gpu_model)), environmentName(environment(fit_generator)))"
)

test_that("with keras3 attached, its functions and methods are used, in either order, without messages", {
  lib <- mock_keras3()
  expected <- "keras3 keras3 keras3 keras3 keras3 keras3 multigpu multigpu"
  expect_identical(run_in_new_r(c("library(keras3)", "library(multigpu)", use_everything), lib), expected)
  expect_identical(run_in_new_r(c("library(multigpu)", "library(keras3)", use_everything), lib), expected)
})

test_that("the package generics is hidden without a message, others are not", {
  expect_identical(run_in_new_r("suppressMessages(library(generics)); library(multigpu)"), character())
  lib <- install_mock("other", "export(bring_home)", "bring_home <- function() NULL")
  printed <- run_in_new_r("suppressMessages(library(generics)); library(other); library(multigpu)", lib)
  expect_match(printed, "bring_home", all = FALSE)
})

# keras3 waits for Python's `keras`, and makes a tensor when the import that brought it has ended.
makes_a_tensor <- '
import importlib._bootstrap, sys
depth, made, find_and_load = 0, False, importlib._bootstrap._find_and_load
def hooked(name, import_):
    global depth, made
    depth += 1
    try:
        return find_and_load(name, import_)
    finally:
        depth -= 1
        if depth == 0 and not made and hasattr(sys.modules.get("keras"), "ops"):
            made = True
            sys.modules["keras"].ops.convert_to_tensor([1])
importlib._bootstrap._find_and_load = hooked
'

test_that("devices are simulated in time beside keras3, attached before or after", {
  lib <- install_mock(
    "keras3", "export(keras)",
    c(
      "keras <- NULL", paste("code <-", deparse1(makes_a_tensor)),
      ".onLoad <- function(...) setHook('reticulate.onPyInit', function(...) reticulate::py_run_string(code))"
    )
  )
  printed <- function(lines) utils::tail(run_in_new_r(lines, lib), 1)
  simulate <- "simulate_gpus(2); cat(nrow(available_gpus()))"
  expect_identical(printed(c("library(keras3)", "library(multigpu)", simulate)), "2")
  expect_identical(printed(c("library(multigpu)", "library(keras3)", simulate)), "2")
  too_late <- c("library(keras3)", "library(multigpu)", "cat(nrow(available_gpus()))", "tryCatch({", simulate)
  said <- printed(c(too_late, "}, error = function(e) cat('', conditionMessage(e)))"))
  expect_match(said, "Expected `simulate_gpus()` to be called before TensorFlow uses a device", fixed = TRUE)
})

test_that("with the R package tensorflow attached, its `tf` and `evaluate` are used, in either order", {
  lib <- install_mock(
    "tensorflow", "export(tf, evaluate)",
    c("tf <- 'tensorflow'", "evaluate <- function(object, ...) UseMethod('evaluate')")
  )
  use <- c(
    "cat(tf, '')",
    "method <- getS3method('evaluate', 'keras.src.trainers.trainer.Trainer', envir = asNamespace('tensorflow'))",
    "cat(environmentName(environment(method)))"
  )
  expect_identical(run_in_new_r(c("library(tensorflow)", "library(multigpu)", use), lib), "tensorflow multigpu")
  expect_identical(run_in_new_r(c("library(multigpu)", "library(tensorflow)", use), lib), "tensorflow multigpu")
})

test_that("with the R package keras attached, our `multi_gpu_model` is used", {
  lib <- install_mock(
    "keras", "export(multi_gpu_model, save_model_hdf5)",
    c("multi_gpu_model <- function(...) stop('deprecated')", "save_model_hdf5 <- function(...) NULL")
  )
  whose <- "cat('', environmentName(environment(multi_gpu_model)), environmentName(environment(save_model_hdf5)))"
  after <- run_in_new_r(c("library(keras)", "library(multigpu)", whose), lib)
  before <- run_in_new_r(c("library(multigpu)", "library(keras)", whose), lib)
  expect_identical(tail(after, 1), " multigpu keras")
  expect_identical(tail(before, 1), " multigpu keras")
})

test_that("methods of the R package tensorflow take precedence", {
  tensor <- structure(list(), class = c("tensorflow.tensor", class(tf$constant(1))))
  registerS3method("Ops", "tensorflow.tensor", function(e1, e2) "theirs")
  expect_identical(tensor + 1, "theirs")
})
