skip_on_cran()

batches_of <- function(data, size = 10, last = Inf) {
  at <- 0
  function() {
    if (at >= last) {
      return(NULL)
    }
    rows <- (at * size + seq_len(size) - 1) %% nrow(data$x) + 1
    at <<- at + 1
    list(data$x[rows, ], data$y[rows])
  }
}

test_that("a generator trains and validates as the arrays do, on four devices", {
  data <- small_data()
  parallel <- parallel_model()
  start <- lapply(parallel$template$get_weights(), as_arrays)
  history <- fit(
    parallel, batches_of(data),
    steps_per_epoch = 5, epochs = 3,
    validation_data = batches_of(data), validation_steps = 5
  )
  by_generator <- weights_of(parallel)
  parallel$template$set_weights(start)
  reference <- fit(
    parallel, data$x, data$y,
    batch_size = 10, epochs = 3, shuffle = FALSE,
    validation_data = list(data$x, data$y)
  )
  expect_equal(history$metrics$loss, reference$metrics$loss, tolerance = 1e-6) # float32
  expect_equal(history$metrics$val_loss, reference$metrics$val_loss, tolerance = 1e-6)
  expect_identical(by_generator, weights_of(parallel))
})

test_that("the verbs of Keras 2 accept generators", {
  data <- small_data()
  parallel <- shared_parallel_model()
  history <- fit_generator(parallel, batches_of(data), 5, epochs = 2, validation_data = list(data$x, data$y))
  expect_length(history$metrics$val_loss, 2)
  by_arrays <- evaluate(parallel, data$x, data$y)$loss
  expect_equal(evaluate_generator(parallel, batches_of(data), 5)$loss, by_arrays, tolerance = 1e-6) # float32
  inputs <- batches_of(data)
  expect_identical(
    predict_generator(parallel, function() inputs()[1], 5),
    predict(parallel, data$x, batch_size = 10) # slices of other sizes may round otherwise
  )
})

test_that("the classes of a generator are weighted as those of arrays", {
  model <- keras_model_sequential(4, layers = list(keras$layers$Dense(3L, activation = "softmax")))
  parallel <- multi_gpu_model(model, gpus = 3)
  compile(parallel, "sgd", "sparse_categorical_crossentropy")
  data <- list(x = matrix(runif(200), 50), y = sample(0:2, 50, replace = TRUE))
  weights <- list("0" = 1, "1" = 20, "2" = 0.5)
  start <- get_weights(parallel)
  history <- fit_generator(parallel, batches_of(data), 5, epochs = 2, class_weight = weights)
  set_weights(parallel, start)
  expected <- fit(parallel, data$x, data$y, batch_size = 10, epochs = 2, shuffle = FALSE, class_weight = weights)
  expect_equal(history$metrics$loss, expected$metrics$loss, tolerance = 1e-6) # float32
})

test_that("a generator for predictions may return the inputs alone: an array, a data frame or a sparse matrix", {
  data <- small_data(20)
  expected <- rbind(predict(shared_parallel_model(), data$x), predict(shared_parallel_model(), data$x))
  for (x in list(data$x, as.data.frame(data$x), Matrix::Matrix(data$x, sparse = TRUE))) {
    expect_equal(predict_generator(shared_parallel_model(), function() x, 2), expected, tolerance = 1e-6) # float32
  }
})

test_that("an iterator that reticulate makes of an R function trains as the function", {
  parallel <- parallel_model()
  start <- get_weights(parallel)
  train <- function(x) {
    set_weights(parallel, start)
    fit(parallel, x, steps_per_epoch = 3, epochs = 2)$metrics$loss
  }
  batches <- function() batches_of(small_data(), last = 6)
  iterator <- function(next_batch) reticulate::py_iterator(function() if (!is.null(each <- next_batch())) each)
  expect_identical(train(iterator(batches())), train(batches()))
})

test_that("a generator returns sample weights and is not called more often than needed", {
  data <- small_data(20)
  calls <- 0
  weighted <- function() {
    calls <<- calls + 1
    list(data$x, data$y, rep(0, 20))
  }
  history <- fit(shared_parallel_model(), weighted, steps_per_epoch = 2, epochs = 2)
  expect_identical(history$metrics$loss, c(0, 0))
  expect_identical(calls, 4)
})

test_that("Python generators and datasets are passed to Keras unchanged", {
  data <- small_data()
  dataset <- tf$data$Dataset$from_tensor_slices(reticulate::tuple(data$x, array(data$y)))$batch(10L)
  history <- fit_generator(shared_parallel_model(), dataset, steps_per_epoch = 5, epochs = 1)
  expect_length(history$metrics$loss, 1)
})

test_that("an error in a generator ends training with its message", {
  expect_error(fit(shared_parallel_model(), function() stop("no file"), steps_per_epoch = 2), "^no file$")
})

test_that("a generator without a number of steps is taken to its end", {
  data <- small_data()
  parallel <- shared_parallel_model()
  by_arrays <- evaluate(parallel, data$x, data$y)$loss
  inputs <- batches_of(data, last = 5)
  expect_warning(measured <- evaluate(parallel, batches_of(data, last = 5)), "ran out of data") # as Keras says it
  expect_equal(measured$loss, by_arrays, tolerance = 1e-6) # float32
  expect_warning(predicted <- predict(parallel, function() inputs()[1]), "ran out of data")
  expect_identical(dim(predicted), c(50L, 1L))
  expect_warning(history <- fit(parallel, batches_of(data, last = 5), epochs = 1), "ran out of data")
  expect_length(history$metrics$loss, 1)
})

test_that("a generator may name its parts, in any order", {
  data <- small_data()
  by_name <- function(next_batch) {
    function() stats::setNames(rev(next_batch()), c("y", "x"))
  }
  expected <- evaluate(shared_parallel_model(), batches_of(data), steps = 5)
  expect_identical(evaluate(shared_parallel_model(), by_name(batches_of(data)), steps = 5), expected)
})

test_that("a batch of another shape is an error of one line, without Python's files", {
  sizes <- c(4, 4, 3)
  next_batch <- function() {
    size <- sizes[[1]]
    sizes <<- c(sizes[-1], 3)
    list(matrix(0, 10, size), numeric(10))
  }
  expect_match(error_text(fit(shared_parallel_model(), next_batch, steps_per_epoch = 3)), "\\(10, 3\\).*expected[.]$")
})

test_that("a generator without batches, or of something else, is an error", {
  data <- small_data()
  expect_snapshot({
    writeLines(error_text(fit(shared_parallel_model(), batches_of(data, last = 0), steps_per_epoch = 2)))
    writeLines(error_text(fit(shared_parallel_model(), function() data$x, steps_per_epoch = 2)))
  })
})

test_that("a generator may return no weights as NULL", {
  data <- small_data(32)
  batches <- function() list(data$x, data$y, NULL)
  expect_length(fit(shared_parallel_model(), batches, steps_per_epoch = 2, epochs = 1)$metrics$loss, 1)
})

test_that("a PyDataset is shuffled, as by default in Keras 2", {
  counts <- reticulate::py_run_string("
import keras, numpy as np
class Counts(keras.utils.PyDataset):
    seen = []
    def __len__(self):
        return 9
    def __getitem__(self, number):
        self.seen.append(number)
        return np.ones((2, 4)), np.ones(2)
")$Counts()
  keras$utils$set_random_seed(1L)
  fit_generator(shared_parallel_model(), counts, steps_per_epoch = 9, epochs = 2)
  expect_false(identical(utils::tail(counts$seen, 9), 0:8))
})
