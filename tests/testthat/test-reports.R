test_that("an overview is a data frame, whose bytes print with a unit", {
  parallel <- parallel_model()
  fit(parallel, small_data()$x, small_data()$y, epochs = 1)
  table <- overview(parallel, batch_size = 10)
  expect_s3_class(table, "data.frame")
  expect_identical(table$device, available_gpus()$name)
  expect_identical(as.integer(table$rows), c(3L, 3L, 2L, 2L))
  expect_identical(sum(table$weights), 4L * length(weights_of(parallel)))
  expect_true(all(is.na(overview(parallel)$rows)))
  expect_snapshot(print(table))
})

skip_on_cran()

test_that("a model that is not parallel has no overview", {
  expect_snapshot(writeLines(error_text(overview(small_model()))))
})

test_that("an estimate is a data frame, whose bytes print with a unit", {
  table <- estimate(small_model(), gpus = 2, batch_size = 10, optimizer = "adam")
  expect_s3_class(table, "data.frame")
  expect_identical(table$device, c("CPU:0", "CPU:1"))
  expect_identical(sum(table$parameters), 49L)
  expect_identical(as.numeric(sum(table$weights)), 4 * 49)
  expect_identical(as.numeric(sum(table$optimizer)), 2 * 4 * 49)
  expect_snapshot(print(table))
})

test_that("the layers of an estimate are a data frame, whose bytes print with a unit", {
  estimated <- estimate(small_model(), gpus = 2, batch_size = 10, optimizer = "adam")
  table <- layers_of(estimated)
  expect_s3_class(table, "data.frame")
  expect_identical(table$name, c("hidden", "out"))
  expect_identical(unclass(table$weights), c(4L * (4L * 8L + 8L), 4L * (8L + 1L)))
  expect_identical(table$work, c(2L * 4L * 8L + 8L, 2L * 8L + 1L))
  expect_identical(unclass(table$crossing), c(4L * 8L, 0L))
  expect_equal(table$work_share, cumsum(table$work) / sum(table$work))
  expect_snapshot(print(table))
})

test_that("slices that fit are those of the estimate", {
  estimated <- estimate(small_model(), gpus = 2, batch_size = 10, optimizer = "adam")
  free <- 5000 - estimated$total + estimated$slices * estimated$per_slice
  expect_equal(slices_that_fit(estimated, 5000), min(free %/% estimated$per_slice))
  expect_identical(slices_that_fit(estimated, 10), 0L)
  expect_gt(slices_that_fit(estimated, 1e14), .Machine$integer.max)
})

test_that("only a whole estimate of this session can be asked for more", {
  estimated <- estimate(small_model(), gpus = 2)
  file <- tempfile(fileext = ".rds")
  saveRDS(estimated, file)
  expect_snapshot({
    writeLines(error_text(layers_of(estimated[1, ])))
    writeLines(error_text(layers_of(readRDS(file))))
    writeLines(error_text(slices_that_fit(small_model(), 10)))
    writeLines(error_text(slices_that_fit(estimated, "24GB")))
  })
})

test_that("the GPUs of an estimate need not exist", {
  expect_identical(nrow(estimate(small_model(), gpus = 64, batch_size = 128)), 64L)
})

test_that("sizes that are too large for R's integers are not changed", {
  table <- estimate(small_model(), gpus = 2, batch_size = 1e9)
  expect_identical(table$rows, c(5e8L, 5e8L))
  expect_gte(min(table$received), 5e8 * 4 * 4) # rows of four inputs in float32
  expect_true(all(table$total >= table$activations))
})

test_that("a measurement is one row, and does not change the model", {
  parallel <- parallel_model()
  before <- weights_of(parallel)
  data <- small_data()
  measured <- measure(parallel, data$x, data$y, batch_size = 8, steps = 1, verbose = 0)
  expect_identical(nrow(measured), 1L)
  expect_equal(measured$speed_up, measured$one_device / measured$all_devices)
  expect_equal(measured$compute + measured$transfer + measured$waiting, 1)
  expect_match(measured$verdict, "pays?[ :]")
  expect_identical(weights_of(parallel), before)
})

test_that("invalid arguments of estimate() and measure() are errors", {
  expect_snapshot({
    writeLines(error_text(estimate(small_model(), gpus = 2, batch_size = 0)))
    writeLines(error_text(measure(small_model(), 1, 1)))
  })
})
