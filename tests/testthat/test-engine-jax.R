# The engine on JAX, in a session of its own: a process has one backend of Keras.

skip_on_cran()

on_jax <- r"---(
library(multigpu)
simulate_gpus(3)
show <- function(name, ...) cat(name, "=", gsub("\\s+", " ", paste(...)), "\n")
set.seed(1)
x <- matrix(rnorm(68), 17)
y <- x[, 1] - 2 * x[, 2]
make <- function() {
  model <- keras_model_sequential(input_shape = 4, layers = list(
    keras$layers$Dense(8L, activation = "relu", kernel_initializer = keras$initializers$GlorotUniform(seed = 1L)),
    keras$layers$Dropout(0.2, seed = 2L),
    keras$layers$Dense(1L, kernel_initializer = keras$initializers$GlorotUniform(seed = 3L))
  ))
}
trained <- function(model, loss, ...) {
  model |> compile("adam", loss, ...)
  model |> fit(x, y, epochs = 2, batch_size = 7, verbose = 0, shuffle = FALSE, validation_split = 0.2)
}
losses <- list(
  words = function(y_true, y_pred) mean(ifelse(y_true > 0, abs(y_true - y_pred), 2 * (y_pred - y_true)^2)),
  rows = function(y_true, y_pred) rowMeans(pmax(y_true - y_pred, 0) + (y_true - y_pred)^2),
  counts = function(y_true, y_pred) sum((y_true - y_pred)^2) / nrow(y_pred) + length(y_pred) + sd(y_pred[, 1])
)
farthest <- function(model, other) max(abs(unlist(get_weights(model)) - unlist(get_weights(other))))
for (name in names(losses)) {
  one <- make()
  template <- make()
  expected <- trained(one, losses[[name]], metrics = list(far = losses$words))
  found <- trained(multi_gpu_model(template, gpus = 3), losses[[name]], metrics = list(far = losses$words))
  show(name, farthest(one, template), max(abs(unlist(expected$metrics) - unlist(found$metrics))))
}
parallel_model <- multi_gpu_model(template, gpus = 3)
reversed <- function(y_true, y_pred) mean(rev(y_pred))
tryCatch(trained(parallel_model, reversed), error = function(e) show("error", conditionMessage(e)))
parallel_model <- multi_gpu_model(make(), gpus = 3)
template <- parallel_model$template
parallel_model |> compile("adam", "mse")
show("TensorFlow", reticulate::py_eval("'tensorflow' in __import__('sys').modules"))

batches <- 0
next_batch <- function() {
  batches <<- batches + 1
  list(x[1:5, ], y[1:5])
}
seen <- character()
note <- function(epoch, logs) seen <<- c(seen, names(logs))
history <- parallel_model |>
  fit(next_batch, steps_per_epoch = 2, epochs = 2, verbose = 0, callbacks = list(on_epoch_end = note))
show("generator", batches, toString(seen), length(history$metrics$loss))

show("sparse", max(abs(predict(parallel_model, Matrix::Matrix(x, sparse = TRUE)) - predict(template, x))))
show("data frame", max(abs(predict(parallel_model, as.data.frame(x)) - predict(template, x))))
file <- tempfile(fileext = ".h5")
save_model_hdf5(parallel_model, file)
show("file", max(abs(predict(load_model_hdf5(file), x) - predict(template, x))))
show("overview", toString(names(overview(parallel_model, 32))), nrow(overview(parallel_model, 32)))
show("gpus", toString(available_gpus()$name))
tryCatch(with(on_device(0), 1), error = function(e) show("on_device", conditionMessage(e)))
relocated <- multi_gpu_model(make(), cpu_merge = FALSE, cpu_relocation = TRUE)
one <- make()
trained(one, "mse")
trained(relocated, "mse")
show("relocated", farthest(one, relocated))
show("step", abs(train_on_batch(one, x, y)[[1]] - train_on_batch(relocated, x, y)[[1]]))
bring_home(relocated)
show("home", trained(relocated, "mse")$params$epochs)
)---"

printed <- local({
  lines <- NULL
  function(name) {
    if (is.null(lines)) lines <<- run_in_new_r(on_jax, env = "KERAS_BACKEND=jax")
    found <- grep(paste0("^", name, " = "), lines, value = TRUE)
    if (length(found) == 0) stop(paste(c("No such line:", name, utils::tail(lines, 20)), collapse = "\n"))
    trimws(substring(found, nchar(name) + 4))
  }
})
numbers <- function(name) as.numeric(strsplit(printed(name), " ")[[1]])

test_that("losses and metrics in R's words give the weights, losses and metrics of one device", {
  for (name in c("words", "rows", "counts")) expect_lt(max(numbers(name)), 1e-5)
})

test_that("a word that tensors do not have is refused by name, without JAX's own remarks", {
  expect_match(printed("error"), "Received: `rev()` of a tensor", fixed = TRUE)
  expect_no_match(printed("error"), "simplicity")
})

test_that("training does not import TensorFlow", {
  expect_identical(printed("TensorFlow"), "FALSE")
})

test_that("generators and callbacks run in R, and no batch is asked for too often", {
  expect_identical(printed("generator"), "4 loss, loss 2")
})

test_that("sparse matrices and data frames are inputs", {
  expect_lt(numbers("sparse"), 1e-6)
  expect_lt(numbers("data frame"), 1e-6)
})

test_that("a file has the template with its weights", {
  expect_lt(numbers("file"), 1e-6)
})

test_that("tables are data frames", {
  expect_identical(printed("overview"), "device, replica, rows, weights, slots, received, sent, transfers 3")
  expect_identical(printed("gpus"), "CPU:0, CPU:1, CPU:2")
})

test_that("what the engine does not have is refused by name", {
  expect_match(printed("on_device"), "on JAX, which divides weights", fixed = TRUE)
})

test_that("cpu_relocation, single steps and bring_home() give the numbers of one device", {
  expect_lt(numbers("relocated"), 1e-5)
  expect_lt(numbers("step"), 1e-5)
  expect_identical(printed("home"), "2")
})
