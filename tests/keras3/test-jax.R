# On JAX, chosen as keras3 chooses it.

script <- "
library(keras3)
use_backend('jax')
library(multigpu)
simulate_gpus(3)
set.seed(1)
x <- matrix(rnorm(68), 17)
y <- rowSums(x)
model <- keras_model_sequential(input_shape = 4) |>
  layer_dense(8, 'relu') |> layer_dropout(0.2, seed = 1) |> layer_dense(1)
one <- clone_model(model)
set_weights(one, get_weights(model))
train <- function(object, loss) {
  object |> compile(optimizer = 'adam', loss = loss)
  (object |> fit(x, y, epochs = 2, batch_size = 7, verbose = 0, shuffle = FALSE))$metrics$loss
}
parallel <- multi_gpu_model(model, gpus = 3)
expected <- train(one, 'mae')
found <- train(parallel, function(y_true, y_pred) mean(pmax(y_true - y_pred, y_pred - y_true)))
stopifnot(config_backend() == 'jax', all.equal(found, expected, tolerance = 1e-5))
stopifnot(all.equal(get_weights(model), get_weights(one), tolerance = 1e-5))
sparse <- Matrix::Matrix(ifelse(x > 0, x, 0), sparse = TRUE)
predicted <- parallel |> predict(sparse, verbose = 0, batch_size = 7)
stopifnot(all.equal(predicted, one |> predict(as.matrix(sparse), verbose = 0), tolerance = 1e-5))
train_on <- function(object, x) {
  (object |> fit(x, y, epochs = 1, batch_size = 7, verbose = 0, shuffle = FALSE))$metrics$loss
}
stopifnot(all.equal(train_on(parallel, sparse), train_on(one, as.matrix(sparse)), tolerance = 1e-5))
generate <- function(object) fit_generator(object, function() list(x[1:7, ], y[1:7]), steps_per_epoch = 1, verbose = 0)
messages <- capture.output(type = 'message', fitted <- lapply(list(parallel, one), generate))
stopifnot(all.equal(fitted[[1]]$metrics$loss, fitted[[2]]$metrics$loss, tolerance = 1e-5))
stopifnot(!any(grepl('initial_epoch', messages)))
file <- tempfile(fileext = '.h5')
save_model_hdf5(parallel, file)
reloaded <- load_model_hdf5(file, compile = FALSE)
stopifnot(all.equal(predict(reloaded, x, verbose = 0), predict(one, x, verbose = 0), tolerance = 1e-5))
stopifnot(nrow(overview(parallel, 32)) == 3, nrow(estimate(model, gpus = 3)) == 3)
"

test_that("a model of keras3 trains on JAX with the numbers of one device", {
  expect_runs(script)
})
