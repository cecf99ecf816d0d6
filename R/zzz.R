.onLoad <- function(libname, pkgname) { # nolint: object_name_linter. R's name.
  declare_python()
  declare_tensors()
  when_loaded("tensorflow", declare_tensors)
  when_loaded("keras3", function() when_loaded("tensorflow", take_evaluate)) # which keras3 loads before itself
}

.onAttach <- function(libname, pkgname) { # nolint: object_name_linter. R's name.
  if (isNamespaceLoaded("keras3")) packageStartupMessage(beside_keras3)
}

beside_keras3 <- paste0(
  "Beside keras3, the verbs of a parallel model are those of multigpu, those of all other models are those of keras3; ",
  "of what both export, R takes what was attached last."
)

when_loaded <- function(package, act) {
  if (isNamespaceLoaded(package)) act() else setHook(packageEvent(package, "onLoad"), function(...) act())
}

# `evaluate()` of keras3 is a different generic, from the R package tensorflow. This one finds the same methods.
take_evaluate <- function() {
  theirs <- utils::getS3method("evaluate", keras_model_class, envir = asNamespace("tensorflow"))
  registerS3method("evaluate", keras_model_class, theirs, envir = asNamespace("multigpu"))
}

keras_model_class <- "keras.src.models.model.Model"
