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
