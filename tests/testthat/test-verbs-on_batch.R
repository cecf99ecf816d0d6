skip_on_cran()

test_that("one step on one batch trains, tests and predicts", {
  data <- small_data(8)
  parallel <- parallel_model()
  before <- test_on_batch(parallel, data$x, data$y)
  expect_equal(train_on_batch(parallel, data$x, data$y), before, tolerance = 1e-6) # float32
  expect_lt(test_on_batch(parallel, data$x, data$y), before)
  expect_identical(predict_on_batch(parallel, data$x), predict(parallel, data$x))
  expect_identical(predict_proba(parallel, data$x), predict(parallel, data$x))
})

test_that("a model without targets trains on losses that its layers add", {
  model <- keras_model_sequential(4, layers = list(keras$layers$Dense(2L, activity_regularizer = "l2")))
  parallel <- compile(multi_gpu_model(model, 2), "sgd")
  data <- small_data(8)
  expect_equal(test_on_batch(parallel, data$x), train_on_batch(parallel, data$x), tolerance = 1e-6)
})
