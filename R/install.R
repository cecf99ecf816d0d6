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
