# Weights of classes, as a dictionary of class numbers.

# `list("0" = 1, "1" = 50)`, with classes counted from 0, or by the levels of a factor: `c(no = 1, yes = 50)`.
as_class_weight <- function(class_weight, y) {
  if (is.null(class_weight) || is_python_object(class_weight)) {
    return(class_weight)
  }
  classes <- class_numbers(names(class_weight), levels_of(y))
  if (length(classes) == 0 || anyNA(classes) || anyNA(class_weight) || !all(vapply(class_weight, is.numeric, NA))) {
    refuse(
      c("`class_weight` to be numbers named by ", class_names(levels_of(y))), deparse1(class_weight),
      "Use `class_weight = list(\"0\" = 1, \"1\" = 50)`."
    )
  }
  reticulate::py_dict(as.list(classes), lapply(unname(as.list(class_weight)), as.numeric))
}

levels_of <- function(y) {
  if (is.data.frame(y) && length(y) == 1) levels(y[[1]]) else if (is.factor(y)) levels(y)
}

# A name that is a level is meant as one, even if it is a number.
class_numbers <- function(names, levels) {
  if (any(names %in% levels)) match(names, levels) - 1L else suppressWarnings(as.integer(names))
}

class_names <- function(levels) {
  by_level <- if (length(levels) > 0) paste0("the levels of `y` (", toString(levels), "), or by ")
  paste0(by_level, "classes, counted from 0")
}
