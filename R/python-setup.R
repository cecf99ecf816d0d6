#' Install what multigpu needs in Python
#'
#' Makes a virtual environment with TensorFlow and Keras, which is found without further settings when R starts anew.
#' On Linux with an NVIDIA driver it includes what TensorFlow needs for GPUs. With reticulate 1.41 or later there is
#' often no need for it: where no other Python is chosen, reticulate then makes an environment of its own.
#'
#' @param envname Name of the virtual environment.
#' @param python Path of the Python to make it with, 3.11 or later; `NULL` for the one that reticulate finds. With
#'   reticulate before 1.38 it has to be 3.11.
#' @param cuda Whether to install what TensorFlow needs for NVIDIA GPUs.
#' @return `NULL`, invisibly.
#' @family set-up
#' @examples
#' \dontrun{
#' install_multigpu()
#' }
#' @export
install_multigpu <- function(envname = "r-multigpu", python = NULL, cuda = has_nvidia()) {
  if (!reticulate::virtualenv_exists(envname)) {
    reticulate::virtualenv_create(envname, python = python, packages = NULL)
  }
  reticulate::virtualenv_install(envname, python_packages(cuda = cuda))
  message("Installed into the virtual environment ", envname, ". Restart R, then try `multigpu_sitrep()`.")
  invisible()
}

python_packages <- function(reticulate = utils::packageVersion("reticulate"), cuda = FALSE) {
  c(
    if (cuda) "tensorflow[and-cuda]>=2.21" else "tensorflow>=2.21",
    "keras>=3.15.1",
    if (reticulate < "1.38") "numpy>=1.26,<2" else "numpy>=1.26", # older ones cannot read arrays of numpy 2
    "h5py>=3.14"
  )
}

has_nvidia <- function() {
  Sys.info()[["sysname"]] == "Linux" && file.exists("/proc/driver/nvidia/version")
}

#' What is installed, and what is missing
#'
#' Prints, in one screen, the versions of R, reticulate, Python, TensorFlow and Keras, the GPUs found, and how to cure
#' what is missing. In RStudio it is also among the add-ins. Starts Python.
#'
#' @return A data frame of pieces, versions found, versions needed and cures, invisibly.
#' @family set-up
#' @examples
#' \dontrun{
#' multigpu_sitrep()
#' }
#' @export
multigpu_sitrep <- function() {
  versions <- tryCatch(found_versions(), error = function(e) c(Python = NA, TensorFlow = NA, Keras = NA))
  report <- situation(c(
    R = as.character(getRversion()),
    reticulate = as.character(utils::packageVersion("reticulate")),
    versions
  ))
  cat("multigpu ", as.character(utils::packageVersion("multigpu")), "\n\n", sep = "")
  cat(situation_lines(report), sep = "\n")
  cat("\n", python_in_use(), "\n", found_gpus(report), "\n", sep = "")
  invisible(report)
}

situation <- function(found) {
  needed <- c(R = "4.1", reticulate = "1.28", needed_versions)
  cures <- c(R = "install R anew", reticulate = "install.packages(\"reticulate\")", Python = "install_multigpu()")
  is_fine <- mapply(is_enough, found[names(needed)], needed)
  cure <- ifelse(names(needed) %in% names(cures), cures[names(needed)], cures[["Python"]])
  data.frame(
    piece = names(needed), found = unname(found[names(needed)]), needed = unname(needed),
    cure = ifelse(is_fine, NA, unname(cure))
  )
}

situation_lines <- function(report) {
  found <- ifelse(is.na(report$found), "none", report$found)
  advice <- ifelse(is.na(report$cure), "", paste0("needs ", report$needed, ": ", report$cure))
  sub(" +$", "", paste0(format(report$piece), "  ", format(found), "  ", advice))
}

# Asks without starting the devices, so that `simulate_gpus()` can still be called.
found_gpus <- function(report) {
  if (!all(is.na(report$cure))) {
    return("GPUs: not asked for, as pieces are missing")
  }
  gpus <- vapply(tf$config$list_physical_devices("GPU"), function(gpu) sub("^/physical_device:", "", gpu$name), "")
  switch(min(length(gpus), 2) + 1,
    "GPUs: none; simulate_gpus(2) splits the CPU to try things out",
    paste0("GPUs: ", gpus, "; simulate_gpus(2) splits it to try things out"),
    paste0("GPUs: ", paste(gpus, collapse = ", "))
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
