skip_on_cran()

dense <- local({
  set.seed(1)
  matrix(rnorm(200), 50) * rbinom(200, 1, 0.4)
})
y <- rowSums(dense)
sparse <- sapply(c("CsparseMatrix", "TsparseMatrix", "RsparseMatrix"), function(kind) {
  methods::as(Matrix::Matrix(dense, sparse = TRUE), kind)
})

test_that("sparse matrices train and predict as dense ones, in each of their forms", {
  parallel <- parallel_model()
  start <- get_weights(parallel)
  train <- function(x) {
    set_weights(parallel, start)
    keras$utils$set_random_seed(5L)
    history <- fit(parallel, x, y, epochs = 2, batch_size = 8, validation_split = 0.2)
    list(history$metrics, weights_of(parallel), evaluate(parallel, x, y), predict(parallel, x))
  }
  expected <- train(dense)
  expect_identical(unname(vapply(sparse, class, "")), c("dgCMatrix", "dgTMatrix", "dgRMatrix"))
  for (x in sparse) expect_equal(train(x), expected, tolerance = 1e-6) # float32
})

test_that("so do they as one batch, from a generator, and as data for validation", {
  parallel <- parallel_model()
  start <- get_weights(parallel)
  train <- function(x) {
    set_weights(parallel, start)
    loss <- c(train_on_batch(parallel, x, y), test_on_batch(parallel, x, y))
    history <- fit(parallel, function() list(x, y), steps_per_epoch = 2, epochs = 1, validation_data = list(x, y))
    list(loss, history$metrics, predict_on_batch(parallel, x), weights_of(parallel))
  }
  expected <- train(dense)
  for (x in sparse) expect_equal(train(x), expected, tolerance = 1e-6) # float32
})

test_that("so do they as targets, in arrays, batches and data for validation", {
  parallel <- parallel_model()
  start <- get_weights(parallel)
  train <- function(y) {
    set_weights(parallel, start)
    loss <- c(train_on_batch(parallel, dense, y), test_on_batch(parallel, dense, y))
    history <- fit(parallel, dense, y, epochs = 2, batch_size = 10, shuffle = FALSE, validation_data = list(dense, y))
    list(loss, history$metrics, evaluate(parallel, dense, y), weights_of(parallel))
  }
  expect_identical(train(Matrix::Matrix(y, 50, sparse = TRUE)), train(matrix(y)))
})

test_that("other matrices of the package are numbers too, and entries that are there twice are added", {
  parallel <- shared_parallel_model()
  twice <- Matrix::sparseMatrix(c(1, 1, 3), c(2, 2, 1), x = c(1, 2, 5), dims = c(20, 4), repr = "T")
  matrices <- list(
    twice, Matrix::Matrix(dense), sparse[[1]] != 0, methods::as(sparse[[1]], "nMatrix"), Matrix::Diagonal(4),
    Matrix::Matrix(crossprod(dense), sparse = TRUE)
  )
  for (x in matrices) expect_identical(predict(parallel, x), predict(parallel, 1 * as.matrix(x)))
})

test_that("a missing value is found by row and column", {
  x <- sparse[[1]]
  x[2, 3] <- NA
  expect_match(error_text(predict(shared_parallel_model(), x)), "NA in row 2, column 3", fixed = TRUE)
  expect_match(error_text(train_on_batch(shared_parallel_model(), x, y)), "NA in row 2, column 3", fixed = TRUE)
})
