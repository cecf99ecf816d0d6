skip_on_cran()

test_that("simulated devices are those that `gpus` counts", {
  gpus <- available_gpus()
  expect_s3_class(gpus, "data.frame")
  expect_identical(gpus$id, 0:3)
  expect_identical(gpus$name, c("CPU:0", "CPU:1", "CPU:2", "CPU:3"))
  expect_identical(names(gpus), c("id", "name", "physical", "memory_total", "memory_free"))
  expect_snapshot(print(gpus))
  expect_identical(as_gpus(gpus), as.list(gpus$name))
})

test_that("devices cannot be simulated twice, nor in parts", {
  expect_snapshot({
    writeLines(error_text(simulate_gpus(2)))
    writeLines(error_text(simulate_gpus(2.5)))
  })
})

test_that("bring_home() moves all weights to one device", {
  parallel <- parallel_model()
  before <- weights_of(parallel)
  expect_identical(bring_home(parallel$template, "CPU:1"), parallel$template)
  expect_identical(weights_of(parallel), before)
  expect_identical(sum(overview(parallel)$weights > 0), 1L)
})

test_that("an overview after bring_home() has all weights where they are", {
  parallel <- parallel_model()
  fit(parallel, small_data()$x, small_data()$y, epochs = 1)
  before <- overview(parallel)
  bring_home(parallel, "CPU:1")
  after <- overview(parallel)
  total <- sum(before$weights)
  expect_gt(sum(before$weights > 0), 1)
  expect_identical(as.numeric(after$weights), c(0, total, 0, 0))
  expect_identical(as.numeric(after$slots), c(0, sum(before$slots), 0, 0))
  expect_identical(as.numeric(after$sent), c(1, 3, 1, 1) * total) # of weights to three, of gradients from each
  expect_identical(as.numeric(after$received), as.numeric(after$sent))
})

test_that("an unknown device for bring_home() is an error", {
  expect_snapshot(writeLines(error_text(bring_home(small_model(), "GPU:7"))))
})

test_that("parts of a model run on the devices that `with()` names, and train as on one", {
  build <- function(on) {
    keras$utils$set_random_seed(0L)
    first <- keras$Input(list(3L))
    second <- keras$Input(list(3L))
    encode <- keras$layers$Dense(4L, activation = "tanh")
    with(on("CPU:1"), {
      a <- encode(first)
    })
    with(on("CPU:2"), {
      b <- encode(second)
    })
    model <- keras_model(list(first, second), keras$layers$Dense(1L)(keras$layers$concatenate(list(a, b))))
    compile(model, "sgd", "mse")
  }
  set.seed(1)
  x <- list(matrix(rnorm(30), 10), matrix(rnorm(30), 10))
  y <- rnorm(10)
  placed <- build(on_device)
  plain <- build(tf$device) # around a layer call it does nothing in Keras 3
  device <- function(model) sub(".*device:", "", model$weights[[1]]$value$device)
  expect_identical(device(placed), "CPU:1")
  fit(placed, x, y, epochs = 2, batch_size = 5)
  fit(plain, x, y, epochs = 2, batch_size = 5)
  expect_equal(weights_of(placed), weights_of(plain), tolerance = 1e-5) # float32
})

test_that("an unknown device for on_device() is an error", {
  expect_snapshot(writeLines(error_text(on_device("GPU:7"))))
})
