skip_on_cran()

history_of_three <- function() {
  structure(
    list(
      params = list(epochs = 3L),
      metrics = list(loss = c(3, 2, 1), mae = c(0.5, 0.25, 0.125), val_loss = c(4, 3, 2)),
      epochs = 1:3
    ),
    class = c("multigpu_history", "keras_training_history")
  )
}

test_that("a history prints its last values", {
  expect_snapshot(print(history_of_three()))
})

test_that("a history is a data frame of one row per epoch, metric and kind of data", {
  values <- as.data.frame(history_of_three())
  expect_identical(names(values), c("epoch", "value", "metric", "data"))
  expect_identical(values$metric, factor(rep(c("loss", "mae", "loss"), each = 3)))
  expect_identical(values$data, factor(rep(c("training", "training", "validation"), each = 3)))
  expect_identical(values$value[7:9], c(4, 3, 2))
})

test_that("epochs of a resumed training, and of validation every second epoch, are those of Keras", {
  data <- small_data()
  history <- fit(
    shared_parallel_model(), data$x, data$y,
    epochs = 6, initial_epoch = 2,
    validation_data = list(data$x, data$y), validation_freq = 2L
  )
  values <- as.data.frame(history)
  expect_identical(values$epoch[values$data == "training"], 3:6)
  expect_identical(values$epoch[values$data == "validation"], c(4L, 6L))
})

test_that("epochs of a validation are those that Keras counts, wherever a training begins and ends", {
  expect_identical(validated(4:6, 2), c(4L, 6L))
  expect_identical(validated(3:5, 2), 4L)
  expect_identical(validated(1:5, list(1, 4)), c(1L, 4L))
  expect_identical(validated(1:5, c(1, 4)), c(1L, 4L))
})

test_that("a history plots with either kind of graphics", {
  grDevices::pdf(NULL)
  on.exit(grDevices::dev.off())
  history <- history_of_three()
  expect_identical(plot(history, method = "base"), history)
  expect_s3_class(plot(history, method = "ggplot2"), "ggplot")
  expect_identical(unique(as.character(plot(history, metrics = "loss", method = "ggplot2")$data$metric)), "loss")
})

test_that("a training of 0 epochs has a history that prints, and no plot", {
  history <- fit(shared_parallel_model(), small_data()$x, small_data()$y, epochs = 0)
  expect_output(print(history), "^Trained for 0 epochs.$")
  expect_identical(nrow(as.data.frame(history)), 0L)
  expect_snapshot({
    writeLines(error_text(plot(history)))
    writeLines(error_text(plot(history_of_three(), metrics = "acc")))
  })
})

test_that("the axis of epochs has whole numbers", {
  expect_equal(whole_epochs(c(0.9, 2.1)), c(1, 2))
  expect_equal(whole_epochs(c(3, 3)), 3)
  expect_equal(whole_epochs(c(1, 20)), c(5, 10, 15, 20))
})
