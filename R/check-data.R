# Check for data that Python would misinterpret, such as dates as numbers.
check_data <- function(x, name = NULL) {
  if (!is_known_kind(x)) {
    refuse("numbers, factors or strings", c(column_text(name), kind_of_object(x)), instead_of_kind(x))
  }
  at <- first_missing(x)
  if (!is.null(at) && length(dim(x)) > 1) {
    at <- arrayInd(at, dim(x))
    name <- paste(at[-1], collapse = ", ")
  }
  if (!is.null(at)) {
    refuse_missing(at[[1]], name)
  }
}

refuse_missing <- function(row, column) {
  refuse(
    "data without missing values", c("NA in row ", row, if (!is.null(column)) c(", column ", column)),
    "Leave such rows out, or put a value in place of each NA."
  )
}

kind_of_object <- function(x) if (is.object(x)) class(x)[[1]] else typeof(x)

column_text <- function(name) if (!is.null(name)) paste0("the column ", name, ", of class ") else "data of class "

# Python would read dates and times as numbers of days or seconds. Other objects have no values.
is_known_kind <- function(x) {
  is_integer64 <- inherits(x, "integer64") && !isS4(x)
  is_plain <- is.atomic(x) && !is.complex(x) && !is.raw(x) && !inherits(x, "integer64")
  is_integer64 || is_plain && (!is.object(x) || is.numeric(x) || is.factor(x) || is.logical(x) || is.character(x))
}

instead_of_kind <- function(x) {
  if (inherits(x, c("Date", "POSIXt", "nanotime"))) {
    return("Say what counts: days, `as.numeric(x - min(x), units = \"days\")`, or for instance `factor(months(x))`.")
  }
  if (inherits(x, "difftime")) {
    return("Say in which unit: `as.numeric(x, units = \"days\")`.")
  }
  if (inherits(x, "formula")) {
    return("Make a matrix of it: `model.matrix(y ~ a + b, data)[, -1]` is `x`, and `data$y` is `y`.")
  }
  if (is.complex(x)) "Pass `cbind(Re(x), Im(x))`." else "Pass an array, such as `as.matrix(x)`, or `as.numeric(x)`."
}

# The position of the first NA; a NaN is a number of Keras.
first_missing <- function(x) {
  if (inherits(x, "integer64")) {
    bits <- unclass(x)
    found <- which(bits == 0 & 1 / bits < 0) # the bits of -0
  } else {
    found <- if (anyNA(x)) which(is.na(x) & !(is.double(x) & is.nan(x)))
  }
  if (length(found) > 0) found[[1]]
}
