skip_on_cran()

test_that("a loss in R trains as Keras' own does, on four devices", {
  data <- small_data()
  train <- function(loss) {
    parallel <- compile(multi_gpu_model(small_model(), 4), "sgd", loss)
    keras$utils$set_random_seed(0L)
    fit(parallel, data$x, data$y, epochs = 2, batch_size = 16)
    weights_of(parallel)
  }
  in_r <- train(function(y_true, y_pred) mean((y_true - y_pred)^2))
  expect_equal(in_r, train("mse"), tolerance = 1e-6) # float32
})

test_that("a metric in R has its name and value", {
  data <- small_data()
  parallel <- parallel_model(metrics = list("mae", largest = function(y_true, y_pred) max(abs(y_true - y_pred))))
  measured <- evaluate(parallel, data$x, data$y, batch_size = 50)
  expect_setequal(names(measured), c("loss", "mae", "largest"))
  expect_equal(measured$largest, max(abs(predict(parallel, data$x)[, 1] - data$y)), tolerance = 1e-6) # float32
})

test_that("a metric may be the only one, and a function may have its own name", {
  data <- small_data()
  measured <- function(metrics) {
    setdiff(names(evaluate(compile(parallel_model(), "sgd", "mse", metrics), data$x, data$y)), "loss")
  }
  expect_identical(measured(keras$metrics$MeanAbsoluteError()), "mean_absolute_error")
  expect_identical(measured(keras$metrics$MeanAbsoluteError), "mean_absolute_error")
  largest <- structure(function(y_true, y_pred) max(abs(y_true - y_pred)), name = "largest")
  expect_identical(measured(largest), "largest")
  expect_identical(measured(list(largest)), "largest")
  expect_identical(measured(list(other = largest)), "other")
})

test_that("a template's own `compile()` and `fit()` get the arguments that were given, and no others", {
  distiller <- reticulate::py_run_string("
import keras
class Distiller(keras.Model):
    def __init__(self):
        super().__init__()
        self.net = keras.layers.Dense(1)
        self.build((None, 4))
    def build(self, shape):
        self.net.build(shape)
    def compile(self, net_optimizer, loss_of_net):
        super().compile(net_optimizer, loss_of_net)
    def call(self, x):
        return self.net(x)
    def fit(self, x, y, epochs=1, **kwargs):
        self.given = ' '.join(kwargs)
        return super().fit(x, y, epochs=epochs, **kwargs)
")$Distiller
  data <- small_data()
  train <- function(model) {
    keras$utils$set_random_seed(0L)
    compile(model, net_optimizer = "sgd", loss_of_net = "mse")
    fit(model, data$x, data$y, epochs = 2)$metrics$loss
  }
  keras$utils$set_random_seed(0L)
  plain <- distiller()
  template <- distiller()
  template$set_weights(plain$get_weights())
  expect_equal(train(multi_gpu_model(template, 3)), train(plain), tolerance = 1e-6) # float32
  expect_no_match(template$given, "class_weight|validation_data|steps_per_epoch")
})

test_that("Keras objects for losses and metrics are used unchanged, with their state", {
  data <- small_data()
  train <- function(model, configure) {
    configure(model, keras$losses$Huber(), list(keras$metrics$RootMeanSquaredError()))
    keras$utils$set_random_seed(0L)
    history <- fit(model, data$x, data$y, epochs = 2, batch_size = 16, sample_weight = seq(0, 1, length.out = 50))
    as.data.frame(history)
  }
  by_r <- function(model, loss, metrics) compile(model, "sgd", loss, metrics)
  by_python <- function(model, loss, metrics) model$compile("sgd", loss, metrics = metrics)
  expected <- train(small_model(), by_python)
  expect_setequal(expected$metric, c("loss", "root_mean_squared_error"))
  expect_equal(train(small_model(), by_r), expected)
  expect_equal(train(multi_gpu_model(small_model(), 4), by_r), expected, tolerance = 1e-6) # float32
})

test_that("an error in an R loss has its message", {
  parallel <- compile(multi_gpu_model(small_model(), 4), "sgd", function(y_true, y_pred) stop("no such loss"))
  expect_error(fit(parallel, small_data()$x, small_data()$y), "no such loss")
})

test_that("arguments of Keras 2 have their places, and none of their meaning", {
  model <- small_model()
  expect_snapshot({
    writeLines(error_text(compile(model, "sgd", "mse", NULL, NULL, "temporal")))
    writeLines(error_text(compile(model, "sgd", "mse", target_tensors = list(1))))
  })
  compile(model, "sgd", "mse", NULL, NULL, NULL, list("mae"))
  expect_named(evaluate(model, small_data()$x, small_data()$y), c("loss", "mae"), ignore.order = TRUE)
})

two_outputs <- function() {
  keras$utils$set_random_seed(0L)
  inputs <- keras$Input(list(4L))
  keras_model(inputs, list(keras$layers$Dense(1L, name = "a")(inputs), keras$layers$Dense(1L, name = "b")(inputs)))
}

farther <- function(y_true, y_pred) max(abs(y_true - y_pred))

measured <- function(model, metrics, data) {
  compile(model, "sgd", "mse", metrics = metrics)
  evaluate(model, data$x, list(data$y, data$y), batch_size = 50)
}

test_that("a model with two outputs has metrics by position or by name, each with several, and targets `list(y, y)`", {
  parallel <- multi_gpu_model(two_outputs(), 2)
  by_position <- list(list(far = farther, "mae"), list("mse"))
  found <- measured(parallel, by_position, small_data())
  expect_true(all(c("a_far", "a_mae", "b_mse") %in% names(found)))
  expect_equal(found, measured(two_outputs(), by_position, small_data()), tolerance = 1e-6) # float32
  by_name <- list(b = "mse", a = list(far = farther, "mae"))
  expect_equal(measured(parallel, by_name, small_data()), found, tolerance = 1e-6)
})

test_that("metrics for all outputs at once, as in Keras 2, say how to write one entry for each", {
  expect_snapshot({
    writeLines(error_text(compile(two_outputs(), "sgd", "mse", metrics = farther)))
    writeLines(error_text(compile(two_outputs(), "sgd", "mse", metrics = list("mae", farther, "mse"))))
  })
})

test_that("metrics may have the names of letters of the only output", {
  inputs <- keras$Input(list(4L))
  model <- keras_model(inputs, keras$layers$Dense(1L, name = "de")(inputs))
  compile(model, "sgd", "mse", metrics = list(d = farther, e = farther))
  expect_named(evaluate(model, small_data()$x, small_data()$y), c("d", "e", "loss"), ignore.order = TRUE)
})

test_that("functions that are no loss and no metric are refused, when they are given or when they are called", {
  model <- small_model()
  expect_snapshot({
    writeLines(error_text(compile(model, "sgd", function(y_pred) mean(y_pred))))
    writeLines(error_text(compile(model, "sgd", "mse", metrics = list(function() 1))))
    compile(model, "sgd", function(y_true, y_pred) NULL)
    writeLines(error_text(fit(model, small_data()$x, small_data()$y)))
    compile(model, "sgd", "mse", metrics = list(function(y_true, y_pred) "good"))
    writeLines(error_text(evaluate(model, small_data()$x, small_data()$y)))
    compile(model, "sgd", "mse", metrics = list(function(y_true, y_pred) NA))
    writeLines(error_text(evaluate(model, small_data()$x, small_data()$y)))
  })
  compile(model, "sgd", "mse", metrics = list(all = function(...) mean(..2)))
  expect_named(evaluate(model, small_data()$x, small_data()$y), c("all", "loss"), ignore.order = TRUE)
})

test_that("NA is no value of an argument: Python would take it for True", {
  for (argument in c("optimizer", "loss", "metrics", "loss_weights", "weighted_metrics")) {
    text <- error_text(do.call(compile, stats::setNames(list(small_model(), NA), c("object", argument))))
    expect_identical(text, sprintf("Expected a value for `%1$s`. Received: %1$s = NA.", argument))
  }
})

test_that("what makes an optimizer is none", {
  for (given in list(keras$optimizers$Adam, function(...) keras$optimizers$Adam(...))) {
    expect_match(error_text(compile(small_model(), given, "mse")), "Call it, as in `keras\\$optimizers\\$Adam\\(\\)`")
  }
})

test_that("metrics are for the outputs of their names, also if these are the keys of a list", {
  x <- keras$Input(list(4L))
  outputs <- list(a = keras$layers$Dense(1L, name = "second")(x), b = keras$layers$Dense(1L, name = "first")(x))
  parallel <- multi_gpu_model(keras$Model(x, outputs), 2)
  data <- small_data(32)
  y <- list(a = data$y, b = 10 * data$y)
  compile(parallel, "sgd", list(a = "mse", b = "mse"), metrics = list(b = "mse", a = "mae"))
  measured <- evaluate(parallel, data$x, y)
  expect_true(all(c("a_mae", "b_mse") %in% names(measured)))
})

test_that("weights of losses may be whole numbers, and losses lists of Python", {
  expect_type(as_loss_weights(2L), "double")
  loss <- reticulate::r_to_py(list("mse", "mae"))
  expect_identical(as_loss(loss), loss)
})
