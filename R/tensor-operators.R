# R's operators and functions on tensors, so that losses and metrics can be written in R. The methods are for a base
# class of TensorFlow's tensors: those of the R package tensorflow are for a subclass and take precedence.

#' @export
Ops.tensorflow.python.types.core.Tensor <- function(e1, e2) { # nolint: object_name_linter.
  operation <- keras$ops[[operators[[.Generic]]]]
  if (nargs() == 1) {
    return(switch(.Generic, "+" = e1, "-" = keras$ops$negative(e1), operation(e1)))
  }
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
  if (inherits(x, "python.builtin.object") || length(x) == 1 && is.null(dim(x))) {
    return(x)
  }
  keras$ops$convert_to_tensor(as_arrays(x), dtype = if (is.double(x)) keras$config$floatx())
}

#' @export
Math.tensorflow.python.types.core.Tensor <- function(x, ...) { # nolint: object_name_linter.
  tensor_function(if (.Generic == "ceiling") "ceil" else .Generic)(x, ...)
}

#' @export
Summary.tensorflow.python.types.core.Tensor <- function(x, ..., na.rm = FALSE) { # nolint: object_name_linter.
  tensor_function(.Generic)(x, ...)
}

#' @export
mean.tensorflow.python.types.core.Tensor <- function(x, ...) { # nolint: object_name_linter.
  keras$ops$mean(keras$ops$convert_to_tensor(x), ...)
}

tensor_function <- function(name) {
  if (reticulate::py_has_attr(keras$ops, name)) {
    return(keras$ops[[name]])
  }
  stop(
    "Expected a function that is defined for tensors. Received: `", name, "()`. Use `keras$ops` or `tf$math`.",
    call. = FALSE
  )
}

utils::globalVariables(".Generic") # R defines it in these methods
