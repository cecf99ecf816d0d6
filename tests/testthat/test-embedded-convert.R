# Conversion of values, called from R. `tests/r/embedded/in_process/` has the tests with R inside Python.

skip_on_cran()

there_and_back <- function(x) {
  holder <- reticulate::import("types")$SimpleNamespace(x = as_python(x))
  as_r(reticulate::py_get_attr(holder, "x"))
}

test_that("values are the same after conversion to Python and back", {
  for (x in list(NULL, TRUE, 3L, 2.5, "text", list(), list(a = 1, b = list("x", NULL)), list(1, "a"))) {
    expect_identical(there_and_back(x), x)
  }
  expect_identical(there_and_back(c("a", "b")), c("a", "b"))
})

test_that("whole numbers that are too large for R's integers become doubles", {
  from_python <- function(code) as_r(reticulate::py_eval(code, convert = FALSE))
  expect_identical(from_python("2**31 - 1"), .Machine$integer.max)
  expect_identical(from_python("2**31"), 2^31)
  expect_identical(from_python("-2**31"), -2^31) # as an integer of R it would be NA
  expect_identical(from_python("[2**40, 1]"), c(2^40, 1))
  expect_identical(from_python("{'a': (True, 2**40)}"), list(a = list(TRUE, 2^40)))
})

test_that("arrays keep numbers, shape and type", {
  for (x in list(matrix(runif(6), 2), array(1:24, 2:4), array(1:3, 3), matrix(0, 0, 3), matrix(c(TRUE, FALSE), 1))) {
    expect_identical(there_and_back(x), x)
  }
  expect_identical(there_and_back(c(1.5, 2)), array(c(1.5, 2), 2))
})

test_that("a copied array can be modified in R, and its view does not change", {
  x <- there_and_back(matrix(1:4, 2))
  view <- as_python(x)
  x[1] <- 10L
  expect_identical(x[1], 10L)
  expect_identical(as.integer(as_r(view)), 1:4)
})

test_that("models are the same objects", {
  model <- small_model()
  same <- reticulate::import_builtins()$id
  expect_identical(same(as_python(list(model))[0]), same(model))
  expect_identical(same(as_r(as_python(list(model)))[[1]]), same(model))
})

test_that("a function is the same after conversion and back, and is released when Python releases it", {
  f <- function(x) x + 1
  handle <- as_python(f)
  expect_identical(as_r(handle), f)
  number <- handle$number
  rm(handle)
  for (i in 1:3) gc()
  reticulate::import("gc")$collect()
  forget(core()$numbers_let_go())
  expect_null(kept[[as.character(number)]])
})

test_that("a history keeps its numbers", {
  data <- small_data()
  model <- compile(small_model(), "sgd", "mse")
  history <- fit(model, data$x, data$y, epochs = 3, initial_epoch = 1, validation_split = 0.2)
  expect_equal(there_and_back(history), history)
  expect_s3_class(there_and_back(history), "multigpu_history")
  of_keras3 <- structure(list(params = list(), metrics = list(loss = c(2, 1))), class = "keras_training_history")
  expect_identical(unlist(as_python(of_keras3)$epoch), 0:1)
})
