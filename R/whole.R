# A whole number as an integer. Anything else stays as it is, for Python to take or to refuse.
as_whole <- function(x) {
  is_whole <- is.numeric(x) && length(x) == 1 && is.finite(x) && x == trunc(x) && abs(x) <= .Machine$integer.max
  if (is_whole) as.integer(x) else x
}

`%||%` <- function(x, y) if (is.null(x)) y else x
