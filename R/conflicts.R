#' @importFrom generics compile fit
#' @rawNamespace export(compile, fit)
NULL

#' The pipe
#'
#' `object %>% f(x)` is `f(object, x)`, see [magrittr::%>%].
#'
#' @name pipe
#' @aliases %>%
#' @usage lhs \%>\% rhs
#' @param lhs,rhs A value, and a call of a function whose first argument it becomes.
#' @return The value of the call.
#' @importFrom magrittr %>%
#' @export %>%
NULL

# Other packages that export the same names. If one of them is attached, its functions are used: the functions of the
# same names are removed from the attached environment of this package, so nothing is masked, in either order.

conflicting_packages <- c("keras3", "tensorflow", "keras")

# The R interface of Keras 2 exports this name as well, for a function that only raises an error.
never_removed <- list(keras = "multi_gpu_model")

attached_conflicts <- function(packages = .packages()) {
  intersect(conflicting_packages, packages)
}

watch_conflicts <- function() {
  for (package in conflicting_packages) {
    setHook(packageEvent(package, "attach"), function(...) attach_again())
  }
  register_evaluate("tensorflow")
  setHook(packageEvent("tensorflow", "onLoad"), function(...) register_evaluate("tensorflow"))
}

# Removes from an attached environment the names that other packages export.
remove_conflicts <- function(attached, packages, exports_of = getNamespaceExports) {
  for (package in packages) {
    shared <- setdiff(intersect(ls(attached), exports_of(package)), never_removed[[package]])
    rm(list = shared, envir = attached)
  }
}

# `evaluate()` of the package generics takes `x` for the model, where that of this package has `x` for the data. That
# this one hides it is no news where nothing else is hidden.
be_quiet_about_generics <- function(attached) {
  hides <- function(position) any(ls(attached) %in% ls(position))
  others <- setdiff(search(), c("package:multigpu", "package:generics", "package:base"))
  if ("package:generics" %in% search() && !any(vapply(others, hides, NA))) {
    assign(".conflicts.OK", TRUE, envir = attached)
  }
}

# Attaches this package again, in front, without the names that other packages export.
attach_again <- function() {
  position <- match("package:multigpu", search())
  if (!is.na(position)) {
    detach(pos = position)
    attachNamespace("multigpu")
  }
}

# `tensorflow::evaluate()` is a different generic: the method must be registered there as well.
register_evaluate <- function(package) {
  if (!isNamespaceLoaded(package) || !"evaluate" %in% getNamespaceExports(package)) {
    return(invisible())
  }
  registerS3method(
    "evaluate", "keras.src.trainers.trainer.Trainer", evaluate.keras.src.trainers.trainer.Trainer,
    envir = asNamespace(package)
  )
}
