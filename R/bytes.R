# Numbers of bytes, which print with a unit. Results of calculations with them are plain numbers.

#' @export
format.multigpu_bytes <- function(x, ...) {
  bytes <- as.numeric(unclass(x))
  power <- pmin(floor(log10(pmax(bytes, 1)) / 3), 4)
  numbers <- vapply(signif(bytes / 1000^power, 3), format, "")
  ifelse(is.na(bytes), NA_character_, paste(numbers, c("B", "kB", "MB", "GB", "TB")[power + 1]))
}

#' @export
print.multigpu_bytes <- function(x, ...) {
  print(format(x), quote = FALSE)
  invisible(x)
}

#' @export
`[.multigpu_bytes` <- function(x, ...) {
  structure(NextMethod(), class = "multigpu_bytes")
}

#' @export
c.multigpu_bytes <- function(...) {
  structure(unlist(lapply(list(...), unclass)), class = "multigpu_bytes")
}

#' @export
Ops.multigpu_bytes <- function(e1, e2) unclass(NextMethod()) # nolint: object_name_linter. R's name.

#' @export
Math.multigpu_bytes <- function(x, ...) unclass(NextMethod()) # nolint: object_name_linter. R's name.

#' @export
Summary.multigpu_bytes <- function(..., na.rm = FALSE) { # nolint: object_name_linter. R's name.
  do.call(.Generic, c(lapply(list(...), unclass), na.rm = na.rm))
}

#' @export
mean.multigpu_bytes <- function(x, ...) mean(unclass(x), ...)

#' @export
as.data.frame.multigpu_bytes <- function(x, ...) { # nolint: object_name_linter. R's name.
  as.data.frame.vector(x, ...)
}

#' @exportS3Method pillar::type_sum
type_sum.multigpu_bytes <- function(x) "bytes" # nolint: object_name_linter. A method of a generic of pillar.
