skip_on_cran()

loaded$depth <- 1 # as in a loss
constant <- function(...) as_tensor(tf$constant(...))
values <- function(tensor) {
  array <- tensor$numpy()
  if (length(dim(array)) == 1) as.numeric(array) else array
}
table <- rbind(c(-1.5, 2, 4), c(1, -2, 3))
tensor <- function() constant(table)
cube <- array(as.numeric(1:24), c(2, 3, 4))

test_that("indices are those of R", {
  x <- tensor()
  expect_equal(values(x[, 1]), table[, 1])
  expect_equal(values(x[2, ]), table[2, ])
  expect_equal(values(x[2, 3]), table[2, 3])
  expect_equal(values(x[, 2:3]), table[, 2:3])
  expect_equal(values(x[, c(3, 1)]), table[, c(3, 1)])
  expect_equal(values(x[, -1]), table[, -1])
  expect_equal(values(x[, c(TRUE, FALSE, TRUE)]), table[, c(TRUE, FALSE, TRUE)])
  expect_equal(values(x[, 1, drop = FALSE]), table[, 1, drop = FALSE])
  expect_equal(values(x[]), table)
  expect_equal(values(constant(c(5, 6, 7))[2:3]), c(6, 7))
  expect_equal(values(constant(cube)[2, , 4]), cube[2, , 4])
  expect_equal(values(lapply(1:3, function(i) x[, i])[[3]]), table[, 3])
})

test_that("one element is that of R", {
  expect_equal(values(constant(c(5, 6, 7))[[2]]), 6)
  expect_equal(values(tensor()[[2, 3]]), table[[2, 3]])
  expect_equal(values(constant(cube)[[2, 1, 4]]), cube[[2, 1, 4]])
  expect_equal(tensor()[["ndim"]], 2)
  expect_equal(values(is.na(constant(c(1, NaN)))), c(0, 1))
})

test_that("what R would refuse, or is not known, is refused", {
  expect_snapshot({
    writeLines(error_text(tensor()[[2]]))
    writeLines(error_text(tensor()[[1:2, 1]]))
    writeLines(error_text(tensor()[3]))
    writeLines(error_text(tensor()[, 4]))
    writeLines(error_text(tensor()[, 1.5]))
    writeLines(error_text(tensor()[, "a"]))
    writeLines(error_text(tensor()[tensor() > 0, 1]))
  })
})

test_that("of a dimension whose length is not known yet, positive numbers are taken", {
  x <- tf$convert_to_tensor(table)
  spec <- list(tf$TensorSpec(list(NULL, 3L), tf$float32))
  traced <- function(f) tf[["function"]](function(x) for_python(f(x)), input_signature = spec)
  x <- tf$cast(x, tf$float32)
  expect_equal(values(traced(function(x) x[2:1, -1])(x)), table[2:1, -1])
  expect_error(traced(function(x) x[-1, ])(x), "-1 for a dimension whose length is not known before the step runs")
})

loaded$depth <- 0
