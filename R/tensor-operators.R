# R's operators on tensors, so that losses and metrics can be written in R.

#' @export
Ops.multigpu_tensor <- function(e1, e2) { # nolint: object_name_linter. R's name.
  if (missing(e2)) operate(.Generic, e1) else operate(.Generic, e1, e2)
}

operate <- function(name, e1, e2) {
  operation <- keras$ops[[operators[[name]]]]
  if (missing(e2)) {
    return(switch(name,
      "+" = as_number(e1),
      "-" = keras$ops$negative(as_number(e1)),
      operation(e1)
    ))
  }
  refuse_recycling(e1, e2)
  convert <- if (name %in% arithmetic) function(x) as_number(as_operand(x)) else as_operand
  operation(convert(e1), convert(e2))
}

arithmetic <- c("+", "-", "*", "/", "^", "%%", "%/%")

# As R calculates with logical values, as in `sum((y_pred > 0.5) * y_true)`.
as_number <- function(x) {
  is_logical_tensor <- is_python_object(x) && reticulate::py_has_attr(x, "dtype") && keras$ops$dtype(x) == "bool"
  if (is_logical_tensor) keras$ops$cast(x, "int32") else x
}

operators <- c(
  "+" = "add", "-" = "subtract", "*" = "multiply", "/" = "true_divide", "^" = "power", "%%" = "mod",
  "%/%" = "floor_divide", "==" = "equal", "!=" = "not_equal", "<" = "less", "<=" = "less_equal", ">" = "greater",
  ">=" = "greater_equal", "&" = "logical_and", "|" = "logical_or", "!" = "logical_not"
)

# The operator in a loss or a metric, where a weight or another object from outside may be an operand, too.
operator_in_loss <- function(name) {
  plain <- get(name, baseenv())
  function(e1, e2) {
    if (missing(e2)) {
      return(if (is_python_object(e1)) operate(name, e1) else plain(e1))
    }
    if (is_python_object(e1) || is_python_object(e2)) operate(name, e1, e2) else plain(e1, e2)
  }
}

# A single number is not converted and takes the type of the tensor; longer vectors become tensors.
as_operand <- function(x) {
  if (is_python_object(x) || length(x) == 1 && is.null(dim(x))) {
    return(x)
  }
  keras$ops$convert_to_tensor(as_arrays(x), dtype = if (is.double(x)) keras$config$floatx())
}

# R repeats a vector along the rows of a matrix, TensorFlow along its columns, and so do losses beside keras3.
refuse_recycling <- function(e1, e2) {
  ranks <- c(rank_of(e1), rank_of(e2))
  if (isNamespaceLoaded("keras3") || anyNA(ranks) || 0 %in% ranks || ranks[[1]] == ranks[[2]]) {
    return(invisible())
  }
  refuse(
    "operands with the same number of dimensions, or a single number",
    c(ranks[[1]], " and ", ranks[[2]], " dimensions, which R and TensorFlow combine differently"),
    "Use `matrix(values, 1)` for one value per column, and `x[, 1, drop = FALSE]` to keep a column as a matrix."
  )
}

# The number of dimensions: 0 of a single number, NA if it is not known yet.
rank_of <- function(x) {
  if (!is_python_object(x)) {
    return(if (is.null(dim(x))) as.integer(length(x) > 1) else length(dim(x)))
  }
  if (!reticulate::py_has_attr(x, "shape")) {
    return(0L)
  }
  shape <- shape_of(x)
  if (is.null(shape)) NA else length(shape)
}
