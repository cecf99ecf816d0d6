# Parts of a tensor by R's indices, which count from 1: `y_pred[, 1]`.

#' @export
`[.multigpu_tensor` <- function(x, ..., drop = TRUE) { # nolint: object_name_linter.
  if (as_in_keras3("[", x)) {
    call <- sys.call()
    frame <- parent.frame()
    return(with_other_methods(x, function(x) eval(replace(call, 1:2, list(as.name("["), x)), frame)))
  }
  here <- environment()
  is_all <- vapply(paste0("..", seq_len(...length())), function(dot) eval(call("missing", as.name(dot)), here), NA)
  if (all(is_all)) {
    return(x)
  }
  extents <- extents_of(x)
  if (...length() != length(extents)) {
    refuse_index(paste0(...length(), " for ", length(extents), " dimensions"), "one for each dimension, as in `x[, 1]`")
  }
  for (axis in rev(seq_along(extents))) { # from the last one, since dimensions are dropped
    if (!is_all[[axis]]) {
      x <- take(x, positions(...elt(axis), extents[[axis]]), axis, drop)
    }
  }
  x
}

#' @export
`[[.multigpu_tensor` <- function(x, i, ...) { # nolint: object_name_linter.
  if (is.character(i)) {
    return(NextMethod()) # an attribute
  }
  if (as_in_keras3("[[", x)) {
    return(with_other_methods(x, function(x) x[[i, ...]]))
  }
  if (...length() + 1 != length(extents_of(x)) || length(i) != 1 || any(lengths(list(...)) != 1)) {
    refuse_index("`x[[i]]` for more or less than one element", "`x[i, j]`, with an index for each dimension")
  }
  x[i, ...]
}

#' @export
`[<-.multigpu_tensor` <- function(x, ..., value) { # nolint: object_name_linter.
  refuse_function("[<-", "a tensor, whose values cannot be changed", "`ifelse(test, yes, no)` or `cbind()`")
}

#' @export
is.na.multigpu_tensor <- function(x) { # nolint: object_name_linter.
  keras$ops$isnan(x)
}

# The number of elements in each dimension, NA if it is not known yet.
extents_of <- function(x) {
  vapply(shape_of(x), function(extent) extent %||% NA_integer_, 0L)
}

is_shape_known <- function(x) !is.na(rank_of(x)) && !anyNA(extents_of(x))

take <- function(x, positions, axis, drop) {
  at <- as.integer(positions - 1)
  keras$ops$take(x, if (drop && length(at) == 1) at else as.list(at), axis = axis - 1L)
}

# Positions, counted from 1, of an index: positive or negative whole numbers, or logical values.
positions <- function(index, extent) {
  check_index(index)
  from_end <- is.logical(index) || any(index < 0)
  if (from_end && is.na(extent)) {
    refuse_index(
      paste(deparse1(index), "for a dimension whose length is not known before the step runs"), "positive numbers"
    )
  }
  found <- if (from_end) seq_len(extent)[index] else index[index > 0]
  if (anyNA(found) || isTRUE(any(found > extent))) {
    raise("subscript out of bounds")
  }
  found
}

check_index <- function(index) {
  if (is_python_object(index)) {
    refuse_index("a tensor", "`keras$ops$take(x, index, axis)`, which counts from 0, or `tf$boolean_mask(x, mask)`")
  }
  is_whole <- is.numeric(index) && all(index == trunc(index))
  if (!is.logical(index) && !isTRUE(is_whole) || anyNA(index)) {
    refuse_index(deparse1(index), "whole numbers")
  }
}

refuse_index <- function(what, instead) {
  refuse("indices for a tensor", what, c("Use ", instead, "."))
}
