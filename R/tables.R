# A report of Python as a data frame that prints as in Python.
as_table <- function(report) {
  structure(
    as.data.frame(lapply(report$columns, as_column)),
    class = c("multigpu_table", "data.frame"),
    lines = strsplit(report$text, "\n")[[1]]
  )
}

as_column <- function(values) {
  if (length(values) == 0) logical() else unlist(lapply(values, function(value) value %||% NA))
}

#' @export
print.multigpu_table <- function(x, ...) {
  if (is.null(attr(x, "lines"))) { # a part of a table
    return(NextMethod())
  }
  cat(attr(x, "lines"), sep = "\n")
  invisible(x)
}

#' @export
`[.multigpu_table` <- function(x, ...) {
  attr(x, "lines") <- NULL
  class(x) <- "data.frame"
  x[...]
}
