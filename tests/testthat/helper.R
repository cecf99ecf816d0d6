# The few tests that `make quick` runs, with MULTIGPU_QUICK set: it leaves out all others.
quick_test_that <- testthat::test_that
if (nzchar(Sys.getenv("MULTIGPU_QUICK"))) {
  test_that <- function(desc, code) invisible()
}

# The example that `make test-docs` runs, with MULTIGPU_PAGES set: `make test` leaves it out.
pages_test_that <- if (nzchar(Sys.getenv("MULTIGPU_PAGES"))) testthat::test_that else function(desc, code) invisible()

small_model <- function(seed = 0L) {
  keras$utils$set_random_seed(seed)
  keras_model_sequential(list(
    keras$Input(list(4L)),
    keras$layers$Dense(8L, activation = "relu", name = "hidden"),
    keras$layers$Dense(1L, name = "out")
  ), name = "small")
}

small_data <- function(rows = 50) {
  set.seed(1)
  x <- matrix(rnorm(rows * 4), rows)
  list(x = x, y = x[, 1] - 2 * x[, 2])
}

parallel_model <- function(...) {
  model <- multi_gpu_model(small_model(), gpus = 4)
  compile(model, "sgd", "mse", ...)
}

weights_of <- function(model) {
  unlist(model$get_weights())
}

# The text of an error, for snapshots that are the same with every version of testthat.
error_text <- function(expr) {
  tryCatch(
    {
      force(expr)
      "no error"
    },
    error = conditionMessage
  )
}

# What R prints when it runs these lines in a process of its own, in which only the packages installed here are known.
run_in_new_r <- function(lines, lib = NULL, env = character()) {
  file <- tempfile(fileext = ".R")
  writeLines(lines, file)
  libs <- paste(c(lib, .libPaths()), collapse = .Platform$path.sep)
  command <- file.path(R.home("bin"), "Rscript")
  system2(command, shQuote(file), stdout = TRUE, stderr = TRUE, env = c(paste0("R_LIBS=", libs), "TESTTHAT=false", env))
}
