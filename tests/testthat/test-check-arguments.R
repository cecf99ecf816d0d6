skip_on_cran()

test_that("arguments that are none are errors in R's words, with an example", {
  data <- small_data()
  trained <- function(...) error_text(fit(shared_parallel_model(), data$x, data$y, ...))
  expect_snapshot({
    writeLines(trained(epochs = 1.5))
    writeLines(trained(epochs = "a"))
    writeLines(trained(epochs = c(1, 2)))
    writeLines(trained(batch_size = 0))
    writeLines(trained(steps_per_epoch = NA))
    writeLines(trained(initial_epoch = -1))
    writeLines(trained(validation_split = 1))
    writeLines(trained(validation_freq = c(1, 0)))
    writeLines(trained(shuffle = "x"))
    writeLines(trained(verbose = 3))
    writeLines(trained(verbose = NULL))
    writeLines(error_text(fit(shared_parallel_model(), mpg ~ ., data = mtcars)))
    writeLines(error_text(fit(shared_parallel_model())))
    writeLines(error_text(evaluate(shared_parallel_model(), data$x, data$y, batch_size = 1.5)))
    writeLines(error_text(predict(shared_parallel_model(), data$x, steps = 1.5)))
  })
})

test_that("such an error has a class and the function that was called", {
  refused <- tryCatch(fit(shared_parallel_model(), small_data()$x, epochs = 1.5), error = identity)
  expect_s3_class(refused, c("multigpu_error", "rlang_error"), exact = FALSE)
  expect_match(deparse1(conditionCall(refused)[[1]]), "^fit")
})

test_that("what Keras takes is taken", {
  data <- small_data()
  model <- compile(small_model(), "sgd", "mse")
  history <- fit(
    model, data$x, data$y,
    epochs = 3, initial_epoch = 1, validation_split = 0.1, shuffle = "batch", verbose = FALSE, validation_freq = c(2, 3)
  )
  expect_length(history$metrics$val_loss, 2)
})
