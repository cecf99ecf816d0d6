small_model <- function(seed = 0L) {
  keras$utils$set_random_seed(seed)
  keras_model_sequential(layers = list(
    keras$Input(list(4L)),
    keras$layers$Dense(8L, activation = "relu", name = "hidden"),
    keras$layers$Dense(1L, name = "out")
  ), name = "small")
}

small_data <- function(rows = 50) {
  set.seed(1)
  x <- matrix(rnorm(rows * 4), rows)
  list(x = x, y = x[, 1] - 2 * x[, 2])
}

parallel_model <- function(...) {
  model <- multi_gpu_model(small_model(), gpus = 4)
  compile(model, "sgd", "mse", ...)
}

# One for all tests that say nothing about a model's first training: TensorFlow traces a step, which takes longest.
shared_parallel_model <- local({
  model <- NULL
  function() {
    if (is.null(model)) model <<- parallel_model()
    model
  }
})

weights_of <- function(model) {
  unlist(model$get_weights())
}

# The text of an error in one line, for snapshots that are the same with every version of testthat and cli.
error_text <- function(expr) {
  tryCatch(
    {
      force(expr)
      "no error"
    },
    error = said_by
  )
}

# What R prints when it runs these lines in a process of its own, in which only the packages installed here are known.
run_in_new_r <- function(lines, lib = NULL, env = character()) {
  file <- tempfile(fileext = ".R")
  writeLines(lines, file)
  libs <- paste(c(lib, .libPaths()), collapse = .Platform$path.sep)
  command <- file.path(R.home("bin"), "Rscript")
  system2(command, shQuote(file), stdout = TRUE, stderr = TRUE, env = c(paste0("R_LIBS=", libs), "TESTTHAT=false", env))
}

# The same for several scripts that need a new R but no TensorFlow: forks of one R, which has loaded what this package
# imports. That takes most of the time in which a script starts.
run_in_new_rs <- function(scripts, lib = NULL) {
  files <- vapply(scripts, function(lines) {
    file <- tempfile(fileext = ".R")
    writeLines(lines, file)
    file
  }, "")
  run <- c(
    "for (package in c('generics', 'magrittr', 'reticulate')) loadNamespace(package)",
    "run <- function(file) {",
    "  printed <- file(paste0(file, 'out'), 'w')",
    "  sink(printed)",
    "  sink(printed, type = 'message')",
    "  try(source(file))",
    "  close(printed)",
    "}",
    sprintf("files <- %s", deparse1(files)),
    "done <- parallel::mclapply(files, run, mc.cores = 2, mc.preschedule = FALSE)"
  )
  said <- run_in_new_r(run, lib)
  lapply(files, function(file) {
    printed <- paste0(file, "out")
    if (file.exists(printed)) readLines(printed, warn = FALSE) else stop(paste(said, collapse = "\n"))
  })
}

# Packages that cannot be installed here, each with what its NAMESPACE and its code say, in a library of their own.
install_mocks <- function(mocks) {
  lib <- tempfile("lib")
  dir.create(lib)
  folders <- file.path(tempfile("src"), names(mocks))
  for (folder in folders) {
    mock <- mocks[[basename(folder)]]
    dir.create(file.path(folder, "R"), recursive = TRUE)
    description <- c("Version: 9.9", "Title: x", "Description: x.", "License: x")
    writeLines(c(paste("Package:", basename(folder)), description), file.path(folder, "DESCRIPTION"))
    writeLines(mock$exports, file.path(folder, "NAMESPACE"))
    writeLines(mock$code, file.path(folder, "R", "code.R"))
  }
  r <- file.path(R.home("bin"), "R")
  seen <- c( # R CMD check --as-cran hides what is not declared
    paste0("R_LIBS=", paste(.libPaths(), collapse = .Platform$path.sep)), "_R_CHECK_INSTALL_DEPENDS_=false"
  )
  options <- c("--no-byte-compile", "--no-docs", "--no-test-load") # which take longer than the rest
  printed <- system2(r, c("CMD", "INSTALL", options, "-l", lib, folders), stdout = TRUE, stderr = TRUE, env = seen)
  if (!all(dir.exists(file.path(lib, names(mocks))))) {
    stop(paste(printed, collapse = "\n"))
  }
  lib
}
