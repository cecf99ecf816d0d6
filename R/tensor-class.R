# Tensors have a class of this package while an R function computes with them, and only then: R's operators and
# functions have methods for it. Tensors of other packages, and of the user's other code, are not touched.

with_tensors <- function(expr) {
  loaded$depth <- loaded$depth + 1
  on.exit(loaded$depth <- loaded$depth - 1)
  withCallingHandlers(expr, error = explain_condition)
}

as_tensor <- function(x) {
  class(x) <- unique(c("multigpu_tensor", class(x)))
  x
}

# All values that Python returns to R in `with_tensors()` pass through this. It must come after the filter of the R
# package tensorflow, whose methods would be found first.
declare_tensors <- function(...) {
  reticulate::register_class_filter(function(classes) {
    if (loaded$depth > 0 && any(tensor_classes %in% classes)) unique(c("multigpu_tensor", classes)) else classes
  })
}

# Beside keras3, plain models call losses with the methods of the R package tensorflow, or of reticulate. A parallel
# model does so, too: they count and broadcast in other ways.
as_in_keras3 <- function(name, x) {
  found <- function(class) !is.null(utils::getS3method(name, class, optional = TRUE))
  isNamespaceLoaded("keras3") && any(vapply(setdiff(class(x), "multigpu_tensor"), found, NA))
}

# The value of a function of a tensor, with the methods of those packages. The object stays the same, so its class has
# to come back.
with_other_methods <- function(x, f) {
  depth <- loaded$depth
  classes <- class(x)
  on.exit({
    loaded$depth <- depth
    class(x) <- classes
  })
  loaded$depth <- 0
  class(x) <- setdiff(classes, "multigpu_tensor")
  value <- f(x)
  if (is_python_object(value)) as_tensor(value) else value
}

tensor_classes <- c(
  "tensorflow.python.types.core.Tensor", "keras.src.backend.common.keras_tensor.KerasTensor",
  "jax.Array", # of JAX 0.6; later versions have these for arrays, and for what a step is traced with
  "jaxlib._jax.ArrayImpl", "jax._src.core.Tracer"
)

# The length of each dimension, NULL where it is not known yet; of TensorFlow's tensors the rank may be unknown, too.
shape_of <- function(x) {
  shape <- x$shape
  if (inherits(shape, "tensorflow.python.framework.tensor_shape.TensorShape")) {
    shape <- tf$TensorShape(shape) # whose answers are R's, whatever `x` gives
    return(if (!is.null(shape$rank)) shape$as_list())
  }
  if (is_python_object(shape)) reticulate::py_to_r(shape) else shape
}

# R's own error does not mention tensors, which R treats as environments.
explain_condition <- function(e) {
  word <- as.character(conditionCall(e)[1])
  no_value <- conditionMessage(e) %in%
    gettext("argument is not interpretable as logical", "the condition has length > 1", domain = "R")
  if (length(word) == 1 && (word %in% c("&&", "||") || word %in% c("if", "while") && no_value)) {
    what <- "a tensor, which has no value until the step runs"
    refuse_function(word, what, "`keras$ops$where(test, yes, no)`, `&` and `|`")
  }
}
