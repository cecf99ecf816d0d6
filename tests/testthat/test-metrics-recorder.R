skip_on_cran()

mock_tfruns <- function() {
  shown <- new.env()
  shown$view_run_metrics <- function(table) {
    shown$tables <- list(table)
    "viewer"
  }
  shown$update_run_metrics <- function(viewer, table) shown$tables <- c(shown$tables, list(table))
  shown$is_run_active <- function() FALSE
  shown
}

test_that("the viewer gets the metrics after each epoch, with NA for future epochs", {
  tfruns <- mock_tfruns()
  viewer <- metrics_recorder(TRUE, 3, shared_parallel_model(), tfruns)
  data <- small_data()
  fit(shared_parallel_model(), data$x, data$y, epochs = 3, callbacks = viewer)
  expect_length(tfruns$tables, 3)
  expect_identical(colSums(is.na(tfruns$tables[[1]])), c(loss = 2))
  expect_identical(colSums(is.na(tfruns$tables[[3]])), c(loss = 0))
})

test_that("values are shown at their epochs, with `validation_freq` and `initial_epoch`", {
  tfruns <- mock_tfruns()
  data <- small_data()
  history <- fit(
    shared_parallel_model(), data$x, data$y,
    epochs = 5, initial_epoch = 1, validation_split = 0.5, validation_freq = 2,
    callbacks = metrics_recorder(TRUE, 5, shared_parallel_model(), tfruns)
  )
  last <- tfruns$tables[[length(tfruns$tables)]]
  expect_identical(last$loss, c(NA, history$metrics$loss))
  expect_identical(last$val_loss, replace(rep(NA, 5), c(2, 4), history$metrics$val_loss))
})

test_that("nothing is shown without tfruns, outside of RStudio, or if not requested", {
  expect_identical(metrics_recorder(TRUE, 3, NULL, NULL), list())
  expect_identical(metrics_recorder("auto", 3, NULL, mock_tfruns()), list())
  expect_identical(metrics_recorder(FALSE, 3, NULL, mock_tfruns()), list())
})

test_that("a run that is recorded has metrics, properties and the evaluation, whether shown or not", {
  data <- small_data()
  written <- list()
  tfruns <- list(
    is_run_active = function() TRUE, write_run_metadata = function(type, data) written[[type]] <<- data
  )
  parallel <- shared_parallel_model()
  history <- fit(
    parallel, data$x, data$y,
    epochs = 2, validation_split = 0.2, callbacks = metrics_recorder(FALSE, 2, parallel, tfruns)
  )
  expect_identical(written$metrics, as.data.frame(history$metrics))
  expect_identical(written$properties$epochs, 2)
  expect_identical(written$properties$loss_function, "mse")
  expect_equal(written$properties$learning_rate, 0.01, tolerance = 1e-6) # float32
  expect_match(written$properties$model, "hidden")
  numbers <- evaluate(parallel, data$x, data$y)
  record_evaluation(numbers, tfruns)
  expect_identical(written$evaluation, numbers)
})

test_that("in a job of RStudio, each epoch is a line", {
  chosen <- Sys.getenv("TESTTHAT")
  on.exit(Sys.setenv(TESTTHAT = chosen))
  Sys.setenv(TESTTHAT = "false")
  expect_identical(default_verbose(), "auto")
  Sys.setenv(RSTUDIOAPI_IPC_REQUESTS_FILE = "file")
  on.exit(Sys.unsetenv("RSTUDIOAPI_IPC_REQUESTS_FILE"), add = TRUE)
  expect_identical(default_verbose(), 2L)
})

test_that("RStudio's plot opens for several epochs that are printed", {
  recorder <- metrics_recorder
  environment(recorder) <- list2env(list(in_rstudio = function() TRUE), parent = environment(metrics_recorder))
  opened <- function(epochs, verbose) length(recorder("auto", epochs, NULL, mock_tfruns(), verbose))
  expect_identical(c(opened(3, 1), opened(3, "auto"), opened(1, 1), opened(3, 0)), c(1L, 1L, 0L, 0L))
})
