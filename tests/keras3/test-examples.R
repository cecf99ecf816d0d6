# Every example that the documents show, beside the real keras3: all of a kind in one process, in which it may be
# attached before or after.

in_folder <- function() c(sprintf("setwd('%s')", tempfile_folder()), "options(keras.fit_verbose = 0)", "pdf(NULL)")

tempfile_folder <- function() {
  folder <- tempfile("examples")
  dir.create(folder)
  folder
}

# The code of one help page, without what is marked as not to be run.
page_code <- function(page) {
  file <- tempfile(fileext = ".R")
  tools::Rd2ex(page, file, commentDontrun = TRUE)
  if (file.exists(file)) readLines(file)
}

# The code of a page in Markdown in R: `r`, or `R` where it needs keras3. What is shown as an error is tried.
markdown_code <- function(path, marked = "r") {
  lines <- readLines(path)
  begins <- grep(sprintf("^ *```(\\{%1$s.*\\}|%1$s)$", marked), lines)
  unlist(lapply(begins, function(begin) {
    end <- begin + grep("^ *```$", lines[-seq_len(begin)])[[1]]
    code <- lines[seq(begin + 1, length.out = end - begin - 1)]
    if (grepl("error = TRUE", lines[[begin]])) c("try({", code, "})") else code
  }))
}

root <- normalizePath(file.path("..", ".."))
page <- function(..., marked = "r") markdown_code(file.path(root, ...), marked)

# What the set-up of the package does outside of R's own process.
stand_ins <- c(
  "install.packages <- function(...) invisible()",
  "for (name in c('virtualenv_exists', 'virtualenv_create', 'virtualenv_install')) {",
  "  assignInNamespace(name, function(...) TRUE, 'reticulate')",
  "}"
)

shown <- list(
  "the quick start and the page about R" = c(stand_ins, page("README.md"), page("docs", "r.md")),
  "the part of the page about R that is for keras3" = page("docs", "r.md", marked = "R"),
  "the page about several machines" = page("docs", "multi-worker.md"),
  "the page about the command line" = page("docs", "command-line.md"),
  "the first page" = page("docs", "index.md"),
  "the tutorial" = page("docs", "tutorial-r.md"),
  "the page about parts of models" = page("docs", "model-parallel.md"),
  "the page about installation" = c(stand_ins, page("docs", "install.md")),
  "the vignette" = page("vignettes", "multigpu.Rmd"),
  "the document to render" = c(
    "params <- list(gpus = 4, epochs = 2, file = 'flowers.h5')", page("examples", "training.Rmd")
  ),
  "the demo" = readLines(file.path(root, "examples", "demo.R"))
)

test_that("all pages with code in R are run", {
  pages <- c(list.files(root, "[.]R?md$"), file.path("docs", list.files(file.path(root, "docs"), "[.]md$")))
  with_r <- Filter(function(path) length(page(path)) > 0, pages)
  run <- c("README", "r", "index", "model-parallel", "install", "multi-worker", "command-line", "tutorial-r")
  expect_setequal(sub("[.]md$", "", basename(with_r)), run)
  expect_gt(length(unlist(shown)), 200)
  expect_true(all(lengths(shown) > 0))
})

for (order in names(orders)) {
  test_that(paste("the examples of all help pages run, with keras3 attached", order), {
    pages <- Filter(length, lapply(tools::Rd_db("multigpu"), page_code))
    expect_gt(length(pages), 15)
    expect_runs(c(in_folder(), orders[[order]], devices, unlist(pages)))
  })

  for (name in names(shown)) {
    test_that(paste("the code of", name, "runs, with keras3 attached", order), {
      expect_runs(c(in_folder(), orders[[order]], shown[[name]]))
    })
  }
}
