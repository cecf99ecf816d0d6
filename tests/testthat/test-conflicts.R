# Mocks of packages that cannot be installed here, with their names and classes.
verbs <- c("compile", "evaluate", "fit", "predict", "print", "summary")
functions <- c(
  "keras", "keras_model", "keras_model_sequential", "application_xception", "get_layer", "get_config", "pop_layer",
  "train_on_batch", "test_on_batch", "predict_on_batch"
)
mocks <- list(
  keras3 = list(
    exports = c(
      "importFrom(generics, compile, fit)", "importFrom(magrittr, '%>%')", "export(compile, fit, '%>%')",
      paste0("export(evaluate, ", paste(functions, collapse = ", "), ")"),
      paste0("S3method(", verbs, ", keras.src.models.model.Model)")
    ),
    code = c(
      "evaluate <- function(object, ...) UseMethod('evaluate')",
      paste0(functions, " <- function(...) 'keras3'"),
      paste0(verbs, ".keras.src.models.model.Model <- function(...) cat('keras3 ')")
    )
  ),
  tensorflow = list(
    exports = "export(tf, evaluate)",
    code = c("tf <- 'tensorflow'", "evaluate <- function(object, ...) UseMethod('evaluate')")
  ),
  keras = list(
    exports = "export(multi_gpu_model, save_model_hdf5)",
    code = c("multi_gpu_model <- function(...) stop('deprecated')", "save_model_hdf5 <- function(...) NULL")
  ),
  other = list(exports = "export(bring_home)", code = "bring_home <- function() NULL")
)

use_everything <- c(
  "model <- structure(list(), class = c('multigpu.parallel.model.ParallelModel', 'keras.src.models.model.Model',",
  "  'keras.src.trainers.trainer.Trainer', 'python.builtin.object'))",
  "for (verb in c('compile', 'evaluate', 'fit', 'predict', 'print', 'summary')) get(verb)(model)",
  "theirs <- getNamespaceExports('keras3')",
  "same <- vapply(theirs, function(name) identical(get(name), getExportedValue('keras3', name)), NA)",
  "cat(theirs[!same])",
  "cat(environmentName(environment(multi_gpu_model)), environmentName(environment(fit_generator)))"
)

of_tensorflow <- c(
  "cat(tf, '')",
  "method <- getS3method('evaluate', 'keras.src.trainers.trainer.Trainer', envir = asNamespace('tensorflow'))",
  "cat(environmentName(environment(method)))"
)
of_keras <- "cat('', environmentName(environment(multi_gpu_model)), environmentName(environment(save_model_hdf5)))"

attach <- function(...) sprintf("library(%s)", c(...))
scripts <- list(
  keras3_first = c(attach("keras3", "multigpu"), use_everything),
  keras3_last = c(attach("multigpu", "keras3"), use_everything),
  tensorflow_first = c(attach("tensorflow", "multigpu"), of_tensorflow),
  tensorflow_last = c(attach("multigpu", "tensorflow"), of_tensorflow),
  keras_first = c(attach("keras", "multigpu"), of_keras),
  keras_last = c(attach("multigpu", "keras"), of_keras),
  generics = "suppressMessages(library(generics)); library(multigpu)",
  other = "suppressMessages(library(generics)); library(other); library(multigpu)"
)

# What each script prints, all of which run when the first test asks.
printed_by <- local({
  printed <- NULL
  function(name) {
    if (is.null(printed)) printed <<- run_in_new_rs(scripts, install_mocks(mocks))
    printed[[name]]
  }
})

test_that("with keras3 attached, its functions and methods are used, in either order, without messages", {
  expected <- "keras3 keras3 keras3 keras3 keras3 keras3 multigpu multigpu"
  expect_identical(printed_by("keras3_first"), expected)
  expect_identical(printed_by("keras3_last"), expected)
})

test_that("the package generics is hidden without a message, others are not", {
  expect_identical(printed_by("generics"), character())
  expect_match(printed_by("other"), "bring_home", all = FALSE)
})

test_that("with the R package tensorflow attached, its `tf` and `evaluate` are used, in either order", {
  expect_identical(printed_by("tensorflow_first"), "tensorflow multigpu")
  expect_identical(printed_by("tensorflow_last"), "tensorflow multigpu")
})

test_that("with the R package keras attached, our `multi_gpu_model` is used", {
  expect_identical(tail(printed_by("keras_last"), 1), " multigpu keras")
  expect_identical(tail(printed_by("keras_first"), 1), " multigpu keras")
})

test_that("methods of the R package tensorflow take precedence", {
  tensor <- structure(list(), class = c("tensorflow.tensor", class(tf$constant(1))))
  registerS3method("Ops", "tensorflow.tensor", function(e1, e2) "theirs")
  expect_identical(tensor + 1, "theirs")
})
