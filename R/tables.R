# A table of Python as a data frame that prints as Python prints it. `rows` have the columns as attributes.
as_table <- function(rows, columns, lines) {
  column <- function(name) unlist(lapply(rows, function(row) row[[name]] %||% NA))
  empty <- function(name) if (length(rows) == 0) logical() else column(name)
  structure(
    as.data.frame(sapply(columns, empty, simplify = FALSE)),
    class = c("multigpu_table", "data.frame"),
    lines = unlist(strsplit(lines, "\n"))
  )
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
