# `gpus` as Python takes it: NULL, a count, or a list of ids and names. A single number is a count, in a list too.
as_gpus <- function(gpus) {
  if (inherits(gpus, "multigpu_table")) { # of `available_gpus()`
    gpus <- gpus$name
  }
  if (is.factor(gpus)) {
    gpus <- as.character(gpus)
  }
  if (!is.list(gpus) && !is.atomic(gpus) || is.null(gpus)) {
    return(gpus)
  }
  entries <- lapply(unname(as.list(gpus)), as_gpu, gpus = gpus)
  if (length(entries) == 1 && (!is.list(gpus) || is.numeric(entries[[1]]))) entries[[1]] else entries
}

as_gpu <- function(entry, gpus) {
  if (length(entry) != 1 || !is.atomic(entry)) {
    return(entry) # Python says why not
  }
  if (is.na(entry)) {
    refuse_gpus(gpus, "missing values")
  }
  if (!is.numeric(entry)) {
    return(entry)
  }
  if (entry != trunc(entry) || abs(entry) > .Machine$integer.max) {
    refuse_gpus(gpus, "other numbers")
  }
  as.integer(entry)
}

refuse_gpus <- function(gpus, what) {
  stop(
    "Expected `gpus` to be whole numbers or names of devices. Received: gpus = ", paste(deparse(gpus), collapse = " "),
    ", with ", what, ". Use `gpus = 2`, `gpus = c(0, 1)`, or `gpus = NULL` for all GPUs.",
    call. = FALSE
  )
}
