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
