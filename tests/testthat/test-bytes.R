skip_on_cran()

bytes <- function(...) structure(c(...), class = "multigpu_bytes")

test_that("bytes print with a unit, and what is computed from them are numbers", {
  x <- bytes(0, 999, 1.5e3, 123456789, 2e9, 3e14, NA)
  expect_identical(format(x), c("0 B", "999 B", "1.5 kB", "123 MB", "2 GB", "300 TB", NA))
  expect_identical(format(c(x[2], bytes(5L))), c("999 B", "5 B"))
  computed <- list(x[3] / 1e3, x[3] > 1, sum(x[2:3]), mean(x[2:3]), round(x[3]))
  expect_identical(computed, list(1.5, TRUE, 2499, 1249.5, 1500))
})

test_that("a table prints what it contains, however it was changed", {
  table <- data.frame(device = c("GPU:0", "GPU:1"))
  table$weights <- bytes(2e6, 3e6)
  printed <- function(table) capture.output(print(table))
  expect_match(printed(table), "2 MB", all = FALSE, fixed = TRUE)
  table$weights <- table$weights * 2
  expect_match(printed(table), "4e\\+06|4000000", all = FALSE)
  renamed <- stats::setNames(table, c("where", "size"))
  expect_match(printed(renamed), "where +size", all = FALSE)
  changed <- within(data.frame(a = 1:2, b = bytes(1e3, 2e3)), b <- b + 1)
  expect_identical(changed$b, c(1001, 2001))
  sliced <- data.frame(b = bytes(1e3, 2e3))[2, , drop = FALSE]
  expect_identical(printed(sliced), c("     b", "2 2 kB"))
  expect_match(printed(rbind(table, table)), "GPU:1", all = FALSE)
})

test_that("tibbles print them in the same way", {
  expect_identical(unname(pillar::type_sum(bytes(1))), "bytes")
  expect_match(capture.output(print(pillar::pillar(bytes(2e6)))), "2 MB", all = FALSE, fixed = TRUE)
})
