# R's operators on tensors, so that losses and metrics can be written in R. The methods are for a base class of
# TensorFlow's tensors: those of the R package tensorflow are for a subclass and take precedence.

#' @export
Ops.tensorflow.python.types.core.Tensor <- function(e1, e2) { # nolint: object_name_linter.
  operation <- keras$ops[[operators[[.Generic]]]]
  if (nargs() == 1) {
    return(switch(.Generic, "+" = e1, "-" = keras$ops$negative(e1), operation(e1)))
  }
  refuse_recycling(e1, e2)
  operation(as_operand(e1), as_operand(e2))
}

#' @export
Ops.keras.src.backend.common.keras_tensor.KerasTensor <- # nolint: object_name_linter.
  Ops.tensorflow.python.types.core.Tensor

operators <- c(
  "+" = "add", "-" = "subtract", "*" = "multiply", "/" = "true_divide", "^" = "power", "%%" = "mod",
  "%/%" = "floor_divide", "==" = "equal", "!=" = "not_equal", "<" = "less", "<=" = "less_equal", ">" = "greater",
  ">=" = "greater_equal", "&" = "logical_and", "|" = "logical_or", "!" = "logical_not"
)

# A single number is not converted and takes the type of the tensor; longer vectors become tensors.
as_operand <- function(x) {
  if (is_python_object(x) || length(x) == 1 && is.null(dim(x))) {
    return(x)
  }
  keras$ops$convert_to_tensor(as_arrays(x), dtype = if (is.double(x)) keras$config$floatx())
}

# R repeats a vector along the rows of a matrix, TensorFlow along its columns.
refuse_recycling <- function(e1, e2) {
  ranks <- c(rank_of(e1), rank_of(e2))
  if (anyNA(ranks) || 0 %in% ranks || ranks[[1]] == ranks[[2]]) {
    return(invisible())
  }
  stop(
    "Expected operands with the same number of dimensions, or a single number. Received: ", ranks[[1]], " and ",
    ranks[[2]], " dimensions, which R and TensorFlow combine differently. Use `matrix(values, 1)` for one value per ",
    "column, and `x[, 1, drop = FALSE]` for a column that stays one.",
    call. = FALSE
  )
}

# The number of dimensions: 0 of a single number, NA if it is not known yet.
rank_of <- function(x) {
  if (!is_python_object(x)) {
    return(if (is.null(dim(x))) as.integer(length(x) > 1) else length(dim(x)))
  }
  if (reticulate::py_has_attr(x, "shape")) tf$TensorShape(x$shape)$rank %||% NA else 0L
}
