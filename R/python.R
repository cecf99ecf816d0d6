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
