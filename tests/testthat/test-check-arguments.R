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
    writeLines(error_text(predict(shared_parallel_model(), data$x, steps = 0.5)))
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
  expect_identical(nrow(predict(model, data$x, batch_size = 16, steps = nrow(data$x) / 16)), 48L)
})

test_that("an argument that a function does not have is an error in R's words", {
  parallel <- shared_parallel_model()
  data <- small_data()
  expect_match(error_text(multi_gpu_model(parallel$template, gpux = 2)), "unused argument (gpux = 2)", fixed = TRUE)
  expect_snapshot({
    writeLines(error_text(fit(parallel, data$x, data$y, epoch_number = 3)))
    writeLines(error_text(evaluate(parallel, data$x, data$y, step_number = 3)))
    writeLines(error_text(predict(parallel, data$x, validation_split = 0.5)))
    writeLines(error_text(compile(parallel, "sgd", "mse", metric_names = "mae")))
    writeLines(error_text(summary(parallel, wide = TRUE)))
    writeLines(error_text(keras_model_sequential(4, input_shapes = 3)))
  })
})

test_that("missing values are errors where Python would take them for True, or for a number", {
  parallel <- parallel_model()
  data <- small_data()
  named <- list(
    cpu_merge = quote(estimate(small_model(), 2, cpu_merge = NA)),
    cpu_merge = quote(multi_gpu_model(small_model(), 2, NA)),
    run_eagerly = quote(compile(parallel, "sgd", "mse", run_eagerly = NA)),
    verbose = quote(measure(parallel, data$x, data$y, verbose = NA_integer_)),
    validation_batch_size = quote(fit(parallel, data$x, data$y, validation_batch_size = NA)),
    class_weight = quote(fit(parallel, data$x, data$y, class_weight = c("0" = NA_real_, "1" = 2)))
  )
  for (number in seq_along(named)) {
    expect_match(error_text(eval(named[[number]])), paste0("Expected .*`", names(named)[[number]], "`.* NA"))
  }
})

test_that("a missing number and several numbers are no count", {
  data <- small_data(32)
  for (size in list(NA_integer_, c(16L, 32L), integer())) {
    expect_error(fit(shared_parallel_model(), data$x, data$y, batch_size = size), "`batch_size` to be a whole number")
  }
})

test_that("numbers for arguments of a template's own stay as they are", {
  own <- reticulate::py_run_string("
import keras
class Own(keras.Sequential):
    def compile(self, *args, alpha=None, **kwargs):
        super().compile(*args, **kwargs)
        self.alpha = alpha
")$Own
  model <- own(list(keras$Input(list(4L)), keras$layers$Dense(1L)))
  compile(model, optimizer = "sgd", loss = "mse", alpha = 2)
  expect_type(model$alpha, "double")
})
