#' The Python modules of Keras and TensorFlow
#'
#' `keras` and `tf` give access to everything that has no function in this package: `keras$layers$Dense(10L)`,
#' `tf$device("/cpu:0")`. Python starts when one of them is first used.
#'
#' @return A Python module, see [reticulate::import()].
#' @format Python modules.
#' @examplesIf multigpu::multigpu_is_installed()
#' model <- keras_model_sequential(input_shape = 4, layers = list(keras$layers$Dense(1L)))
#' with(tf$device("/cpu:0"), tf$ones(2L))
#' @export
keras <- NULL

#' @rdname keras
#' @format NULL
#' @export
tf <- NULL

loaded <- list2env(list(depth = 0), parent = emptyenv())

declare_python <- function() {
  if (utils::packageVersion("reticulate") >= "1.41") {
    # by name, because older versions, which are also supported, do not export it
    getExportedValue("reticulate", "py_require")(python_packages(cuda = has_nvidia()), python_version = ">=3.11")
  }
  if (isTRUE(getOption("knitr.in.progress"))) {
    Sys.setenv(RETICULATE_REMAP_OUTPUT_STREAMS = "1") # otherwise the output of Keras is missing in the document
  }
  keras <<- reticulate::import("keras", delay_load = delayed_import("Keras"))
  tf <<- reticulate::import("tensorflow", delay_load = delayed_import("TensorFlow"))
  if (reticulate::py_available()) note_process()
  setHook("reticulate.onPyInit", function(...) {
    note_process()
    join_workers() # if another package starts Python
  })
}

note_process <- function() loaded$process <- Sys.getpid()

# In a forked child, the threads of TensorFlow are gone: it would wait for them for ever.
check_process <- function() {
  if (!is.null(loaded$process) && loaded$process != Sys.getpid()) {
    refuse(
      "the R process in which Python has started",
      "a fork of it, as `parallel::mclapply()` makes, in which TensorFlow does not work",
      "Use processes of their own: `parallel::makeCluster(2)`."
    )
  }
}

delayed_import <- function(name) {
  list(
    environment = "r-multigpu",
    priority = 5,
    on_load = join_workers,
    on_error = function(e) {
      r_start() # says what is missing
      refuse_requirement(name, failure_reason(conditionMessage(e)))
    }
  )
}

# If TF_CONFIG lists other workers, loading the Python package joins them, which must happen before the first model.
join_workers <- function(...) {
  if (nzchar(Sys.getenv("TF_CONFIG")) && !isTRUE(loaded$is_asking)) core()
}

# Steps that fix TensorFlow's devices run while Python imports it: with keras3, it starts when the import has ended.
core_before_start <- function(name, ...) {
  if (!is.null(loaded$core)) {
    return(core()[[name]](...))
  }
  loaded$is_asking <- TRUE # otherwise core() would be loaded when Python starts, before it is asked
  on.exit(loaded$is_asking <- FALSE)
  check_python(found_versions())
  reticulate::py_set_attr(reticulate::import("sys"), "multigpu_waits", TRUE)
  r_start()$ask(name, ...)
  core()
}

# The Python module of this package that R calls.
core <- function() {
  check_process()
  if (is.null(loaded$core)) {
    r_start()$keep_temporary_files_in(tempdir())
    loaded$core <- clean_errors(reticulate::import_from_path("multigpu.r.interface", python_folder()))
  }
  loaded$core
}

# The module that imports neither Keras nor TensorFlow, once everything that they need is installed.
r_start <- function() {
  check_python(found_versions())
  module <- reticulate::import_from_path("multigpu.r.start", python_folder())
  check_backend(module$backend(), module$ENGINES)
  module
}

check_backend <- function(backend, engines) {
  if (!backend %in% engines) {
    refuse(
      c("Keras to run on ", paste(engines, collapse = " or ")), c("the backend \"", backend, "\""),
      "Call `Sys.setenv(KERAS_BACKEND = \"tensorflow\")` or `keras3::use_backend(\"tensorflow\")` in a new session."
    )
  }
}

python_folder <- function(folder = system.file("python", package = "multigpu")) {
  if (dir.exists(folder)) {
    return(folder)
  }
  refuse(
    "the Python package in the folder `python` of the R package", "no such folder",
    c(
      "The script `configure` copies it there: call `R CMD INSTALL` on a clone of the repository, or on the source ",
      "package that `R CMD build` makes."
    )
  )
}
