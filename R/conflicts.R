#' @importFrom generics compile fit
#' @rawNamespace export(compile, fit)
NULL

#' The pipe
#'
#' `object %>% f(x)` is `f(object, x)`; see [magrittr::%>%].
#'
#' @name pipe
#' @aliases %>%
#' @usage lhs \%>\% rhs
#' @param lhs,rhs A value, and a call of the function that takes it first.
#' @return The value of the call.
#' @importFrom magrittr %>%
#' @export %>%
NULL

# Other packages that have the same names. Those of keras3 and tensorflow are used where these packages are attached:
# ours are then left out of the search path, so nothing is masked, whichever package comes first.

neighbours <- c("keras3", "tensorflow", "keras")

# The old interface has this name too, for a function that only stops.
kept_names <- list(keras = "multi_gpu_model")

attached_neighbours <- function(packages = .packages()) {
  intersect(neighbours, packages)
}

watch_neighbours <- function() {
  for (package in neighbours) {
    setHook(packageEvent(package, "attach"), function(...) attach_behind())
  }
  join_evaluate("tensorflow")
  setHook(packageEvent("tensorflow", "onLoad"), function(...) join_evaluate("tensorflow"))
}

# Removes from an attached environment what a neighbour has under the same name.
give_way <- function(attached, packages, exports_of = getNamespaceExports) {
  for (package in packages) {
    shared <- setdiff(intersect(ls(attached), exports_of(package)), kept_names[[package]])
    rm(list = shared, envir = attached)
  }
}

# Attaches this package anew, in front, with what no neighbour has.
attach_behind <- function() {
  place <- match("package:multigpu", search())
  if (!is.na(place)) {
    detach(pos = place)
    attachNamespace("multigpu")
  }
}

# `tensorflow::evaluate()` is a generic of its own: methods have to be known there too.
join_evaluate <- function(package) {
  if (!isNamespaceLoaded(package) || !"evaluate" %in% getNamespaceExports(package)) {
    return(invisible())
  }
  registerS3method(
    "evaluate", "keras.src.trainers.trainer.Trainer", evaluate.keras.src.trainers.trainer.Trainer,
    envir = asNamespace(package)
  )
}
