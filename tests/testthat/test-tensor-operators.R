skip_on_cran()

loaded$depth <- 1 # as in a loss
constant <- function(...) as_tensor(tf$constant(...))
a <- function() constant(c(-1.5, 2, 4))
b <- function() constant(c(1, 2, -3))
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
  expect_equal(values(constant(1:3) - constant(c(0.5, 0.5, 0.5))), c(0.5, 1.5, 2.5))
  expect_equal(values(keras$Variable(c(1, 2)) * 2), c(2, 4))
})

test_that("what comes from outside of a loss may be an operand", {
  loaded$depth <- 0
  weight <- keras$Variable(c(1, 2))
  loaded$depth <- 1
  f <- with_tensor_functions(function(x) list(x * weight, weight * x, -weight, weight^2, 2 * 3, -2))
  expect_equal(lapply(f(constant(c(3, 4)))[1:4], values), list(c(3, 8), c(3, 8), c(-1, -2), c(1, 4)))
})

test_that("tensors outside of losses and metrics have no methods of this package", {
  loaded$depth <- 0
  expect_false(inherits(tf$constant(1), "multigpu_tensor"))
  methods <- getNamespaceInfo("multigpu", "S3methods")[, 2]
  expect_setequal(grep("^(tensorflow|keras)", methods, value = TRUE), "keras.src.trainers.trainer.Trainer")
  loaded$depth <- 1
  expect_true(inherits(tf$constant(1), "multigpu_tensor"))
})

test_that("what R would repeat along rows, and TensorFlow along columns, is refused", {
  square <- constant(matrix(c(1, 2, 3, 4), 2))
  expect_snapshot(writeLines(error_text(square * c(10, 100))))
  expect_snapshot(writeLines(error_text(square - a())))
  expect_identical(as.matrix((square * matrix(c(10, 100), 1))$numpy()), cbind(c(10, 20), c(300, 400)))
  expect_identical(as.matrix((square * 2)$numpy()), 2 * matrix(c(1, 2, 3, 4), 2))
})

loaded$depth <- 0
