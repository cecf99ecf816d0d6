#' Install the Python packages that multigpu requires
#'
#' Creates a virtual environment with Keras and TensorFlow, or JAX if the environment variable `KERAS_BACKEND` is
#' `"jax"`. R finds it after a restart, without further settings. On Linux with an NVIDIA driver, it includes the CUDA
#' libraries. With reticulate 1.41 or later you often do not need it: if no other Python is selected, reticulate creates
#' an environment itself.
#'
#' @param envname Name of the virtual environment.
#' @param python Path of a Python interpreter, version 3.11 or later, with which to create the environment. `NULL` is
#'   the one that reticulate finds. With reticulate before 1.38 it must be version 3.11.
#' @param cuda Whether to install the CUDA libraries that TensorFlow or JAX requires for NVIDIA GPUs.
#' @return `NULL`, invisibly.
#' @family set-up
#' @examples
#' \dontrun{
#' install_multigpu()
#' }
#' @export
install_multigpu <- function(envname = "r-multigpu", python = NULL, cuda = has_nvidia()) {
  is_new <- !reticulate::virtualenv_exists(envname)
  if (is_new) {
    # the next attempt would take an incomplete environment for a complete one
    on.exit(if (is_new) unlink(virtualenv_folder(envname), recursive = TRUE))
    reticulate::virtualenv_create(envname, python = python, packages = NULL)
  } else {
    check_same_python(envname, python)
  }
  reticulate::virtualenv_install(envname, python_packages(cuda = cuda))
  is_new <- FALSE
  message("Installed into the virtual environment ", envname, ". Restart R, then try `multigpu_sitrep()`.")
  invisible()
}

virtualenv_folder <- function(envname) {
  if (grepl("[/\\\\]", envname)) envname else file.path(reticulate::virtualenv_root(), envname)
}

# An environment keeps the Python that made it.
check_same_python <- function(envname, python, version_of = python_version) {
  if (is.null(python)) {
    return(invisible())
  }
  versions <- c(version_of(reticulate::virtualenv_python(envname)), version_of(python))
  if (versions[[1]] != versions[[2]]) {
    refuse(
      c("`python` to be the version in the virtual environment ", envname, ", which is ", versions[[1]]), versions[[2]],
      c("Remove it, `reticulate::virtualenv_remove(\"", envname, "\")`, or choose another `envname`.")
    )
  }
}

python_version <- function(python) {
  system2(python, c("-c", shQuote("import platform; print(platform.python_version())")), stdout = TRUE)
}

python_packages <- function(reticulate = utils::packageVersion("reticulate"), cuda = FALSE) {
  c(
    if (runs_on_jax()) {
      if (cuda) "jax[cuda12]>=0.6.2" else "jax>=0.6.2"
    } else {
      if (cuda) "tensorflow[and-cuda]>=2.21" else "tensorflow>=2.21"
    },
    "keras>=3.15.1",
    if (reticulate < "1.38") "numpy>=1.26,<2" else "numpy>=1.26", # older versions cannot read arrays of numpy 2
    "h5py>=3.14"
  )
}

has_nvidia <- function() {
  Sys.info()[["sysname"]] == "Linux" && file.exists("/proc/driver/nvidia/version")
}

#' Report what is installed and what is missing
#'
#' Prints the versions of R, reticulate, Python, TensorFlow or JAX, and Keras, the GPUs that TensorFlow finds, and for
#' each missing or outdated requirement the command that installs it. In RStudio it is also available as an add-in. It
#' starts Python.
#'
#' @return A data frame with one row per requirement, invisibly. Columns: `piece`, its name; `found` and `needed`, the
#'   installed and the required version; `cure`, the command to run if the requirement is not met, otherwise `NA`.
#' @family set-up
#' @examplesIf multigpu::multigpu_is_installed()
#' multigpu_sitrep()
#' @export
multigpu_sitrep <- function() {
  versions <- tryCatch(found_versions(), error = function(e) c(Python = NA, TensorFlow = NA, JAX = NA, Keras = NA))
  report <- requirements_report(c(
    R = as.character(getRversion()),
    reticulate = as.character(utils::packageVersion("reticulate")),
    versions
  ))
  cat("multigpu ", as.character(utils::packageVersion("multigpu")), "\n\n", sep = "")
  cat(requirement_lines(report), sep = "\n")
  cat("\n", python_in_use(), "\n", refusal(report), gpu_line(report), "\n", sep = "")
  invisible(report)
}

#' Whether all that multigpu requires is installed
#'
#' Use it in examples, tests and documents that must also run without Python or TensorFlow. It starts Python if there is
#' one, but does not install or download anything.
#'
#' @return `TRUE` if Python, TensorFlow and Keras are installed in the required versions, otherwise `FALSE`.
#' @family set-up
#' @examples
#' multigpu_is_installed()
#' @export
multigpu_is_installed <- function() {
  if (!reticulate::py_available()) {
    chosen <- Sys.getenv("RETICULATE_USE_MANAGED_VENV", "")
    on.exit(Sys.setenv(RETICULATE_USE_MANAGED_VENV = chosen))
    Sys.setenv(RETICULATE_USE_MANAGED_VENV = "no") # reticulate would make an environment for what is missing
  }
  versions <- tryCatch(found_versions(), error = function(e) c(Python = NA, TensorFlow = NA, JAX = NA, Keras = NA))
  all(mapply(is_recent_enough, versions[names(required_versions())], required_versions()))
}

requirements_report <- function(found) {
  needed <- c(R = "4.1", reticulate = "1.28", required_versions())
  cures <- c(R = "install a newer R", reticulate = "install.packages(\"reticulate\")", Python = "install_multigpu()")
  is_fine <- mapply(is_recent_enough, found[names(needed)], needed)
  cure <- ifelse(names(needed) %in% names(cures), cures[names(needed)], cures[["Python"]])
  data.frame(
    piece = names(needed), found = unname(found[names(needed)]), needed = unname(needed),
    cure = ifelse(is_fine, NA, unname(cure))
  )
}

requirement_lines <- function(report) {
  found <- ifelse(is.na(report$found), "none", report$found)
  remedy <- ifelse(is.na(report$cure), "", paste0("needs ", report$needed, ": ", report$cure))
  sub(" +$", "", paste0(format(report$piece), "  ", format(found), "  ", remedy))
}

# Problems with versions that are recent enough: they may lack functions that the Python package uses.
refusal <- function(report) {
  if (all(is.na(report$cure))) {
    tryCatch(
      {
        core()
        NULL
      },
      error = function(e) paste0(conditionMessage(e), "\n")
    )
  }
}

# Does not initialize TensorFlow's devices, so that `simulate_gpus()` can still be called.
gpu_line <- function(report) {
  if (!all(is.na(report$cure))) {
    return("GPUs: unknown, because requirements are missing")
  }
  if (identical(r_start()$backend(), "jax")) {
    return("GPUs: not listed, because that would start JAX. `available_gpus()` lists them")
  }
  if (length(tf$config$list_physical_devices("GPU")) == 0) {
    is_refused <- length(refusal(report)) > 0 # the report gives the reason above
    return(paste0("GPUs: none", if (!is_refused) paste0(": ", put_in_r_words(core()$why_no_gpu()))))
  }
  gpus <- vapply(tf$config$list_physical_devices("GPU"), function(gpu) sub("^/physical_device:", "", gpu$name), "")
  paste0("GPUs: ", toString(gpus), if (length(gpus) == 1) ". To try a script with two GPUs, call `simulate_gpus(2)`.")
}

check_python <- function(versions) {
  for (name in names(required_versions())) {
    if (!is_recent_enough(versions[[name]], required_versions()[[name]])) {
      refuse_requirement(name, versions[[name]])
    }
  }
}

# Those of one engine alone: TensorFlow, unless Keras is to run on JAX.
required_versions <- function() {
  c(Python = "3.11", if (runs_on_jax()) c(JAX = "0.6.2") else c(TensorFlow = "2.21"), Keras = "3.15.1")
}

runs_on_jax <- function() identical(Sys.getenv("KERAS_BACKEND"), "jax")

is_recent_enough <- function(found, needed) {
  !is.na(found) && utils::compareVersion(gsub("[^0-9.].*$", "", found), needed) >= 0
}

refuse_requirement <- function(name, found) {
  refuse(
    c(name, " ", c(required_versions(), TensorFlow = "2.21")[[name]], " or later"),
    c(if (is.na(found)) "none" else found, ", with ", python_in_use()),
    c(python_remedy(), "; `multigpu::multigpu_sitrep()` reports details.")
  )
}

python_remedy <- function(chosen = Sys.getenv("RETICULATE_PYTHON")) {
  if (!nzchar(chosen)) {
    return("Run `multigpu::install_multigpu()` and restart R")
  }
  paste0(
    "RETICULATE_PYTHON is \"", chosen, "\": install it there, or unset the variable, run ",
    "`multigpu::install_multigpu()` and restart R"
  )
}

failure_reason <- function(message) {
  if (!grepl("No module named", message)) clean_message(message) else NA
}

python_in_use <- function() {
  if (reticulate::py_available()) paste("Python at", reticulate::py_config()$python) else "no Python"
}

# Versions of Python and of the packages installed there, NA if missing. Starts Python.
found_versions <- function() {
  if (!reticulate::py_available(initialize = TRUE)) {
    return(c(Python = NA, TensorFlow = NA, JAX = NA, Keras = NA))
  }
  c(
    Python = as.character(reticulate::py_version()),
    TensorFlow = module_version("tensorflow"),
    JAX = module_version("jax"),
    Keras = module_version("keras")
  )
}

# The version that is installed. Importing a module to ask it would start TensorFlow beside keras3.
module_version <- function(name) {
  version <- reticulate::import("importlib.metadata")$version
  for (distribution in c(name, paste0(name, c("-cpu", "-rocm", "-intel", "-macos")))) {
    found <- tryCatch(version(distribution), error = function(e) NA_character_)
    if (!is.na(found)) {
      return(found)
    }
  }
  tryCatch(reticulate::import(name)$`__version__`, error = function(e) NA_character_)
}
