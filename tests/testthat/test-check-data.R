skip_on_cran()

test_that("missing values are errors, in numbers as in factors and texts, and NaN is not missing", {
  expect_snapshot({
    writeLines(error_text(as_arrays(c(1, NA))))
    writeLines(error_text(as_arrays(c(1L, NA))))
    writeLines(error_text(as_arrays(matrix(c(1, NaN, NA, 1), 2))))
    writeLines(error_text(as_arrays(matrix(c(TRUE, FALSE, NA, TRUE), 2))))
    writeLines(error_text(as_arrays(factor(c("a", NA)))))
    writeLines(error_text(as_arrays(c("a", NA))))
    writeLines(error_text(as_arrays(data.frame(a = c(1, 2), age = c(3, NA)))))
  })
  expect_identical(as.numeric(reticulate::py_to_r(as_arrays(c(1, NaN)))), c(1, NaN))
})

test_that("what has no values for Python, or others than meant, is refused by column, with what to pass", {
  day <- as.Date("2020-01-01") + 0:1
  expect_snapshot({
    writeLines(error_text(as_arrays(data.frame(a = 1:2, day = day))))
    writeLines(error_text(as_arrays(data.frame(time = as.POSIXct(day)))))
    writeLines(error_text(as_arrays(as.POSIXlt(day))))
    writeLines(error_text(as_arrays(day - day[[1]])))
    writeLines(error_text(as_arrays(data.frame(kind = c("a", "b")))))
    writeLines(error_text(as_arrays(data.frame(a = I(list(1, 2))))))
    writeLines(error_text(as_arrays(c(1i, 2))))
    writeLines(error_text(as_arrays(new.env())))
    writeLines(error_text(as_arrays(y ~ x)))
  })
})

test_that("objects that are numbers are taken as numbers", {
  expect_identical(dim(reticulate::py_to_r(as_arrays(ts(matrix(1, 3, 2))))), c(3L, 2L))
  expect_identical(as.numeric(reticulate::py_to_r(as_arrays(table(c(1, 1, 2))))), c(2, 1))
  expect_identical(as.integer(reticulate::py_to_r(as_arrays(factor(c("b", "a"), ordered = TRUE)))), 1:0)
})
