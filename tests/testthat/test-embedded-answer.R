skip_on_cran()

test_that("a request gets the reply, the error and the warnings", {
  conversion <- reticulate::import("multigpu.r.embedded.conversion")
  request <- reticulate::import("multigpu.r.embedded.request")$Request
  ask <- function(request) {
    pending <- reticulate::py_get_attr(conversion, "pending")
    pending$append(request)
    on.exit(pending$pop())
    answer_python()
    request$reply()
  }
  expect_identical(ask(request("1 + x", named = list(x = 2))), 3)
  expect_identical(ask(request("sum", is_call = TRUE, unnamed = list(1, 2))), 3)
  expect_error(ask(request("stop('no')")), "no")
  rm("x", envir = globalenv())
})
