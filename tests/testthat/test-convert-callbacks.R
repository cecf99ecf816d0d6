skip_on_cran()

test_that("R functions are called at their hooks, in order, with logs", {
  calls <- character()
  note <- function(name) {
    force(name)
    function(...) calls <<- c(calls, name)
  }
  names <- c(
    "on_train_begin", "on_epoch_begin", "on_train_batch_begin", "on_train_batch_end", "on_epoch_end", "on_train_end"
  )
  callbacks <- sapply(names, note, simplify = FALSE)
  data <- small_data(32)
  fit(shared_parallel_model(), data$x, data$y, epochs = 2, callbacks = callbacks)
  expect_identical(calls, c(names[1], rep(names[2:5], 2), names[6]))
})

test_that("a callback gets the epoch and the logs, and the template has the weights trained so far", {
  data <- small_data()
  parallel <- shared_parallel_model()
  seen <- list()
  weights <- list()
  history <- fit(parallel, data$x, data$y, epochs = 2, callbacks = list(on_epoch_end = function(epoch, logs) {
    seen[[length(seen) + 1]] <<- list(epoch, logs$loss)
    weights[[length(weights) + 1]] <<- weights_of(parallel$template)
  }))
  expect_equal(seen, list(list(0L, history$metrics$loss[[1]]), list(1L, history$metrics$loss[[2]])))
  expect_identical(weights[[2]], weights_of(parallel$template))
  expect_false(identical(weights[[1]], weights[[2]]))
})

test_that("functions may take fewer arguments, and the hook names of Keras 2 are accepted", {
  epochs <- integer()
  batches <- 0
  callbacks <- list(
    list(on_epoch_end = function(epoch) epochs <<- c(epochs, epoch)),
    list(on_batch_end = function() batches <<- batches + 1),
    keras$callbacks$TerminateOnNaN()
  )
  fit(shared_parallel_model(), small_data(32)$x, small_data(32)$y, epochs = 2, batch_size = 16, callbacks = callbacks)
  expect_identical(epochs, 0:1)
  expect_identical(batches, 4)
})

test_that("evaluate and predict have callbacks", {
  ended <- character()
  callbacks <- list(
    on_test_end = function(logs) ended <<- c(ended, "test"),
    on_predict_end = function(logs) ended <<- c(ended, "predict")
  )
  parallel <- shared_parallel_model()
  evaluate(parallel, small_data()$x, small_data()$y, callbacks = callbacks)
  predict(parallel, small_data()$x, callbacks = callbacks)
  expect_identical(ended, c("test", "predict"))
})

test_that("an error in a callback ends training with its message", {
  callbacks <- list(on_epoch_end = function(epoch, logs) stop("disk is full"))
  expect_error(fit(shared_parallel_model(), small_data()$x, small_data()$y, callbacks = callbacks), "^disk is full$")
})

test_that("an unknown hook is an error", {
  expect_snapshot(writeLines(error_text(as_callbacks(list(on_epoch = function(epoch, logs) NULL)))))
})

test_that("what is no callback is an error in R's words", {
  data <- small_data()
  trained <- function(callbacks) error_text(fit(shared_parallel_model(), data$x, data$y, callbacks = callbacks))
  expect_snapshot({
    writeLines(trained("early stopping"))
    writeLines(trained(list(3)))
    writeLines(trained(keras$callbacks$TerminateOnNaN))
    writeLines(trained(list(keras$callbacks$TerminateOnNaN)))
    writeLines(trained(function(epoch, logs) NULL))
  })
})

test_that("one callback of Keras needs no list", {
  fit(shared_parallel_model(), small_data()$x, small_data()$y, epochs = 1, callbacks = keras$callbacks$TerminateOnNaN())
  expect_identical(as_callbacks(NULL), list())
})

test_that("functions named by hooks may be beside callbacks of Keras", {
  called <- 0
  data <- small_data(16)
  callbacks <- list(keras$callbacks$TerminateOnNaN(), on_epoch_end = function(epoch, logs) called <<- called + 1)
  fit(shared_parallel_model(), data$x, data$y, epochs = 2, callbacks = callbacks)
  expect_identical(called, 2)
  trained <- function(callback) error_text(fit(shared_parallel_model(), data$x, data$y, callbacks = list(callback)))
  expect_match(trained(as_callbacks), "a function without a name.*If it makes a callback, call it")
})

test_that("a hook may have several functions, and lists of callbacks may be nested", {
  epochs <- c(first = 0, second = 0)
  first <- list(on_epoch_end = function() epochs[["first"]] <<- epochs[["first"]] + 1)
  second <- list(on_epoch_end = function() epochs[["second"]] <<- epochs[["second"]] + 1)
  data <- small_data(32)
  stops <- keras$callbacks$TerminateOnNaN()
  for (callbacks in list(c(first, second), list(list(first, stops), second))) {
    fit(shared_parallel_model(), data$x, data$y, epochs = 1, callbacks = callbacks)
  }
  expect_equal(epochs, c(first = 2, second = 2))
})
