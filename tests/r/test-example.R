# The example of the help page of Keras 2, with fewer GPUs and smaller images, in a process of its own.
source(file.path("..", "testthat", "helper.R"), local = TRUE)

example <- '
library(multigpu)
simulate_gpus(2)
num_samples <- 16
height <- 71
width <- 71
num_classes <- 10

with(tf$device("/cpu:0"), {
  model <- application_xception(
    weights = NULL,
    input_shape = c(height, width, 3),
    classes = num_classes
  )
})

parallel_model <- multi_gpu_model(model, gpus = 2)
parallel_model %>% compile(
  loss = "categorical_crossentropy",
  optimizer = "rmsprop"
)

x <- array(runif(num_samples * height * width * 3),
           dim = c(num_samples, height, width, 3))
y <- array(runif(num_samples * num_classes),
           dim = c(num_samples, num_classes))

parallel_model %>% fit(x, y, epochs = 2, batch_size = 16, verbose = 0)

model %>% save_model_hdf5("my_model.h5")
cat(sum(abs(predict(model, x))))
'

in_stock_keras <- "
import keras, sys
assert not any(name.startswith('multigpu') for name in sys.modules)
model = keras.models.load_model('my_model.h5', compile=False)
print(type(model).__name__, model.count_params())
"

for (backend in c("tensorflow", "jax")) {
  test_that(paste("the example of the help page runs on", backend, "and Keras loads its file"), {
    folder <- tempfile("example")
    dir.create(folder)
    old <- setwd(folder)
    on.exit(setwd(old))
    printed <- run_in_new_r(example, env = paste0("KERAS_BACKEND=", backend))
    expect_equal(as.numeric(tail(printed, 1)), 16, tolerance = 1e-4) # probabilities of 16 images, in float32
    writeLines(in_stock_keras, "load.py")
    loaded <- system2(reticulate::py_config()$python, c("-I", "load.py"), stdout = TRUE, stderr = FALSE)
    expect_identical(tail(loaded, 1), "Functional 20881970")
  })
}
