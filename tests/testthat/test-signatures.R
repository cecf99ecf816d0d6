# Names, order and defaults of the functions of both languages are the same: in R, on its help pages, and in Python.

skip_on_cran()

shared <- c(
  "multi_gpu_model", "simulate_gpus", "available_gpus", "bring_home", "save_model_hdf5", "load_model_hdf5",
  "save_model_weights_hdf5", "load_model_weights_hdf5", "clean_parallel_hdf5", "on_device",
  "estimate", "measure", "join_cluster", "synchronize_batch_norm"
)
python_only <- c("restore_old_names", "plot_history", "TooFewGPUsError", "UntrustedFileError", "WorkerLostError")

python_signature <- function(name) {
  parameters <- reticulate::import("inspect")$signature(reticulate::import("multigpu")[[name]])$parameters
  parameters <- reticulate::iterate(parameters$values())
  is_empty <- function(parameter) inherits(parameter$default, "python.builtin.type") # `inspect.Parameter.empty`
  defaults <- lapply(parameters, function(each) if (is_empty(each)) "no default" else each$default)
  stats::setNames(defaults, vapply(parameters, function(each) each$name, ""))
}

r_signature <- function(name) {
  lapply(as.list(formals(getExportedValue("multigpu", name))), evaluated)
}

page_signature <- function(name) {
  usages <- unlist(lapply(tools::Rd_db("multigpu"), page_usage))
  is_usage <- function(call) is.call(call) && identical(call[[1]], as.name(name))
  call <- Filter(is_usage, parse(text = usages, keep.source = FALSE))[[1]]
  arguments <- as.list(call)[-1]
  has_default <- nzchar(names(arguments) %||% rep("", length(arguments)))
  names <- ifelse(has_default, names(arguments), vapply(arguments, deparse1, ""))
  defaults <- Map(function(argument, known) if (known) eval(argument) else "no default", arguments, has_default)
  stats::setNames(defaults, as.character(names))
}

page_usage <- function(page) {
  usage <- Filter(function(part) identical(attr(part, "Rd_tag"), "\\usage"), page)
  lines <- unlist(usage)
  paste(lines[!grepl("\\method|%>%", lines)], collapse = "")
}

evaluated <- function(default) {
  if (is.symbol(default) && !nzchar(as.character(default))) "no default" else eval(default)
}

as_numbers <- function(signature) {
  lapply(signature, function(default) if (is.integer(default)) as.numeric(default) else default)
}

for (name in shared) {
  test_that(paste0("`", name, "()` is the same in R, on its page and in Python"), {
    python <- as_numbers(python_signature(name))
    expect_identical(unname(as_numbers(r_signature(name))), unname(python))
    expect_identical(names(r_signature(name)) %||% character(), names(python) %||% character())
    expect_identical(unname(as_numbers(page_signature(name))), unname(as_numbers(r_signature(name))))
    expect_identical(names(page_signature(name)), names(r_signature(name)) %||% character())
  })
}

test_that("R exports what Python exports", {
  expect_setequal(c(shared, python_only), unlist(reticulate::import("multigpu")$`__all__`))
})

test_that("both languages have the same version", {
  expect_identical(as.character(utils::packageVersion("multigpu")), reticulate::import("multigpu")$`__version__`)
})
