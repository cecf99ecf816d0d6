skip_on_cran()

test_that("an R Markdown document shows the training, its tables and its plot", {
  folder <- tempfile("document")
  dir.create(folder)
  file.copy(test_path("document.Rmd"), folder)
  printed <- run_in_new_r(sprintf("rmarkdown::render('%s', quiet = TRUE)", file.path(folder, "document.Rmd")))
  page <- file.path(folder, "document.html")
  expect_true(file.exists(page), info = paste(printed, collapse = "\n"))
  text <- paste(readLines(page), collapse = "\n")
  wanted <- c("Epoch 1/3", "Trained for 3 epochs", "device replica rows weights", "<td align=\"left\">validation</td>")
  for (shown in wanted) {
    expect_match(text, shown, fixed = TRUE)
  }
  expect_no_match(text, "WARNING|retracing|Error")
  expect_length(list.files(file.path(folder, "document_files"), "[.]png$", recursive = TRUE), 1)
})
