.onLoad <- function(libname, pkgname) { # nolint: object_name_linter. R's name.
  declare_python()
  watch_conflicts()
}

.onAttach <- function(libname, pkgname) { # nolint: object_name_linter. R's name.
  remove_conflicts(as.environment("package:multigpu"), attached_conflicts())
}
