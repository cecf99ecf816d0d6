# R data as Python arrays. A numeric array is viewed, not copied; Python slices and casts batches of it.
as_arrays <- function(x) {
  if (is.null(x) || is_python_object(x)) {
    return(x)
  }
  if (is.list(x) && !is.object(x)) {
    return(lapply(x, as_arrays))
  }
  if (is_sparse(x)) {
    return(as_sparse_tensor(x))
  }
  if (is.data.frame(x)) {
    x <- data.matrix(as.data.frame(Map(as_numbers, x, names(x)), check.names = FALSE))
  } else if (is_of_package_matrix(x)) {
    x <- as.matrix(x)
  }
  check_data(x)
  if (inherits(x, "integer64")) {
    return(as_int64(x))
  }
  if (is.character(x)) tf$constant(as_r_array(x)) else reticulate::r_to_py(as_r_array(x))
}

# The same for one batch, in which a sparse matrix is small enough to be dense.
as_batch <- function(x) {
  if (is.list(x) && !is.object(x)) {
    return(lapply(x, as_batch))
  }
  as_arrays(if (is_sparse(x)) as.matrix(x) else x)
}

# The kinds of data that a model accepts: text only if one of its inputs is for text.
as_inputs <- function(x, object, convert = as_arrays) {
  alive(object)
  if (is.null(x)) {
    refuse("`x` to be arrays, a dataset, or a function that returns the next batch", "NULL")
  }
  x <- as_inputs_by_name(x, object)
  if (has_texts(x) && isFALSE(takes_texts(object))) {
    refuse(
      "numbers, because the inputs of this model are numbers", "character data",
      c(
        "Use `as.numeric(x)` if the strings are numbers, a factor for classes, or a model that begins with ",
        "`keras$Input(shape, dtype = \"string\")`."
      )
    )
  }
  convert(x)
}

# The columns of a data frame that have the names of a model's inputs, if it has several.
as_inputs_by_name <- function(x, object) {
  if (!is.data.frame(x)) {
    return(x)
  }
  names <- vapply(inputs_of(object), function(input) input$name, "")
  if (length(names) > 1 && all(names %in% names(x))) as.list(x)[names] else x
}

# Dense, as losses need them. Classes in words have no numbers: those of a factor are its levels.
as_targets <- function(y) {
  if (has_texts(y)) {
    refuse("`y` to be numbers or a factor", "character data", "Use `factor(y)`, whose levels count from 0.")
  }
  as_batch(y)
}

# TensorFlow's datasets have an order of their own.
is_tf_dataset <- function(x) inherits(x, "tensorflow.python.data.ops.dataset_ops.DatasetV2")

has_texts <- function(x) is.character(x) || is.list(x) && !is.object(x) && any(vapply(x, is.character, NA))

# NULL for a model whose inputs are unknown, such as a subclassed one.
takes_texts <- function(object) {
  inputs <- inputs_of(object)
  if (length(inputs) > 0) "string" %in% vapply(inputs, function(input) keras$backend$standardize_dtype(input$dtype), "")
}

inputs_of <- function(object) if (reticulate::py_has_attr(object, "inputs")) object$inputs

as_r_array <- function(x) {
  if (is.factor(x)) {
    x <- as.integer(x) - 1L # Keras counts classes from 0
  }
  if (is.null(dim(x))) array(x, length(x)) else x
}

# A column of a data frame, converted like a vector. A matrix holds only numbers.
as_numbers <- function(x, name) {
  if (is.character(x)) {
    refuse(
      "columns of numbers or factors", c("the character column `", name, "`"),
      "Make it a factor, whose levels become numbers from 0, or give a model with two inputs `list(numbers, strings)`."
    )
  }
  check_data(x, paste0("`", name, "`"))
  if (inherits(x, "integer64")) {
    return(as.vector(reticulate::py_to_r(as_int64(x)$astype("float64"))))
  }
  if (is.factor(x)) as.integer(x) - 1L else x
}

# The package bit64 keeps 64-bit integers in the bits of doubles.
as_int64 <- function(x) {
  reticulate::r_to_py(as_r_array(unclass(x)))$view("int64")
}

# A function that returns the next batch; or `list(x, y)` or `list(x, y, weights)`, which may be named.
as_validation_data <- function(data, object, y = NULL) {
  if (is_r_function(data)) {
    return(as_generator(data))
  }
  if (is.null(data) || is_python_object(data)) {
    return(data)
  }
  names <- c("x", "y", "sample_weight")
  if (!is.list(data) || is.object(data) || !length(data) %in% 2:3 || !all(names(data) %in% c("", names))) {
    refuse(
      "`validation_data` to be `list(x, y)` or `list(x, y, sample_weight)`", list_shown(data),
      "Use `validation_data = list(x_validation, y_validation)`."
    )
  }
  data <- in_order(data)
  y <- as_targets(as_levels_of(data[[2]], y))
  do.call(reticulate::tuple, c(list(as_inputs(data[[1]], object), y), as_arrays(data[-(1:2)])))
}

# A factor with the levels, and so the class numbers, of the targets `y`.
as_levels_of <- function(targets, y) {
  known <- levels_of(y)
  if (is_plain_list(targets) && is_plain_list(y) && length(y) == length(targets)) {
    are_named <- !is.null(names(targets)) && setequal(names(targets), names(y))
    return(Map(as_levels_of, targets, if (are_named) y[names(targets)] else y))
  }
  if (is.null(known) || is.null(levels_of(targets)) || identical(levels_of(targets), known)) {
    return(targets)
  }
  labels <- as.character(if (is.data.frame(targets)) targets[[1]] else targets)
  other <- setdiff(labels, c(known, NA))
  if (length(other) > 0) {
    refuse(
      c("the classes of `y` in `validation_data`, too: ", toString(known)), toString(other),
      "Make both factors with the same `levels`."
    )
  }
  factor(labels, known)
}

is_plain_list <- function(x) is.list(x) && !is.object(x)

# `list(y = , x = )` as `list(x, y)`.
in_order <- function(data) {
  names <- c("x", "y", "sample_weight")[seq_along(data)]
  unname(if (setequal(names(data), names)) data[names] else data)
}

list_shown <- function(data) {
  if (!is.list(data) || is.object(data)) {
    return(paste("an object of class", class(data)[[1]]))
  }
  paste0("a list of length ", length(data), if (!is.null(names(data))) paste0(", named ", toString(names(data))))
}

`%||%` <- function(x, y) if (is.null(x)) y else x
