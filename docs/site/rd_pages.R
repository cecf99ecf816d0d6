# Each Rd page of `man/` as HTML, a file for each in the folder `$1`, and `topics.tsv`: file, name, title, aliases.
folder <- commandArgs(trailingOnly = TRUE)[[1]]
tag_of <- function(rd, tag) {
  found <- Filter(function(part) identical(attr(part, "Rd_tag"), tag), rd)
  vapply(found, function(part) trimws(paste(unlist(part), collapse = "")), "")
}
files <- list.files("man", "[.]Rd$", full.names = TRUE)
pages <- lapply(files, tools::parse_Rd)
names(pages) <- sub("[.]Rd$", "", basename(files))
aliases <- lapply(pages, tag_of, "\\alias")
# where links lead: between topics, and to those of R itself
links <- stats::setNames(paste0(rep(names(aliases), lengths(aliases)), ".html"), unlist(aliases))
of_r <- sub("^../..", "https://stat.ethz.ch/R-manual/R-devel/library", tools::findHTMLlinks(level = 1))
rows <- lapply(names(pages), function(page) {
  tools::Rd2HTML(
    pages[[page]], file.path(folder, paste0(page, ".html")),
    dynamic = FALSE, Links = links, Links2 = of_r
  )
  title <- gsub("\\s+", " ", tag_of(pages[[page]], "\\title"))
  data.frame(page, tag_of(pages[[page]], "\\name"), title, toString(aliases[[page]]))
})
utils::write.table(
  do.call(rbind, rows), file.path(folder, "topics.tsv"),
  sep = "\t", quote = FALSE, row.names = FALSE, col.names = FALSE
)
