# R's functions on tensors: they mean what they mean in R, or say what to use.

#' @export
Math.tensorflow.python.types.core.Tensor <- function(x, ...) { # nolint: object_name_linter.
  if (.Generic == "log") {
    return(log_of(x, ...))
  }
  if (.Generic == "round") {
    return(round_of(x, ...))
  }
  if (startsWith(.Generic, "cum") && !identical(rank_of(x), 1L)) {
    refuse_function(.Generic, "a tensor that is not a vector", "`keras$ops$cumsum(x, axis)`, which counts axes from 0")
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
Summary.tensorflow.python.types.core.Tensor <- function(x, ..., na.rm = FALSE) { # nolint: object_name_linter.
  refuse_na_rm(.Generic, na.rm)
  axes <- axes_in(...)
  if (length(axes) > 0) {
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

#' @export
mean.tensorflow.python.types.core.Tensor <- function(x, ..., na.rm = FALSE) { # nolint: object_name_linter.
  refuse_na_rm("mean", na.rm)
  axes <- axes_in(...)
  if (length(axes) < ...length()) {
    refuse_function("mean", "a tensor with more arguments than `axis` and `keepdims`", "these by their names")
  }
  do.call(keras$ops$mean, c(list(keras$ops$convert_to_tensor(x)), axes))
}

#' @export
dim.tensorflow.python.types.core.Tensor <- function(x) { # nolint: object_name_linter.
  extents <- tf$TensorShape(x$shape)
  if (!extents$is_fully_defined()) {
    return(tf$shape(x)) # while a step is traced, the number of rows is a tensor, too
  }
  unlist(extents$as_list())
}

#' @export
length.tensorflow.python.types.core.Tensor <- function(x) { # nolint: object_name_linter.
  size <- tf$TensorShape(x$shape)$num_elements()
  if (is.null(size)) tf$size(x) else size
}

#' @export
as.logical.tensorflow.python.types.core.Tensor <- function(x, ...) { # nolint: object_name_linter.
  refuse_function("as.logical", "a tensor", "`keras$ops$where(test, yes, no)` for a choice by element")
}

refuse_function <- function(name, what, instead) {
  stop(
    "Expected a function that is defined for tensors. Received: `", name, "()` of ", what, ". Use ", instead, ".",
    call. = FALSE
  )
}

refuse_na_rm <- function(name, na_rm) {
  if (!isFALSE(na_rm)) {
    refuse_function(name, "a tensor with `na.rm`", "`keras$ops$where(keras$ops$isnan(x), 0, x)` to replace such values")
  }
}

# Functions that are not generic in R, for the losses and metrics that use them --------------------------------------

# The function `f`, in which these functions know tensors, unless it uses others of the same names.
with_tensor_functions <- function(f) {
  if (is.primitive(f)) {
    return(f)
  }
  is_replaced <- function(name) identical(get0(name, environment(f), mode = "function"), plain_functions[[name]])
  known <- Filter(is_replaced, names(plain_functions))
  environment(f) <- list2env(tensor_functions[known], parent = environment(f))
  f
}

plain_functions <- list(
  pmax = base::pmax, pmin = base::pmin, ifelse = base::ifelse, var = stats::var, rowSums = base::rowSums,
  rowMeans = base::rowMeans, colSums = base::colSums, colMeans = base::colMeans
)

elementwise <- function(name, operation) {
  function(..., na.rm = FALSE) { # nolint: object_name_linter. R's name.
    if (!any(vapply(list(...), is_python_object, NA))) {
      return(plain_functions[[name]](..., na.rm = na.rm))
    }
    refuse_na_rm(name, na.rm)
    Reduce(function(e1, e2) {
      refuse_recycling(e1, e2)
      keras$ops[[operation]](as_operand(e1), as_operand(e2))
    }, list(...))
  }
}

over_axis <- function(name, operation, axis) {
  function(x, na.rm = FALSE, dims = 1L) { # nolint: object_name_linter. R's name.
    if (!is_python_object(x)) {
      return(plain_functions[[name]](x, na.rm, dims))
    }
    refuse_na_rm(name, na.rm)
    if (!identical(rank_of(x), 2L) || dims != 1) {
      refuse_function(name, "a tensor that is not a matrix", sprintf("`keras$ops$%s(x, axis)`", operation))
    }
    keras$ops[[operation]](x, axis = axis)
  }
}

chosen <- function(test, yes, no) {
  if (!is_python_object(test)) {
    if (is_python_object(yes) || is_python_object(no)) {
      refuse_function("ifelse", "a condition that is not a tensor", "`if (test) yes else no`")
    }
    return(base::ifelse(test, yes, no))
  }
  refuse_recycling(test, yes)
  refuse_recycling(test, no)
  keras$ops$where(test, as_operand(yes), as_operand(no))
}

variance <- function(x, ...) {
  if (!is_python_object(x)) {
    return(stats::var(x, ...))
  }
  if (!identical(rank_of(x), 1L) || ...length() > 0) {
    refuse_function(
      "var", "more than a vector", "`var(x[, 1])`, or `keras$ops$var(x, axis)`, which divides by n, not by n - 1"
    )
  }
  sum((x - mean(x))^2) / (length(x) - 1L)
}

tensor_functions <- list(
  pmax = elementwise("pmax", "maximum"), pmin = elementwise("pmin", "minimum"), ifelse = chosen, var = variance,
  rowSums = over_axis("rowSums", "sum", 1L), rowMeans = over_axis("rowMeans", "mean", 1L),
  colSums = over_axis("colSums", "sum", 0L), colMeans = over_axis("colMeans", "mean", 0L)
)

utils::globalVariables(".Generic") # R defines it in the methods of groups
