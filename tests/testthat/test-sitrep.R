test_that("the report names every piece and its version", {
  printed <- capture.output(report <- multigpu_sitrep())
  expect_true(all(is.na(report$cure)))
  expect_match(printed, paste0("Keras +", keras$`__version__`), all = FALSE)
  expect_lt(length(printed), 24) # one screen
})

test_that("what is missing stands beside its cure", {
  found <- c(R = "4.2.2", reticulate = "1.20", Python = "3.11", TensorFlow = NA, Keras = "2.9")
  expect_snapshot(writeLines(situation_lines(situation(found))))
  expect_identical(found_gpus(situation(found)), "GPUs: not asked for, as pieces are missing")
})

test_that("the add-in calls a function that is there", {
  addin <- read.dcf(system.file("rstudio", "addins.dcf", package = "multigpu"))
  expect_true(addin[, "Binding"] %in% getNamespaceExports("multigpu"))
})
