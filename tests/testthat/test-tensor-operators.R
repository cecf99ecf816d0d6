a <- function() tf$constant(c(-1.5, 2, 4))
b <- function() tf$constant(c(1, 2, -3))
values <- function(tensor) as.numeric(tensor$numpy())

test_that("arithmetic is that of R", {
  x <- c(-1.5, 2, 4)
  y <- c(1, 2, -3)
  for (operator in c("+", "-", "*", "/", "^", "%%", "%/%")) {
    f <- get(operator)
    expect_equal(values(f(a(), b())), f(x, y), tolerance = 1e-6, info = operator)
    expect_equal(values(f(b(), 2)), f(y, 2), tolerance = 1e-6, info = operator)
    expect_equal(values(f(2, b())), f(2, y), tolerance = 1e-6, info = operator)
    expect_equal(values(f(a(), y)), f(x, y), tolerance = 1e-6, info = operator)
  }
  expect_equal(values(-a()), -x)
  expect_equal(values(+a()), x)
})

test_that("comparisons and logic are those of R", {
  x <- c(-1.5, 2, 4)
  y <- c(1, 2, -3)
  for (operator in c("==", "!=", "<", "<=", ">", ">=")) {
    f <- get(operator)
    expect_identical(as.logical(f(a(), b())$numpy()), f(x, y), info = operator)
  }
  expect_identical(as.logical(((a() > 0) & (b() > 0))$numpy()), x > 0 & y > 0)
  expect_identical(as.logical(((a() > 0) | (b() > 0))$numpy()), x > 0 | y > 0)
  expect_identical(as.logical((!(a() > 0))$numpy()), !(x > 0))
})

test_that("integers and floats can be combined, and weights are tensors", {
  expect_equal(values(tf$constant(1:3) - tf$constant(c(0.5, 0.5, 0.5))), c(0.5, 1.5, 2.5))
  expect_equal(values(keras$Variable(c(1, 2)) * 2), c(2, 4))
})

test_that("symbolic tensors of Keras have the same operators", {
  x <- keras$Input(list(2L))
  model <- keras_model(x, 2 * x - 1)
  expect_identical(predict(model, matrix(c(1, 2), 1)), matrix(c(1, 3), 1))
})

test_that("what R would repeat along rows, and TensorFlow along columns, is refused", {
  square <- tf$constant(matrix(c(1, 2, 3, 4), 2))
  expect_snapshot(writeLines(error_text(square * c(10, 100))))
  expect_snapshot(writeLines(error_text(square - a())))
  expect_identical(as.matrix((square * matrix(c(10, 100), 1))$numpy()), cbind(c(10, 20), c(300, 400)))
  expect_identical(as.matrix((square * 2)$numpy()), 2 * matrix(c(1, 2, 3, 4), 2))
})
