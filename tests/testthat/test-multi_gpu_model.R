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

test_that("the template has the trained weights", {
  parallel <- parallel_model()
  before <- weights_of(parallel$template)
  fit(parallel, small_data()$x, small_data()$y, epochs = 1)
  expect_identical(weights_of(parallel$template), weights_of(parallel))
  expect_false(identical(weights_of(parallel$template), before))
})

test_that("the merge and the weights are where they were asked for", {
  plan <- multi_gpu_model(small_model(), 2, cpu_merge = FALSE, cpu_relocation = TRUE)$plan
  expect_true(plan$cpu_relocation)
  expect_identical(plan$merge_device, "CPU:0") # which is the first device here
  plan <- multi_gpu_model(small_model(), c(2, 1), cpu_merge = FALSE)$plan
  expect_identical(plan$merge_device, "CPU:2")
})

test_that("what is no template is refused", {
  expect_snapshot({
    writeLines(error_text(multi_gpu_model(1, 2)))
    writeLines(error_text(multi_gpu_model(parallel_model(), 2)))
  })
})
