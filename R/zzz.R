.onLoad <- function(libname, pkgname) { # nolint: object_name_linter. R's name.
  declare_python()
  watch_neighbours()
}

.onAttach <- function(libname, pkgname) { # nolint: object_name_linter. R's name.
  give_way(as.environment("package:multigpu"), attached_neighbours())
}
