# R's functions on tensors: they work as in R, or raise an error that names the replacement.

#' @export
Math.multigpu_tensor <- function(x, ...) { # nolint: object_name_linter.
  if (.Generic == "log") {
    return(log_of(x, ...))
  }
  if (.Generic == "round") {
    return(round_of(x, ...))
  }
  if (startsWith(.Generic, "cum") && !identical(rank_of(x), 1L)) {
    refuse_function(.Generic, "a tensor that is not a vector", "`keras$ops$cumsum(x, axis)`, which counts axes from 0")
  }
  if (!.Generic %in% names(math_functions) && as_in_keras3(.Generic, x)) {
    f <- get(.Generic, baseenv())
    return(with_other_methods(x, function(x) f(x, ...)))
  }
  if (!.Generic %in% names(math_functions)) {
    refuse_function(.Generic, "a tensor", "a function of `keras$ops` or `tf$math`")
  }
  keras$ops[[math_functions[[.Generic]]]](x)
}

math_functions <- c(
  abs = "abs", sign = "sign", sqrt = "sqrt", floor = "floor", ceiling = "ceil", trunc = "trunc", exp = "exp",
  expm1 = "expm1", log1p = "log1p", log2 = "log2", log10 = "log10", cos = "cos", sin = "sin", tan = "tan",
  acos = "arccos", asin = "arcsin", atan = "arctan", cosh = "cosh", sinh = "sinh", tanh = "tanh", acosh = "arccosh",
  asinh = "arcsinh", atanh = "arctanh", cumsum = "cumsum", cumprod = "cumprod"
)

log_of <- function(x, base = exp(1)) {
  if (missing(base)) keras$ops$log(x) else keras$ops$log(x) / log(base)
}

round_of <- function(x, digits = 0) keras$ops$round(x, as_integer(digits))

#' @export
Summary.multigpu_tensor <- function(x, ..., na.rm = FALSE) { # nolint: object_name_linter.
  refuse_na_rm(.Generic, na.rm)
  axes <- axes_in(...)
  if (length(axes) > 0) {
    if (as_in_keras3(.Generic, x)) {
      return(with_other_methods(x, function(x) get(.Generic, baseenv())(x, ...)))
    }
    return(do.call(keras$ops[[.Generic]], c(list(x), axes)))
  }
  if (.Generic == "range") {
    return(keras$ops$stack(list(min(x, ...), max(x, ...))))
  }
  reduced <- lapply(list(x, ...), reduced_by(.Generic))
  Reduce(keras$ops[[combined_by[[.Generic]]]], reduced)
}

# As in R, more arguments are more values: `max(x, 0)` is at least 0.
reduced_by <- function(name) {
  function(value) if (is_python_object(value)) keras$ops[[name]](value) else get(name, baseenv())(value)
}

combined_by <- c(
  sum = "add", prod = "multiply", max = "maximum", min = "minimum", all = "logical_and", any = "logical_or"
)

# `axis` and `keepdims` of Keras, which R's functions do not have, are known by their names.
axes_in <- function(...) {
  lapply(list(...)[names_in(...) %in% c("axis", "keepdims")], as_integer)
}

names_in <- function(...) names(list(...)) %||% character(...length())

# Several numbers, as R's `sapply()` or `c()` collects those that are tensors in a list.
stacked <- function(x) {
  is_collected <- is.list(x) && !is_python_object(x) && any(vapply(x, is_python_object, NA))
  if (is_collected) as_tensor(keras$ops$stack(unname(lapply(x, as_operand)))) else x
}

#' @export
mean.multigpu_tensor <- function(x, ..., na.rm = FALSE) { # nolint: object_name_linter.
  refuse_na_rm("mean", na.rm)
  axes <- axes_in(...)
  if (length(axes) > 0 && as_in_keras3("mean", x)) {
    return(with_other_methods(x, function(x) base::mean(x, ...)))
  }
  if (length(axes) < ...length()) {
    refuse_function("mean", "a tensor with more arguments than `axis` and `keepdims`", "these two, by name")
  }
  do.call(keras$ops$mean, c(list(keras$ops$convert_to_tensor(x)), axes))
}

#' @export
dim.multigpu_tensor <- function(x) { # nolint: object_name_linter.
  if (is_shape_known(x)) extents_of(x) else partly_known(x)
}

# While TensorFlow traces a step, the number of rows is a tensor; that of columns is a number, as loops need it.
partly_known <- function(x) {
  extents <- tf$shape(x)
  class(extents) <- c("multigpu_extents", class(extents))
  attr(extents, "known") <- extents_of(x)
  extents
}

#' @export
`[.multigpu_extents` <- function(x, i) { # nolint: object_name_linter.
  known <- attr(x, "known")
  if (anyNA(known[i])) take(x, positions(i, length(known)), 1L, TRUE) else known[i]
}

#' @export
`[[.multigpu_extents` <- function(x, i) if (is.character(i)) NextMethod() else x[i] # nolint: object_name_linter.

#' @export
length.multigpu_tensor <- function(x) { # nolint: object_name_linter.
  if (is_shape_known(x)) as.integer(prod(extents_of(x))) else tf$size(x)
}

#' @export
as.logical.multigpu_tensor <- function(x, ...) { # nolint: object_name_linter.
  refuse_function("as.logical", "a tensor", "`keras$ops$where(test, yes, no)` for a choice by element")
}

#' @export
is.numeric.multigpu_tensor <- function(x) { # nolint: object_name_linter.
  keras$ops$dtype(x) != "bool"
}

#' @export
is.matrix.multigpu_tensor <- function(x) { # nolint: object_name_linter.
  identical(rank_of(x), 2L)
}

#' @export
is.finite.multigpu_tensor <- function(x) { # nolint: object_name_linter.
  keras$ops$isfinite(x)
}

#' @export
is.infinite.multigpu_tensor <- function(x) { # nolint: object_name_linter.
  keras$ops$isinf(x)
}

#' @export
is.nan.multigpu_tensor <- function(x) { # nolint: object_name_linter.
  keras$ops$isnan(x)
}

#' @importFrom stats median
#' @export
median.multigpu_tensor <- function(x, na.rm = FALSE, ...) { # nolint: object_name_linter.
  refuse_na_rm("median", na.rm)
  keras$ops$median(x)
}

#' @export
t.multigpu_tensor <- function(x) {
  if (identical(rank_of(x), 1L)) keras$ops$expand_dims(x, 0L) else keras$ops$transpose(as_matrix(x, "t"))
}

#' @export
diff.multigpu_tensor <- function(x, lag = 1L, differences = 1L, ...) {
  if (lag != 1) {
    refuse_function("diff", "a tensor with a `lag`", "`x[3:n] - x[1:(n - 2)]`")
  }
  keras$ops$diff(x, n = as_integer(differences), axis = 0L)
}

#' @export
cbind.multigpu_tensor <- function(..., deparse.level = 1) { # nolint: object_name_linter.
  keras$ops$concatenate(lapply(list(...), as_lines, axis = 1L), axis = 1L)
}

#' @export
rbind.multigpu_tensor <- function(..., deparse.level = 1) { # nolint: object_name_linter.
  keras$ops$concatenate(lapply(list(...), as_lines, axis = 0L), axis = 0L)
}

#' @export
c.multigpu_tensor <- function(...) refuse_function("c", "a tensor", "`rbind(x, y)` or `cbind(x, y)`")

#' @export
`dim<-.multigpu_tensor` <- function(x, value) { # nolint: object_name_linter.
  refuse_function("dim<-", "a tensor", "`keras$ops$reshape(x, shape)`, which fills rows first")
}

# A matrix, or a vector as a column (axis 1) or a row (axis 0).
as_lines <- function(x, axis) {
  x <- as_operand(x)
  if (identical(rank_of(x), 1L)) keras$ops$expand_dims(x, axis) else as_matrix(x, "cbind")
}

as_matrix <- function(x, name) {
  if (!identical(rank_of(x), 2L)) {
    refuse_function(name, "a tensor that is not a matrix", "`keras$ops$transpose(x)` or `keras$ops$concatenate()`")
  }
  x
}

refuse_function <- function(name, what, instead) {
  refuse("a function that is defined for tensors", c("`", name, "()` of ", what), c("Use ", instead, "."))
}

refuse_na_rm <- function(name, na_rm) {
  if (!isFALSE(na_rm)) {
    refuse_function(name, "a tensor with `na.rm`", "`keras$ops$where(keras$ops$isnan(x), 0, x)` to replace such values")
  }
}

utils::globalVariables(".Generic") # R defines it in the methods of groups
