# Check arguments of verbs that would raise an unclear error in Python, or mean something else there.

# Whole numbers by their names, as integers; NULL stays NULL.
as_counts <- function(..., least = 1) {
  counts <- list(...)
  for (name in names(counts)) {
    given <- counts[[name]]
    # `steps = nrow(x) / batch_size` is rounded down, as in R's keras and keras3
    if (grepl("steps", name) && is.numeric(given)) counts[[name]] <- trunc(given)
    if (!is.null(given) && !is_count(counts[[name]], least)) {
      refuse_argument(name, given, paste("a whole number of", least, "or more"), paste(name, "= 10"))
    }
  }
  lapply(counts, as_integer)
}

is_count <- function(x, least) length(x) == 1 && is.integer(as_integer(x)) && !is.na(x) && as_integer(x) >= least

# A whole number as an integer. Anything else is not changed.
as_integer <- function(x) {
  is_whole <- is.numeric(x) && length(x) == 1 && is.finite(x) && x == trunc(x) && abs(x) <= .Machine$integer.max
  if (is_whole) as.integer(x) else x
}

# How many epochs there are between validations, or after which epochs there is one.
as_frequency <- function(epochs) {
  if (length(epochs) == 1 && !is.list(epochs)) {
    return(as_counts(validation_freq = epochs)$validation_freq)
  }
  lapply(as.list(epochs), function(epoch) as_counts(validation_freq = epoch)$validation_freq)
}

as_fraction <- function(validation_split) {
  is_fraction <- is.numeric(validation_split) && length(validation_split) == 1 && !is.na(validation_split)
  if (!is_fraction || validation_split < 0 || validation_split >= 1) {
    refuse_argument("validation_split", validation_split, "a number from 0 to below 1", "validation_split = 0.2")
  }
  validation_split
}

# TRUE, FALSE, or one of the other values that Keras accepts for an argument.
as_choice <- function(value, name, others) {
  value <- as_integer(value)
  if (length(value) != 1 || is.na(value) || !is.logical(value) && !value %in% others) {
    choices <- c("TRUE", "FALSE", vapply(others, function(other) deparse(other, control = NULL), ""))
    refuse_argument(name, value, paste("one of", toString(choices)), paste(name, "=", choices[[length(choices)]]))
  }
  value
}

# Python would take a missing value for True.
refuse_na <- function(...) {
  given <- list(...)
  for (name in names(given)) {
    if (is_na(given[[name]])) refuse(c("a value for `", name, "`"), c(name, " = NA"))
  }
}

is_na <- function(x) is.atomic(x) && length(x) == 1 && is.na(x) && !is.nan(x)

# Those that the Python method of this name has, and R does not name, with counts as integers.
more_arguments <- function(object, method, ...) {
  more <- list(...)
  named <- names(more) %||% rep("", length(more))
  unknown <- with_clean_errors(core()$unknown(alive(object), method, as.list(named)))
  unknown <- c(if (!all(nzchar(named))) "one without a name", unknown)
  if (length(unknown) > 0) {
    refuse(c("arguments of `", method, "()`, by their names"), toString(unknown), "Use those that its help page lists.")
  }
  refuse_na(...)
  is_count <- grepl("steps|size|epoch|freq|verbose|workers", named)
  replace(more, is_count, lapply(more[is_count], as_integer))
}

refuse_argument <- function(name, value, what, use) {
  refuse(c("`", name, "` to be ", what), c(name, " = ", shown(value)), c("Use `", use, "`."))
}

# A value in few words: as code if that is short, otherwise its class.
shown <- function(value) {
  code <- if (is.null(value) || is.atomic(value) && length(value) <= 60) deparse(value) else ""
  if (length(code) == 1 && nzchar(code) && nchar(code) <= 60) code else paste("an object of class", class(value)[[1]])
}
