skip_on_cran()

# The bits of 64-bit integers, as the package bit64 keeps them: the smallest double above zero is 1.
integer64 <- function(...) structure(c(...) * 2^-1074, class = "integer64")
na_integer64 <- structure(-0, class = "integer64")

test_that("64-bit integers are those numbers, not their bits", {
  large <- integer64(0, 1, 2^31, 2^53 - 1)
  array <- as_arrays(large)
  expect_identical(reticulate::py_to_r(array$dtype$name), "int64")
  expect_identical(as.numeric(reticulate::py_to_r(array)), c(0, 1, 2^31, 2^53 - 1))
  table <- data.frame(a = 1:2)
  table$b <- integer64(3, 4)
  expect_identical(reticulate::py_to_r(as_arrays(table)), cbind(1:2, c(3, 4)))
  expect_match(error_text(as_arrays(structure(c(0, -0), class = "integer64"))), "NA in row 2")
  table$b[2] <- na_integer64
  expect_match(error_text(as_arrays(table)), "NA in row 2, column `b`", fixed = TRUE)
})

test_that("labels of 64 bits train as those of 32", {
  data <- small_data()
  evaluated <- function(y) evaluate(shared_parallel_model(), data$x, y)$loss
  expect_identical(evaluated(integer64(rep(0:1, 25))), evaluated(rep(0:1, 25)))
})

test_that("a matrix of texts trains a model for texts as TensorFlow's own strings do, on several devices", {
  letters <- matrix(rep(c("a", "b", "c", "b"), 10), 20)
  y <- seq(-1, 1, length.out = 20)
  model <- function() {
    keras$utils$set_random_seed(0L)
    words <- keras$Input(list(2L), dtype = "string")
    hot <- keras$layers$StringLookup(vocabulary = list("a", "b", "c"), output_mode = "multi_hot")(words)
    keras_model(words, keras$layers$Dense(1L)(hot))
  }
  plain <- compile(model(), "sgd", "mse")
  parallel <- compile(multi_gpu_model(model(), 2), "sgd", "mse")
  fit(plain, tf$constant(letters), y, epochs = 2, batch_size = 8, shuffle = FALSE)
  fit(parallel, letters, y, epochs = 1, batch_size = 8, shuffle = FALSE)
  batches <- lapply(list(1:8, 9:16, 17:20), function(rows) list(letters[rows, ], y[rows]))
  fit(parallel, function() {
    batch <- batches[[1]]
    batches <<- batches[-1]
    batch
  }, steps_per_epoch = 3, epochs = 1)
  expect_equal(weights_of(parallel), weights_of(plain), tolerance = 1e-6) # float32
  expect_equal(predict(parallel, letters), predict(plain, tf$constant(letters)), tolerance = 1e-6)
  expect_equal(predict_on_batch(parallel, letters), predict(parallel, letters), tolerance = 1e-6)
})

test_that("texts for a model of numbers, and as targets, are errors of R", {
  parallel <- shared_parallel_model()
  texts <- matrix("1", 50, 4)
  expect_snapshot({
    writeLines(error_text(fit(parallel, texts, small_data()$y)))
    writeLines(error_text(fit(parallel, small_data()$x, rep("a", 50))))
  })
  said <- "^Expected numbers, because the inputs of this model are numbers"
  for (verb in list(predict, predict_on_batch, evaluate)) expect_match(error_text(verb(parallel, texts)), said)
  for (verb in list(train_on_batch, test_on_batch)) expect_match(error_text(verb(parallel, texts, 1)), said)
})

test_that("validation data are a list of two or three, which may be named", {
  data <- small_data()
  parallel <- shared_parallel_model()
  as_r <- function(data) reticulate::py_to_r(as_validation_data(data, shared_parallel_model()))
  expect_identical(as_r(list(y = 1, x = 2)), as_r(list(2, 1)))
  expect_identical(as_r(list(sample_weight = 3, x = 1, y = 2)), as_r(list(1, 2, 3)))
  expect_snapshot({
    writeLines(error_text(fit(parallel, data$x, data$y, validation_data = data$x)))
    writeLines(error_text(fit(parallel, data$x, data$y, validation_data = list(data$x))))
    writeLines(error_text(fit(parallel, data$x, data$y, validation_data = as.data.frame(data))))
    writeLines(error_text(fit(parallel, data$x, data$y, validation_data = list(a = data$x, b = data$y))))
    writeLines(error_text(fit(parallel, data$x, data$y, validation_data = y ~ x)))
  })
})

test_that("a factor for validation has the class numbers of `y`, whatever its levels", {
  y <- factor(c("a", "b", "c", "b"))
  expect_identical(as_levels_of(droplevels(y[2:4]), y), y[2:4])
  expect_identical(as_levels_of(factor(c("c", "a"), c("c", "a")), y), factor(c("c", "a"), levels(y)))
  expect_identical(as_levels_of(list(y[2:3], 1), list(data.frame(y), 2)), list(y[2:3], 1))
  expect_identical(as_levels_of(1:3, y), 1:3)
  expect_identical(as_levels_of(droplevels(y[2:4]), NULL), droplevels(y[2:4]))
  expect_snapshot(writeLines(error_text(as_levels_of(factor(c("a", "d")), y))))
})

test_that("the columns of a data frame are the inputs of the same names, also if there are several", {
  keras$utils$set_random_seed(0L)
  a <- keras$Input(list(1L), name = "a")
  kind <- keras$Input(list(1L), name = "kind")
  mixed <- keras$layers$Dense(1L)(keras$layers$Concatenate()(list(a, kind)))
  parallel <- multi_gpu_model(keras_model(list(a = a, kind = kind), mixed), 2)
  table <- data.frame(kind = factor(rep(c("x", "y"), 5)), more = 10:1, a = seq(0, 1, length.out = 10))
  expected <- predict(parallel, list(a = table$a, kind = as.integer(table$kind) - 1L))
  expect_identical(predict(parallel, table), expected)
  loss <- evaluate(compile(parallel, "sgd", "mse"), table, table$a)$loss
  expect_equal(train_on_batch(parallel, table, table$a), loss, tolerance = 1e-6)
  history <- fit(parallel, table, table$a, validation_data = list(table, table$a), epochs = 1, batch_size = 10)
  expect_equal(history$metrics$val_loss, evaluate(parallel, table, table$a)$loss, tolerance = 1e-6)
  expect_match(error_text(predict(parallel, data.frame(kind = NA, a = 1))), "NA")
  expect_match(error_text(predict(parallel, data.frame(kind = "x", a = 1))), "Received: character data")
})

test_that("factors of several outputs take the levels of the output of their name", {
  y <- list(a = factor(c("u", "v")), b = factor(c("v", "u"), levels = c("v", "u")))
  recoded <- as_levels_of(list(b = factor(c("u", "v")), a = factor(c("v", "u"), levels = c("v", "u"))), y)
  expect_identical(lapply(recoded, levels), list(b = c("v", "u"), a = c("u", "v")))
})
