test_that("an error from Python has the message only", {
  expect_identical(clean_message("ValueError: two\nlines\n"), "two\nlines")
  expect_identical(clean_message("keras.src.Error: x\nRun `reticulate::py_last_error()` for details."), "x")
})

test_that("an interrupt ends training and leaves the template usable, with the weights trained so far", {
  data <- small_data()
  parallel <- parallel_model()
  untrained <- weights_of(parallel$template)
  interrupt_soon <- function(epoch, logs) {
    if (epoch == 3) system(sprintf("(sleep 0.5; kill -INT %d) &", Sys.getpid()))
  }
  ended <- tryCatch(
    fit(parallel, data$x, data$y, epochs = 1e6, callbacks = list(on_epoch_end = interrupt_soon)),
    interrupt = function(e) "interrupted"
  )
  expect_identical(ended, "interrupted")
  trained <- weights_of(parallel$template)
  expect_true(all(is.finite(trained)))
  expect_false(identical(trained, untrained))
  history <- fit(parallel, data$x, data$y, epochs = 1)
  expect_lt(history$metrics$loss, 5)
  expect_false(identical(weights_of(parallel$template), trained))
})
