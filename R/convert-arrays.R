# R data as Python arrays. A numeric array is viewed, not copied; Python slices and casts batches of it.
as_arrays <- function(x) {
  if (is.null(x) || inherits(x, "python.builtin.object")) {
    return(x)
  }
  if (is.data.frame(x)) {
    x <- data.matrix(as.data.frame(Map(as_numbers, x, names(x)), check.names = FALSE))
  }
  if (is.list(x)) {
    return(lapply(x, as_arrays))
  }
  reticulate::r_to_py(as_r_array(x))
}

as_r_array <- function(x) {
  refuse_missing(x)
  if (is.factor(x)) {
    x <- as.integer(x) - 1L # Keras counts classes from 0
  }
  if (is.null(dim(x))) array(x, length(x)) else x
}

# A column of a data frame, as the vector alone would be; a matrix has room for numbers only.
as_numbers <- function(x, name) {
  if (is.character(x)) {
    refuse(
      "Expected columns of numbers or factors. Received: the column `", name, "`, of texts. Make it a factor, whose ",
      "levels become numbers from 0, or pass `list(numbers, texts)` to a model with two inputs."
    )
  }
  refuse_missing(x, name)
  if (is.factor(x)) as.integer(x) - 1L else x
}

# In whole numbers, labels and texts Python has no missing values: an `NA` would be a number like others.
refuse_missing <- function(x, name = NULL) {
  if (is.double(x) || !anyNA(x)) {
    return(invisible())
  }
  at <- if (is.null(dim(x))) which(is.na(x))[[1]] else which(is.na(x), arr.ind = TRUE)[1, ]
  column <- if (!is.null(name)) paste0("`", name, "`") else if (length(at) > 1) paste(at[-1], collapse = ", ")
  refuse(
    "Expected no missing values in whole numbers, factors and texts. Received: NA in row ", at[[1]],
    if (!is.null(column)) paste0(", column ", column), ". Leave such rows out, or put a value in place of each NA."
  )
}

# `list(x, y)` or `list(x, y, weights)`
as_validation_data <- function(data) {
  if (is.null(data) || inherits(data, "python.builtin.object")) {
    return(data)
  }
  do.call(reticulate::tuple, as_arrays(unname(data)))
}

# `list("0" = 1, "1" = 50)`: weights by class; classes are counted from 0
as_class_weight <- function(class_weight) {
  if (is.null(class_weight) || inherits(class_weight, "python.builtin.object")) {
    return(class_weight)
  }
  classes <- suppressWarnings(as.integer(names(class_weight)))
  if (length(classes) == 0 || anyNA(classes)) {
    refuse(
      "Expected `class_weight` to be named by classes, counted from 0. Received: ",
      paste(deparse(class_weight), collapse = " "), ". Use `class_weight = list(\"0\" = 1, \"1\" = 50)`."
    )
  }
  reticulate::py_dict(as.list(classes), lapply(unname(as.list(class_weight)), as.numeric))
}

# A whole number as an integer. Anything else is not changed, and Python accepts or refuses it.
as_integer <- function(x) {
  is_whole <- is.numeric(x) && length(x) == 1 && is.finite(x) && x == trunc(x) && abs(x) <= .Machine$integer.max
  if (is_whole) as.integer(x) else x
}

# Python would take a missing value for True.
refuse_na <- function(...) {
  flags <- list(...)
  for (name in names(flags)) {
    if (identical(flags[[name]], NA)) {
      refuse("Expected `", name, "` to be TRUE or FALSE. Received: ", name, " = NA.")
    }
  }
}

`%||%` <- function(x, y) if (is.null(x)) y else x
