skip_on_cran()

# Mocks of packages that cannot be installed here, with their names and classes.
verbs <- c("compile", "evaluate", "fit", "predict", "print", "summary")
model_class <- "keras.src.models.model.Model"
mocks <- list(
  keras3 = list(
    exports = c(
      "importFrom(generics, compile, fit)", "importFrom(magrittr, '%>%')", "importFrom(tensorflow, evaluate)",
      "export(compile, evaluate, fit, '%>%', keras_model, layer_dense)",
      paste0("S3method(", verbs, ", ", model_class, ")")
    ),
    code = c(
      "keras_model <- layer_dense <- function(...) 'keras3'",
      paste0(verbs, ".", model_class, " <- function(...) cat('keras3 ')")
    )
  ),
  tensorflow = list(exports = "export(evaluate)", code = "evaluate <- function(object, ...) UseMethod('evaluate')")
)

# Who answers for a parallel model, and for another one. The parallel one has no Python, which is an error of multigpu.
who_answers <- c(
  "template <- structure(list(), class = c('keras.src.models.model.Model', 'keras.src.trainers.trainer.Trainer'))",
  "parallel <- structure(list(), class = c('multigpu.model.parallel_model.ParallelModel', class(template)))",
  "answers <- function(verb, model) tryCatch(suppressMessages(verb(model)), error = function(e) cat('multigpu '))",
  "for (verb in c(compile, evaluate, multigpu::evaluate, fit, multigpu::fit, predict, print, summary)) {",
  "  answers(verb, parallel)",
  "  answers(verb, template)",
  "}"
)

attach <- function(...) sprintf("library(%s)", c(...))
no_python <- "Sys.setenv(RETICULATE_PYTHON = '/nowhere/python')"
scripts <- list(
  alone = c(no_python, attach("multigpu"), who_answers),
  keras3_loaded = c(no_python, attach("multigpu"), "invisible(keras3::layer_dense())", who_answers),
  keras3_first = c(no_python, attach("keras3", "multigpu"), who_answers),
  keras3_last = c(no_python, attach("multigpu", "keras3"), who_answers),
  masked = "suppressMessages(library(keras3)); library(multigpu)",
  generics = "library(generics); library(multigpu, include.only = 'fit'); cat(length(ls('package:multigpu')))"
)

# What each script prints, all of which run when the first test asks.
printed_by <- local({
  printed <- NULL
  function(name) {
    if (is.null(printed)) printed <<- run_in_new_rs(scripts, install_mocks(rev(mocks)))
    printed[[name]]
  }
})

test_that("a parallel model's verbs are those of this package; other models' are those of keras3 if it is loaded", {
  ours <- strrep("multigpu ", 16)
  each <- strrep("multigpu keras3 ", 8)
  expect_identical(tail(printed_by("alone"), 1), ours)
  expect_identical(tail(printed_by("keras3_loaded"), 1), each)
  expect_identical(tail(printed_by("keras3_first"), 1), each)
  expect_identical(tail(printed_by("keras3_last"), 1), each)
})

test_that("a note says so where keras3 is loaded, and R says what is masked", {
  said <- paste(printed_by("masked"), collapse = " ")
  expect_match(said, "Beside keras3, the verbs of a parallel model are those of multigpu", fixed = TRUE)
  expect_match(said, "masked from .package:keras3.: +evaluate, keras_model")
  expect_no_match(said, "fit")
  expect_identical(printed_by("alone")[-1], character())
})

test_that("what was attached in part stays so", {
  expect_match(tail(printed_by("generics"), 1), "1$")
})

test_that("42 names are exported; they were 102, of which 64 only raised an error", {
  expect_length(getNamespaceExports("multigpu"), 42)
})
