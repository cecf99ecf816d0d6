# Beside the real keras3: `make test-keras3 KERAS3_LIB=FOLDER`, where FOLDER is an R library that has it. Each script
# runs in a process of its own, since TensorFlow starts once.

orders <- list(before = c("library(keras3)", "library(multigpu)"), after = c("library(multigpu)", "library(keras3)"))
devices <- "simulate_gpus(2)"
states <- list(
  alone = c("library(multigpu)", devices), before = c(orders$before, devices), after = c(orders$after, devices),
  loaded = c("library(multigpu)", devices, "invisible(keras3::to_categorical(0, 2))")
)

run <- function(lines, env = character()) {
  file <- tempfile(fileext = ".R")
  writeLines(lines, file)
  printed <- suppressWarnings(
    system2(file.path(R.home("bin"), "Rscript"), shQuote(file), stdout = TRUE, stderr = TRUE, env = env)
  )
  list(status = attr(printed, "status") %||% 0L, printed = printed)
}

`%||%` <- function(x, y) if (is.null(x)) y else x

expect_runs <- function(lines, ...) {
  ran <- run(lines, ...)
  testthat::expect_identical(ran$status, 0L, info = paste(utils::tail(ran$printed, 30), collapse = "\n"))
}
