# Trains a small network for handwritten digits on four GPUs, real or simulated, and saves it.

library(multigpu)

build_model <- function() {
  layers <- keras$layers
  keras_model_sequential(layers = list(
    keras$Input(list(8L, 8L, 1L)),
    layers$Rescaling(1 / 16),
    layers$Conv2D(32L, 3L, padding = "same", activation = "relu"),
    layers$Conv2D(64L, 3L, padding = "same", activation = "relu"),
    layers$MaxPooling2D(),
    layers$Flatten(),
    layers$Dropout(0.3),
    layers$Dense(10L, activation = "softmax")
  ))
}

simulate_gpus(4) # leave this line out on a machine with GPUs
keras$utils$set_random_seed(0L)
digits <- reticulate::import("sklearn.datasets")$load_digits()
x <- reticulate::array_reshape(digits$data, c(nrow(digits$data), 8, 8, 1))
y <- digits$target
set.seed(0)
test <- sample(nrow(x), 450)

model <- build_model()
parallel <- multi_gpu_model(model, gpus = 4)
parallel |> compile(
  optimizer = keras$optimizers$Adam(0.003),
  loss = "sparse_categorical_crossentropy",
  metrics = "accuracy"
)
history <- parallel |> fit(
  x[-test, , , , drop = FALSE], y[-test],
  batch_size = 64, epochs = 20, verbose = 2
)
print(history)

file <- tempfile(fileext = ".h5")
save_model_hdf5(model, file) # the template: a plain Keras file, without a trace of the GPUs
models <- list("parallel, 4 devices" = parallel, "template, 1 device" = model, "reloaded file" = load_model_hdf5(file))
accuracy <- vapply(models, function(each) evaluate(each, x[test, , , , drop = FALSE], y[test], verbose = 0)$accuracy, 0)
cat("Accuracy on held-out digits:\n", sprintf("  %-20s %.2f%%\n", names(accuracy), 100 * accuracy), sep = "")
quit(status = as.integer(length(unique(accuracy)) > 1 || accuracy[[1]] < 0.96))
