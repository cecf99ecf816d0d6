# Conversion between Python and R, for R inside a Python process: what R does. Python's part is in `r/interface.py`.

as_r <- function(x) {
  switch(core()$kind_of(x),
    array = copy_array(x),
    history = as_history(x),
    "function" = kept[[as.character(x$number)]],
    "as it is" = reticulate::py_get_attr(x, "value"),
    "large integers" = as.numeric(reticulate::import("numpy")$asarray(x, "float64")),
    "named list" = as_r_list(x, reticulate::import_builtins()$list(x)),
    list = as_r_list(x, seq_len(reticulate::py_len(x)) - 1L, named = FALSE),
    reticulate::py_to_r(x)
  )
}

as_r_list <- function(x, keys, named = TRUE) {
  items <- lapply(keys, function(key) as_r(reticulate::py_get_item(x, key)))
  if (named) stats::setNames(items, keys) else items
}

as_python <- function(x) {
  if (is_python_object(x)) {
    return(x)
  }
  if (is.function(x)) {
    return(keep_function(x))
  }
  if (inherits(x, "keras_training_history")) {
    return(as_python_history(x))
  }
  reticulate::r_to_py(if (is.list(x) && !is.object(x)) lapply(x, as_python) else with_dimension(x))
}

is_python_object <- function(x) {
  inherits(x, "python.builtin.object") || !is.null(attr(x, "py_object"))
}

# A numeric vector as an array. Otherwise reticulate would make a list of it.
with_dimension <- function(x) {
  is_vector <- (is.numeric(x) || is.logical(x)) && !is.object(x) && is.null(dim(x)) && length(x) != 1
  if (is_vector) array(x, length(x)) else x
}

# A new R array that Python fills, because the values of an R array must be in R's own memory.
copy_array <- function(x) {
  storage <- core()$storage_of(x)
  copy <- vector(storage[[1]], prod(unlist(storage[[2]])))
  dim(copy) <- unlist(storage[[2]])
  core()$copy_into(reticulate::r_to_py(copy), x)
  copy
}

# R functions that Python refers to, by number.
kept <- new.env(parent = emptyenv())

keep_function <- function(f) {
  handle <- core()$new_function()
  kept[[as.character(handle$number)]] <- f
  handle
}

forget <- function(numbers) {
  rm(list = as.character(unlist(numbers)), envir = kept)
}

as_python_history <- function(history) {
  metrics <- Filter(length, lapply(history$metrics, as.numeric))
  epochs <- history$epochs %||% seq_along(metrics[[1]]) # a history of keras3 has no epochs
  core()$make_history(metrics, as.list(epochs - 1L), history$params)
}
