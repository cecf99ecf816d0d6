skip_on_cran()

test_that("temporary files of Python are deleted with those of R", {
  expect_identical(reticulate::import("tempfile")$gettempdir(), tempdir())
})

test_that("an installation without the Python package is reported", {
  expect_snapshot(writeLines(error_text(python_folder(tempfile()))))
  expect_true(file.exists(file.path(python_folder(), "multigpu", "base", "version.py")))
})

# All calls in an expression, and in those that it holds.
calls_in <- function(expr) {
  if (!is.recursive(expr)) {
    return(list())
  }
  parts <- Filter(function(part) !identical(part, substitute()), as.list(expr)) # an argument may be missing
  c(if (is.call(expr)) list(expr), unlist(lapply(unname(parts), calls_in)))
}

calls_of_package <- function() {
  functions <- Filter(is.function, as.list(asNamespace("multigpu"), all.names = TRUE))
  unlist(lapply(unname(functions), function(f) calls_in(c(as.list(formals(f)), body(f)))))
}

test_that("R calls one Python module of the package, every name in its list but no other, and what starts it", {
  calls <- calls_of_package()
  strings <- Filter(is.character, unlist(lapply(calls, as.list)))
  expect_setequal(grep("^multigpu\\.", strings, value = TRUE), c("multigpu.r.interface", "multigpu.r.start"))

  around_core <- Filter(function(call) list(quote(core())) %in% as.list(call), calls)
  accesses <- Filter(function(call) identical(call[[1]], quote(`$`)), around_core)
  others <- setdiff(lapply(around_core, `[[`, 1), list(quote(`$`)))
  expect_setequal(vapply(others, as.character, ""), c("{", "if", "[[")) # which load it, or take what is named
  before_start <- Filter(function(call) identical(call[[1]], quote(core_before_start)), calls)
  names <- unique(c(
    vapply(accesses, function(call) as.character(call[[3]]), ""),
    vapply(before_start, `[[`, "", 2)
  ))
  expect_setequal(names, unlist(core()$`__all__`))
  for (name in names) expect_true(reticulate::py_has_attr(core(), name), info = name)
})

test_that("R without embedding needs no rpy2", {
  core()
  expect_false("rpy2" %in% names(reticulate::import("sys")$modules))
})

test_that("?multigpu names Python's functions in place of those of the old package, and they are there", {
  page <- paste(capture.output(print(tools::Rd_db("multigpu")[["multigpu-package.Rd"]])), collapse = "\n")
  section <- sub("\\\\section\\{", "", regmatches(page, regexpr("Functions of the old keras package(.|\n)*", page)))
  names <- unique(unlist(regmatches(section, gregexpr("keras(\\$\\w+)+", section))))
  expect_gt(length(names), 6)
  for (name in names) expect_true(is_python_object(eval(parse(text = name))), info = name)
})
