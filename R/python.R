#' The Python modules of Keras and TensorFlow
#'
#' Handles to the modules, for all that has no function here: `keras$layers$Dense(10L)`, `tf$device("/cpu:0")`. Python
#' starts when one of them is used for the first time, not before.
#'
#' @return A Python module, see [reticulate::import()].
#' @format Python modules.
#' @examples
#' \dontrun{
#' model <- keras_model_sequential(list(keras$Input(list(4L)), keras$layers$Dense(1L)))
#' with(tf$device("/cpu:0"), tf$ones(2L))
#' }
#' @export
keras <- NULL

#' @rdname keras
#' @export
tf <- NULL

loaded <- new.env(parent = emptyenv())

declare_python <- function() {
  if (utils::packageVersion("reticulate") >= "1.41") {
    # looked up by name: older versions, which are supported too, do not have it
    getExportedValue("reticulate", "py_require")(python_packages(), python_version = ">=3.11")
  }
  if (isTRUE(getOption("knitr.in.progress"))) {
    Sys.setenv(RETICULATE_REMAP_OUTPUT_STREAMS = "1") # or what Keras prints never reaches the document
  }
  keras <<- reticulate::import("keras", delay_load = how_to_load("Keras"))
  tf <<- reticulate::import("tensorflow", delay_load = how_to_load("TensorFlow"))
  setHook("reticulate.onPyInit", join_workers) # where another package starts Python
}

how_to_load <- function(piece) {
  list(
    environment = "r-multigpu",
    priority = 5,
    on_load = join_workers,
    on_error = function(e) stop(missing_piece(piece, what_failed(conditionMessage(e))), call. = FALSE)
  )
}

# If TF_CONFIG lists other workers, loading the Python package joins them, which must happen before the first model.
join_workers <- function(...) {
  if (nzchar(Sys.getenv("TF_CONFIG"))) core()
}

# The only Python module of this package that R calls, once everything that it needs is installed.
core <- function() {
  if (is.null(loaded$core)) {
    check_python(found_versions())
    loaded$core <- reticulate::import_from_path("multigpu.r_interface", python_folder())
  }
  loaded$core
}

python_folder <- function(folder = system.file("python", package = "multigpu")) {
  if (dir.exists(folder)) {
    return(folder)
  }
  stop(
    "Expected the Python side of multigpu in the folder `python` of the package. Received: a file, which is what a ",
    "link becomes in a ZIP archive or on Windows. Install from the source package that `R CMD build` makes, or clone ",
    "the repository with `git clone -c core.symlinks=true`.",
    call. = FALSE
  )
}

check_python <- function(versions) {
  for (piece in names(needed_versions)) {
    if (!is_enough(versions[[piece]], needed_versions[[piece]])) {
      stop(missing_piece(piece, versions[[piece]]), call. = FALSE)
    }
  }
}

needed_versions <- c(Python = "3.11", TensorFlow = "2.21", Keras = "3.15.1")

is_enough <- function(found, needed) {
  !is.na(found) && utils::compareVersion(gsub("[^0-9.].*$", "", found), needed) >= 0
}

missing_piece <- function(piece, found) {
  paste0(
    "Expected ", piece, " ", needed_versions[[piece]], " or later. Received: ", if (is.na(found)) "none" else found,
    ", with ", python_in_use(), ". ", cure_for_python(), "; `multigpu::multigpu_sitrep()` tells more."
  )
}

cure_for_python <- function(chosen = Sys.getenv("RETICULATE_PYTHON")) {
  if (!nzchar(chosen)) {
    return("Run `multigpu::install_multigpu()` and restart R")
  }
  paste0(
    "RETICULATE_PYTHON is \"", chosen, "\": install it there, or unset that, run `multigpu::install_multigpu()` and ",
    "restart R"
  )
}

what_failed <- function(message) {
  if (!grepl("No module named", message)) clean_message(message) else NA
}

python_in_use <- function() {
  if (reticulate::py_available()) paste("Python at", reticulate::py_config()$python) else "no Python"
}

# Versions of Python and of what is installed there, NA for what is not. Starts Python.
found_versions <- function() {
  if (!reticulate::py_available(initialize = TRUE)) {
    return(c(Python = NA, TensorFlow = NA, Keras = NA))
  }
  c(
    Python = as.character(reticulate::py_version()),
    TensorFlow = module_version("tensorflow"),
    Keras = module_version("keras")
  )
}

module_version <- function(name) {
  tryCatch(reticulate::import(name)$`__version__`, error = function(e) NA_character_)
}
