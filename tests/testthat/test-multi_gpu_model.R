python_twin <- function() {
  reticulate::py_run_string("
import keras, numpy, multigpu

def train_in_python(x, y, weights):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation='relu'), keras.layers.Dense(1)])
    parallel = multigpu.multi_gpu_model(model, gpus=4)
    model.set_weights(weights)
    parallel.compile('sgd', 'mse', metrics=['mae'])
    keras.utils.set_random_seed(3)
    history = parallel.fit(x, y, batch_size=16, epochs=3, validation_split=0.2, verbose=0)
    return history.history, model.get_weights(), parallel.predict(x, verbose=0)
")$train_in_python
}

test_that("R and Python give the same numbers for the same template and data", {
  data <- small_data()
  model <- small_model()
  start <- model$get_weights()
  parallel <- multi_gpu_model(model, gpus = 4)
  compile(parallel, "sgd", "mse", metrics = "mae")
  keras$utils$set_random_seed(3L)
  history <- fit(parallel, data$x, data$y, batch_size = 16, epochs = 3, validation_split = 0.2)
  python <- python_twin()(data$x, array(data$y), lapply(start, as_arrays))
  expect_identical(lapply(history$metrics, as.numeric), lapply(python[[1]], as.numeric))
  expect_identical(model$get_weights(), python[[2]])
  expect_identical(predict(parallel, data$x), python[[3]])
})

test_that("numbers become integer counts and ids, and a single number is a count", {
  expect_null(as_gpus(NULL))
  expect_identical(as_gpus(8), 8L)
  expect_identical(as_gpus(8L), 8L)
  expect_identical(as_gpus(list(3)), 3L)
  expect_identical(as_gpus(c(0, 2)), list(0L, 2L))
  expect_identical(as_gpus(0:1), list(0L, 1L))
  expect_identical(as_gpus(list(0L, 2L)), list(0L, 2L))
  expect_identical(as_gpus(list(0, 2)), list(0L, 2L))
  expect_identical(as_gpus(c(a = 0, b = 2)), list(0L, 2L))
  expect_identical(as_gpus(numeric(0)), list())
  expect_identical(as_gpus(-1), -1L)
})

test_that("groups train a template with parts as one device does", {
  train <- function(gpus) {
    keras$utils$set_random_seed(1L)
    x <- keras$Input(list(4L))
    with_part <- function(device, code) if (is.null(gpus)) code else with(on_device(device), code)
    hidden <- with_part("GPU:0", keras$layers$Dense(8L, activation = "relu")(x))
    y <- with_part("GPU:1", keras$layers$Dense(1L)(hidden))
    model <- keras_model(x, y)
    trained <- if (is.null(gpus)) model else multi_gpu_model(model, gpus = gpus)
    compile(trained, "sgd", "mse")
    fit(trained, small_data()$x, small_data()$y, batch_size = 16, epochs = 2, shuffle = FALSE, verbose = 0)
    weights_of(model)
  }
  plain <- train(NULL)
  expect_equal(train(list(c(0, 1), c(2, 3))), plain, tolerance = 1e-5)
  expect_equal(train(rep(list(c("GPU:0", "GPU:1")), 4)), plain, tolerance = 1e-5)
})

skip_on_cran()

test_that("synchronize_batch_norm() is for all layers of a model, and without it the first training warns", {
  inner <- keras_model_sequential(list(keras$Input(list(4L)), keras$layers$BatchNormalization(name = "deep")))
  model <- keras_model_sequential(list(keras$Input(list(4L)), inner, keras$layers$Dense(1L)))
  train <- function() {
    parallel <- compile(multi_gpu_model(model, gpus = 2), "sgd", "mse")
    fit(parallel, small_data()$x, small_data()$y, epochs = 1)
  }
  expect_snapshot_warning(train())
  expect_identical(synchronize_batch_norm(model), model)
  expect_true(inner$layers[[1]]$synchronized)
  expect_no_warning(train())
  expect_false(synchronize_batch_norm(model, FALSE)$get_layer(index = 0L)$layers[[1]]$synchronized)
  expect_error(synchronize_batch_norm(model, NA), "synchronized")
})

test_that("the template has the trained weights", {
  parallel <- shared_parallel_model()
  before <- weights_of(parallel$template)
  fit(parallel, small_data()$x, small_data()$y, epochs = 1)
  expect_identical(weights_of(parallel$template), weights_of(parallel))
  expect_false(identical(weights_of(parallel$template), before))
})

test_that("the merge and the weights are on the requested devices", {
  plan <- multi_gpu_model(small_model(), 2, cpu_merge = FALSE, cpu_relocation = TRUE)$plan
  expect_true(plan$cpu_relocation)
  expect_identical(plan$merge_device, "CPU:0") # which is the first device here
  plan <- multi_gpu_model(small_model(), c(2, 1), cpu_merge = FALSE)$plan
  expect_identical(plan$merge_device, "CPU:2")
})

test_that("what is not a template is an error", {
  expect_snapshot({
    writeLines(error_text(multi_gpu_model(1, 2)))
    writeLines(error_text(multi_gpu_model(parallel_model(), 2)))
  })
})

test_that("names remain names, also in factors, whose codes are ignored", {
  expect_identical(as_gpus("GPU:0"), "GPU:0")
  expect_identical(as_gpus(c("GPU:1", "GPU:0")), list("GPU:1", "GPU:0"))
  expect_identical(as_gpus(list("GPU:0", 1)), list("GPU:0", 1L))
  expect_identical(as_gpus(list("GPU:0")), list("GPU:0"))
  expect_identical(as_gpus(factor(c("GPU:1", "GPU:0"))), list("GPU:1", "GPU:0"))
})

test_that("a list of several ids or names is a list of groups", {
  expect_identical(as_gpus(list(c(0, 1), c(2, 3))), list(list(0L, 1L), list(2L, 3L)))
  expect_identical(as_gpus(list(c("GPU:0", "GPU:1"))), list(list("GPU:0", "GPU:1")))
  expect_identical(as_gpus(list(list(0, "GPU:1"), 2:3)), list(list(0L, "GPU:1"), list(2L, 3L)))
  expect_match(error_text(as_gpus(list(c(0, NA), c(2, 3)))), "missing values")
})

test_that("a model gets the requested devices", {
  devices <- function(gpus) unlist(multi_gpu_model(small_model(), gpus)$plan$devices)
  all <- c("CPU:0", "CPU:1", "CPU:2", "CPU:3")
  expect_identical(devices(NULL), all)
  expect_identical(devices(3), all[1:3])
  expect_identical(devices(c(0, 2)), all[c(1, 3)])
  expect_identical(devices(list(3L, 1L)), all[c(4, 2)])
  expect_identical(devices(c("CPU:1", "CPU:2")), all[2:3])
})

test_that("invalid `gpus` are errors, raised in R if conversion to Python would hide them", {
  model <- small_model()
  refusal <- function(gpus) writeLines(error_text(multi_gpu_model(model, gpus)))
  expect_snapshot({
    refusal(NA)
    refusal(NA_real_)
    refusal(c(0, NA))
    refusal(NA_character_)
    refusal(2.5)
    refusal(c(0, 1.5))
    refusal(Inf)
    refusal(1e10)
    refusal(TRUE)
    refusal(c(TRUE, FALSE))
    refusal("GPU:0")
    refusal(c("GPU", "one"))
    refusal(1)
    refusal(list(1))
    refusal(0)
    refusal(integer(0))
    refusal(list())
    refusal(-1)
    refusal(c(1, 1))
    refusal(8)
    refusal(c(0, 7))
    refusal(2i)
    refusal(list(NULL, 1))
    refusal(list(c(0, 1), 2))
    refusal(list(c(0, 1), c(2, 3)))
  })
})
