h5 <- function() tempfile(fileext = ".h5")

test_that("weights are saved and loaded, for the parallel model and for the template", {
  parallel <- parallel_model()
  file <- h5()
  expect_true(save_model_weights_hdf5(parallel, file))
  other <- small_model(seed = 7L)
  expect_false(identical(weights_of(other), weights_of(parallel)))
  expect_identical(load_model_weights_hdf5(other, file, by_name = TRUE), other)
  expect_identical(weights_of(other), weights_of(parallel))
})

skip_on_cran()

test_that("a saved parallel model is its template, with weights and optimizer", {
  data <- small_data()
  parallel <- parallel_model()
  fit(parallel, data$x, data$y, epochs = 1)
  file <- h5()
  expect_true(save_model_hdf5(parallel, file))
  expect_warning(loaded <- load_model_hdf5(file), NA)
  expect_identical(weights_of(loaded), weights_of(parallel))
  expect_false(core()$is_parallel(loaded))
  expect_identical(as.integer(loaded$optimizer$iterations$numpy()), 2L) # 50 rows are two batches
})

test_that("an R loss and a Python class are custom objects when the model is loaded", {
  python <- reticulate::py_run_string(
    "import keras\nclass Doubled(keras.layers.Dense):\n    def call(self, x): return 2 * super().call(x)",
    local = TRUE
  )
  my_loss <- function(y_true, y_pred) mean(pmax(y_true - y_pred, 0)) # which R alone has only for its own numbers
  model <- keras_model_sequential(layers = list(keras$Input(list(4L)), python$Doubled(1L)))
  compile(model, "sgd", my_loss)
  file <- h5()
  save_model_hdf5(model, file)
  loaded <- load_model_hdf5(file, custom_objects = list(loss = my_loss, Doubled = python$Doubled))
  expect_identical(predict(loaded, small_data()$x), predict(model, small_data()$x))
  expect_equal(evaluate(loaded, small_data()$x, small_data()$y), evaluate(model, small_data()$x, small_data()$y))
})

test_that("a constructor of keras3 stands for its class, and objects have names", {
  python <- reticulate::py_run_string("import keras\nclass Same(keras.layers.Layer): pass", local = TRUE)
  constructor <- local({
    assign("__class__", python$Same)
    function(object, ...) `__class__`(...)
  })
  expect_identical(as_custom_objects(list(Same = constructor)), list(Same = python$Same))
  expect_match(error_text(load_model_hdf5(h5(), list(constructor))), "^Expected `custom_objects` to be a named list")
})

test_that("a file of another kind is an error, without the name of a class", {
  file <- h5()
  writeLines("no model", file)
  expect_match(error_text(load_model_hdf5(file)), "^Expected an HDF5 file")
})

test_that("a file is replaced only if requested", {
  model <- small_model()
  file <- h5()
  expect_true(save_model_hdf5(model, file, overwrite = FALSE))
  expect_error(save_model_hdf5(model, file, overwrite = FALSE), "overwrite")
  expect_error(save_model_weights_hdf5(model, file, overwrite = FALSE), "overwrite")
  answer <- function(text) save_if_wanted(file, FALSE, function(overwrite) stopifnot(overwrite), function(...) text)
  expect_true(answer("y"))
  expect_true(answer("Yes"))
  expect_false(answer(""))
})

test_that("files that do not exist are errors", {
  expect_snapshot({
    writeLines(error_text(load_model_hdf5("/nowhere/model.h5")))
    writeLines(error_text(load_model_weights_hdf5(small_model(), "/nowhere/model.h5")))
    writeLines(error_text(save_model_hdf5(small_model(), "/nowhere/model.h5")))
  })
})

test_that("a function of one argument is an activation, not a loss", {
  tripled <- function(x) 3 * x
  expect_identical(as_custom_object(tripled, "tripled")(2), 6)
})
