.onLoad <- function(libname, pkgname) { # nolint: object_name_linter. R's name.
  declare_python()
  watch_conflicts()
}

.onAttach <- function(libname, pkgname) { # nolint: object_name_linter. R's name.
  attached <- as.environment("package:multigpu")
  remove_conflicts(attached, attached_conflicts())
  be_quiet_about_generics(attached)
}
