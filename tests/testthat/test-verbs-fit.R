test_that("an error from Python has its message, without a traceback", {
  data <- small_data()
  uncompiled <- multi_gpu_model(small_model(), 2)
  expect_snapshot({
    writeLines(error_text(fit(uncompiled, data$x, data$y)))
    writeLines(error_text(fit(shared_parallel_model(), data$x, data$y[1:3])))
  })
})

skip_on_cran()

test_that("training by the pipe lowers the loss, and evaluate and predict agree with it", {
  data <- small_data()
  uncompiled <- multi_gpu_model(small_model(), 4)
  parallel <- uncompiled %>% compile(optimizer = "sgd", loss = "mse", metrics = list("mae"))
  expect_identical(parallel, uncompiled)
  history <- parallel %>% fit(data$x, data$y, epochs = 5)
  expect_s3_class(history, "keras_training_history")
  expect_lt(history$metrics$loss[[5]], history$metrics$loss[[1]])
  measured <- evaluate(parallel, data$x, data$y)
  error <- predict(parallel, data$x)[, 1] - data$y
  expect_equal(measured$loss, mean(error^2), tolerance = 1e-5) # float32
  expect_equal(measured$mae, mean(abs(error)), tolerance = 1e-5)
})

test_that("ten epochs are the default, as they were", {
  expect_identical(eval(formals(fit_model)$epochs), 10)
})

test_that("vectors, factors, data frames and integers are data", {
  data <- small_data()
  model <- keras_model_sequential(layers = list(keras$Input(list(4L)), keras$layers$Dense(3L, activation = "softmax")))
  parallel <- compile(multi_gpu_model(model, 2), "sgd", "sparse_categorical_crossentropy")
  classes <- factor(rep(c("a", "b", "c"), length.out = 50))
  keras$utils$set_random_seed(0L)
  by_factor <- evaluate(parallel, as.data.frame(data$x), classes)
  expect_identical(by_factor, evaluate(parallel, data$x, as.integer(classes) - 1L))
  expect_identical(as_r_array(classes), array(rep(0:2, length.out = 50), 50L))
  compile(parallel, "sgd", "sparse_categorical_crossentropy") # the last trace was for targets of another rank
  expect_identical(by_factor, evaluate(parallel, data$x, data.frame(class = classes)))
})

test_that("sample weights and class weights are used", {
  data <- small_data(40)
  classes <- rep(0:1, 20)
  model <- keras_model_sequential(layers = list(keras$Input(list(4L)), keras$layers$Dense(1L, activation = "sigmoid")))
  parallel <- compile(multi_gpu_model(model, 4), keras$optimizers$SGD(0), "binary_crossentropy")
  loss <- function(...) fit(parallel, data$x, classes, epochs = 1, batch_size = 40, ...)$metrics$loss
  by_class <- loss(class_weight = list("0" = 1, "1" = 5))
  expect_equal(by_class, loss(sample_weight = ifelse(classes == 1, 5, 1)), tolerance = 1e-6) # float32
  expect_gt(by_class, loss())
})

test_that("several inputs and outputs may be named", {
  data <- small_data()
  a <- keras$Input(list(4L), name = "a")
  b <- keras$Input(list(2L), name = "b")
  joined <- keras$layers$Concatenate()(list(a, b))
  outputs <- list(keras$layers$Dense(1L, name = "c")(joined), keras$layers$Dense(2L, name = "d")(joined))
  model <- keras_model(list(a, b), outputs)
  parallel <- multi_gpu_model(model, 4)
  compile(parallel, "sgd", list("mse", "mae"), metrics = list(c = "mae", d = list("mse")), loss_weights = c(1, 0.5))
  x <- list(a = data$x, b = data$x[, 1:2])
  y <- list(data$y, data$x[, 3:4])
  history <- fit(parallel, x, y, epochs = 1, validation_data = list(x, y))
  expect_true(all(c("loss", "val_loss", "c_mae", "d_mse") %in% names(history$metrics)))
  expect_identical(lapply(predict(parallel, unname(x)), dim), list(c(50L, 1L), c(50L, 2L)))
})

test_that("training does not change R's data", {
  data <- small_data()
  copy <- data$x + 0
  fit(shared_parallel_model(), data$x, data$y, epochs = 1)
  gc()
  expect_identical(data$x, copy)
})

test_that("large arrays are sliced in Python, with the results of small ones", {
  data <- small_data()
  module <- reticulate::import("multigpu.engines.tensorflow.batches.fit_arguments")
  parallel <- parallel_model()
  start <- lapply(parallel$template$get_weights(), as_arrays)
  train <- function() {
    parallel$template$set_weights(start)
    keras$utils$set_random_seed(5L)
    history <- fit(parallel, data$x, data$y, epochs = 2, batch_size = 8, validation_split = 0.1)
    list(history$metrics, weights_of(parallel), predict(parallel, data$x), evaluate(parallel, data$x, data$y))
  }
  small <- train()
  large <- module$LARGE
  on.exit(reticulate::py_set_attr(module, "LARGE", large))
  reticulate::py_set_attr(module, "LARGE", 0L)
  expect_identical(train(), small)
})

test_that("the default verbosity depends on the environment", {
  expect_identical(default_verbose(), 0L) # under testthat
  withr_options <- options(knitr.in.progress = TRUE)
  on.exit(options(withr_options))
  expect_identical(default_verbose(), 2L)
})

test_that("options of the R interface of Keras 2 are read", {
  before <- options(keras.fit_verbose = 2, keras.view_metrics = FALSE)
  on.exit(options(before))
  data <- small_data()
  model <- compile(small_model(), "sgd", "mse")
  printed <- reticulate::py_capture_output
  expect_match(printed(fit(model, data$x, data$y, epochs = 1)), "[12]/[12] - ")
  expect_match(printed(fit_generator(model, function() list(data$x, data$y), 1)), "[12]/[12] - ")
  expect_identical(printed(fit(model, data$x, data$y, epochs = 1, verbose = 0)), "")
})

test_that("a dataset of TensorFlow is not shuffled, and nothing is said of it", {
  data <- small_data(16)
  batches <- tf$data$Dataset$from_tensor_slices(reticulate::tuple(data$x, data$y))$batch(8L)
  expect_no_warning(fit(shared_parallel_model(), batches, epochs = 1))
  expect_warning(fit(shared_parallel_model(), batches, epochs = 1, shuffle = TRUE), "will be ignored")
})

test_that("data without rows are refused by name, wherever they are passed", {
  data <- small_data()
  model <- small_model()
  none <- data$x[0, , drop = FALSE]
  verbs <- list(
    function(x) predict(model, x), function(x) fit(model, x, data$y[0]), function(x) evaluate(model, list(x), data$y[0])
  )
  for (verb in verbs) {
    expect_match(error_text(verb(none)), "Expected data of one row or more. Received: `x` without rows.", fixed = TRUE)
  }
  expect_match(error_text(predict(model, as.data.frame(none))), "without rows")
  inputs <- list(keras$Input(list(4L)), keras$Input(list(3L), optional = TRUE))
  expect_identical(dim(predict(keras$Model(inputs, keras$layers$Dense(2L)(inputs[[1]])), list(data$x, NULL)))[[2]], 2L)
})

test_that("the verbosity may be that of keras3", {
  old <- options(keras.verbose = 0)
  on.exit(options(old))
  expect_identical(default_verbose(), 0L)
})

test_that("a template's own method needs no callbacks", {
  own <- reticulate::py_run_string("
import keras
class OwnPredict(keras.Sequential):
    def predict(self, x, batch_size=None, verbose='auto', steps=None):
        return super().predict(x, batch_size=batch_size, verbose=verbose, steps=steps)
")$OwnPredict
  parallel <- multi_gpu_model(own(list(keras$Input(list(4L)), keras$layers$Dense(1L))), 2)
  expect_identical(dim(predict(parallel, small_data(32)$x)), c(32L, 1L))
})
