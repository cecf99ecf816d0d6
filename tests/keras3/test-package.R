# A package that uses both, as its author writes it, passes R CMD check.

test_that("a package that imports keras3 and this one passes R CMD check", {
  folder <- file.path(tempfile("toy"), "toy")
  dir.create(file.path(folder, "R"), recursive = TRUE)
  writeLines(c(
    "Package: toy", "Title: Uses Both", "Version: 0.1.0", "Encoding: UTF-8", "License: MIT + file LICENSE",
    "Author: A B", "Maintainer: A B <a@b.org>", "Description: Trains a model.",
    "Imports: keras3, multigpu"
  ), file.path(folder, "DESCRIPTION"))
  writeLines(c("YEAR: 2026", "COPYRIGHT HOLDER: A B"), file.path(folder, "LICENSE"))
  writeLines(
    c("import(keras3)", "importFrom(multigpu, multi_gpu_model, simulate_gpus)", "export(train)"),
    file.path(folder, "NAMESPACE")
  )
  writeLines(c(
    "train <- function(x, y) {", "  simulate_gpus(2)",
    "  model <- keras_model_sequential(input_shape = ncol(x)) |> layer_dense(1)",
    "  parallel <- multi_gpu_model(model, gpus = 2)", "  parallel |> compile(optimizer = 'sgd', loss = 'mse')",
    "  parallel |> fit(x, y, epochs = 2, verbose = 0)", "}"
  ), file.path(folder, "R", "train.R"))
  dir.create(file.path(folder, "man"))
  writeLines(
    c(
      "\\name{train}\\alias{train}\\title{Train}\\description{Trains.}\\usage{train(x, y)}",
      "\\arguments{\\item{x,y}{Data.}}"
    ),
    file.path(folder, "man", "train.Rd")
  )
  dir.create(file.path(folder, "tests"))
  writeLines(
    "stopifnot(length(toy::train(as.data.frame(matrix(0, 8, 2)), rep(1, 8))$metrics$loss) == 2)",
    file.path(folder, "tests", "train.R")
  )
  env <- c("_R_CHECK_FORCE_SUGGESTS_=false", paste0("R_LIBS=", paste(.libPaths(), collapse = ":")))
  printed <- suppressWarnings(system2(
    file.path(R.home("bin"), "R"), c("CMD", "check", "--no-manual", "-o", shQuote(dirname(folder)), shQuote(folder)),
    stdout = TRUE, stderr = TRUE, env = env
  ))
  # but for the note that its folder does not come from R CMD build
  found <- grep("^(\\* .*| *)(NOTE|WARNING|ERROR)$", printed, value = TRUE)
  expect_identical(found, "* checking DESCRIPTION meta-information ... NOTE", info = paste(printed, collapse = "\n"))
})
