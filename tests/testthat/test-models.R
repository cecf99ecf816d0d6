skip_on_cran()

test_that("the configuration and the layers of a parallel model are those of its template", {
  model <- small_model()
  parallel <- multi_gpu_model(model, 2)
  expect_identical(get_config(parallel)$name, get_config(model)$name)
  expect_identical(get_layer(parallel, index = 1)$name, model$layers[[1]]$name)
  expect_identical(get_layer(parallel, model$layers[[2]]$name)$name, model$layers[[2]]$name)
})

test_that("a summary shows the layers and the devices", {
  parallel <- multi_gpu_model(small_model(), 2)
  lines <- capture.output(summary(parallel))
  expect_match(lines, "hidden (Dense)", fixed = TRUE, all = FALSE)
  expect_match(lines, "Parallel: 2 replicas on CPU:0, CPU:1", all = FALSE)
  expect_identical(capture.output(print(parallel)), lines)
})

test_that("a summary is as wide as R, without a terminal, too", {
  before <- options(width = 80)
  on.exit(options(before))
  for (width in c(70, 120)) {
    options(width = width)
    lines <- capture.output(print(shared_parallel_model()))
    expect_match(lines, "Param #", fixed = TRUE, all = FALSE)
    expect_identical(nchar(grep("Param #", lines, value = TRUE)), as.integer(width))
  }
})

test_that("a negative number counts layers from the last", {
  expect_identical(get_layer(small_model(), index = -1)$name, "out")
})

test_that("after `bring_home()`, `print()`, `summary()` and `overview()` say where the weights are", {
  parallel <- multi_gpu_model(small_model(), 2)
  for (shown in c(print, summary)) expect_match(capture.output(shown(parallel)), "over the devices$", all = FALSE)
  bring_home(parallel, "CPU:1")
  for (shown in c(print, summary)) expect_match(capture.output(shown(parallel)), "weights on CPU:1$", all = FALSE)
  expect_identical(overview(parallel)$weights > 0, c(FALSE, TRUE))
})

test_that("the last layer of a sequential model can be removed", {
  model <- small_model()
  pop_layer(model)
  expect_length(model$layers, 1)
})

test_that("layers that do not exist are errors", {
  model <- small_model()
  expect_snapshot({
    writeLines(error_text(get_layer(model, index = 0)))
    writeLines(error_text(get_layer(model, "none")))
    writeLines(error_text(pop_layer(multi_gpu_model(model, 2))))
  })
})

test_that("a model tells its class with its configuration, as keras3 does, and may be made as not trained", {
  model <- keras_model_sequential(4, layers = list(keras$layers$Dense(2L)), trainable = FALSE)
  expect_length(model$trainable_weights, 0)
  config <- get_config(multi_gpu_model(model, 2))
  expect_identical(attr(config, "__class__")$`__name__`, "Sequential")
  expect_identical(attr(config, "__class__")$from_config(config)$name, model$name)
})

test_that("weights of any shape come back from R, also single numbers", {
  scaled <- keras$layers$Normalization()
  scaled$adapt(matrix(as.numeric(1:12), 4))
  model <- keras_model_sequential(input_shape = 3, layers = list(scaled, keras$layers$Dense(2L)))
  weights <- get_weights(model)
  expect_equal(get_weights(set_weights(model, weights)), weights)
})
