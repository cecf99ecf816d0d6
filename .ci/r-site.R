# The help pages and the article as a site in .venv/r-site: by pkgdown or, where that is not installed, R's own pages.
options(warn = 1)
site <- ".venv/r-site"
unlink(site, recursive = TRUE)
options(pkgdown.internet = FALSE) # it would ask CRAN about the package
if (requireNamespace("pkgdown", quietly = TRUE)) {
  pkgdown::init_site()
  pkgdown::build_home(preview = FALSE)
  pkgdown::build_reference(examples = FALSE)
  pkgdown::build_articles()
  pkgdown::build_search() # without the news, which ask CRAN for the dates of versions
  pages <- list.files(file.path(site, "reference"), "[.]html$")
} else {
  dir.create(site, recursive = TRUE)
  r <- file.path(R.home("bin"), "R")
  stopifnot(system2(r, c("CMD", "INSTALL", "--html", paste0("--library=", shQuote(site)), ".")) == 0)
  pages <- list.files(file.path(site, "multigpu", "html"), "[.]html$")
}
topics <- sub("[.]Rd$", "", list.files("man", "[.]Rd$"))
missing <- setdiff(topics, sub("[.]html$", "", pages))
if (length(missing) > 0) stop("Expected a page of each topic. Missing: ", toString(missing))
