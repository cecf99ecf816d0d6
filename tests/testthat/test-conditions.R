# In each way in which a function that R calls warns in Python.
warned_by <- function(expr) {
  texts <- character()
  withCallingHandlers(expr, warning = function(w) {
    texts <<- c(texts, conditionMessage(w))
    invokeRestart("muffleWarning")
  })
  texts
}

test_that("a warning from Python is one from R: layers that do not fit are left out", {
  file <- tempfile(fileext = ".h5")
  save_model_weights_hdf5(small_model(), file)
  other <- keras_model_sequential(layers = list(keras$Input(list(4L)), keras$layers$Dense(3L, name = "hidden")))
  said <- warned_by(load_model_weights_hdf5(other, file, by_name = TRUE, skip_mismatch = TRUE))
  expect_match(said, "^Left out: the file has")
})

test_that("an error has its parts as bullets, a class, and the function that was called", {
  refusal <- function(expr) tryCatch(expr, error = identity)
  long <- refusal(multi_gpu_model(small_model(), gpus = strrep("GPU", 1000)))
  expect_s3_class(long, c("multigpu_error", "rlang_error"), exact = FALSE)
  expect_lt(nchar(conditionMessage(long)), 450)
  expect_match(said_by(long), "or `gpus = c('GPU:0', 'GPU:1')`.", fixed = TRUE) # the end is there
  expect_identical(as.character(conditionCall(long)[[1]]), "multi_gpu_model")
  model <- small_model()
  expect_match(deparse1(conditionCall(refusal(fit(model, epochs = "a", x = 1)))[[1]]), "^fit")
  expect_snapshot(writeLines(conditionMessage(refusal(bring_home(model, "x")))))
  expect_snapshot(writeLines(conditionMessage(refusal(multi_gpu_model(model, gpus = c(0, 1.5))))))
})

test_that("values are in R's words, with NA as NA, in each function", {
  parallel <- shared_parallel_model()
  said <- list(
    "Received: n = NA." = quote(simulate_gpus(NA)),
    "Received: batch_size = NA." = quote(overview(parallel, batch_size = NA)),
    "Received: batch_size = NA." = quote(estimate(parallel, batch_size = NA)),
    "Received: optimizer = NA." = quote(estimate(parallel, optimizer = NA)),
    "Received: steps = NA." = quote(measure(parallel, 1, steps = NA)),
    "Received: filepath = NA." = quote(save_model_hdf5(parallel, NA)),
    "Received: filepath = NA." = quote(load_model_weights_hdf5(parallel, NA)),
    "Received: to = NA." = quote(clean_parallel_hdf5("a.h5", NA)),
    "as text. Received: filepath = 3." = quote(load_model_hdf5(3)),
    "Received: index = NA." = quote(get_layer(parallel, index = NA)),
    "Received: index = 1.5." = quote(get_layer(parallel, index = 1.5)),
    "Received: line_length = \"a\"." = quote(summary(parallel, line_length = "a")),
    "Received: gpus = 0+2i, with one of class complex." = quote(multi_gpu_model(parallel, gpus = 2i)),
    "with a function." = quote(multi_gpu_model(parallel, gpus = mean)),
    "with a function." = quote(multi_gpu_model(parallel, gpus = list(1, mean)))
  )
  for (number in seq_along(said)) expect_match(error_text(eval(said[[number]])), names(said)[[number]], fixed = TRUE)
})

test_that("what is no model is refused by its class, in each function that takes one", {
  verbs <- list(
    multi_gpu_model, estimate, bring_home, synchronize_batch_norm, get_weights, count_params, get_config, overview,
    pop_layer, get_layer, predict_on_batch,
    function(x) fit_generator(x, identity, 1), function(x) train_on_batch(x, 1, 1), function(x) measure(x, 1, 1),
    function(x) save_model_hdf5(x, tempfile()), function(x) save_model_weights_hdf5(x, tempfile())
  )
  for (verb in verbs) {
    said <- error_text(verb(lm(mpg ~ cyl, mtcars)))
    expect_match(said, "^Expected .* model.* Received: (an object of class )?lm\\. (Make one|Remove)")
  }
})

skip_on_cran()

test_that("an error in a step is its cause, without files of Python, and says that ids and classes count from 0", {
  data <- small_data()
  classes <- rep(1:3, length.out = 50)
  trained <- function(y, embedding = NULL) {
    layers <- c(embedding, list(keras$layers$Flatten(), keras$layers$Dense(3L, activation = "softmax")))
    model <- multi_gpu_model(keras_model_sequential(input_shape = 4, layers = layers), gpus = 2)
    fit(compile(model, "sgd", "sparse_categorical_crossentropy"), abs(data$x) * 10, y, epochs = 1)
  }
  expect_match(
    error_text(trained(classes)), "^Received a label value of 3 .* Keras counts classes and ids from 0: subtract 1"
  )
  said <- error_text(trained(classes - 1, list(keras$layers$Embedding(2L, 2L))))
  expect_match(said, "^indices\\[[0-9,]+\\] = [0-9]+ is not in \\[0, 2\\) Keras counts")
  expect_length(trained(factor(classes))$metrics$loss, 1)
})

test_that("an error from Python has the message only", {
  expect_identical(clean_message("ValueError: two\nlines\n"), "two\nlines")
  expect_identical(clean_message("KeyError: 0\n"), "There is no entry 0.")
  in_r <- "`Sys.setenv(KERAS_BACKEND = \"jax\")` in a new session"
  expect_identical(put_in_r_words("`KERAS_BACKEND=jax`"), in_r)
  expect_identical(put_in_r_words("which begins with b'a'"), "which begins with 'a'")
  expect_identical(error_text(with_clean_errors(reticulate::py_eval("{}['a']"))), "There is no entry 'a'.")
  expect_identical(clean_message("KeyError: 'Exception encountered'"), "'Exception encountered'")
  expect_identical(clean_message("keras.src.Error: x\nRun `reticulate::py_last_error()` for details."), "x")
})

test_that("an interrupt ends training and leaves the template usable, with the weights trained so far", {
  data <- small_data()
  parallel <- parallel_model()
  untrained <- weights_of(parallel$template)
  interrupt_soon <- function(epoch, logs) {
    if (epoch == 3) system(sprintf("(sleep 0.5; kill -INT %d) &", Sys.getpid()))
  }
  ended <- tryCatch(
    fit(parallel, data$x, data$y, epochs = 1e6, callbacks = list(on_epoch_end = interrupt_soon)),
    interrupt = function(e) "interrupted"
  )
  expect_identical(ended, "interrupted")
  trained <- weights_of(parallel$template)
  expect_true(all(is.finite(trained)))
  expect_false(identical(trained, untrained))
  history <- fit(parallel, data$x, data$y, epochs = 1)
  expect_lt(history$metrics$loss, 5)
  expect_false(identical(weights_of(parallel$template), trained))
})

test_that("so is one of an optimizer whose state does not fit, and an untrained model has none", {
  file <- tempfile(fileext = ".h5")
  model <- compile(small_model(), "adam", "mse")
  save_model_hdf5(model, file)
  load <- function() load_model_hdf5(file, safe_mode = FALSE) # without a process that builds the model first
  expect_identical(warned_by(load()), character())
  fit(model, small_data()$x, small_data()$y, epochs = 1)
  save_model_hdf5(model, file)
  expect_identical(warned_by(load()), character())
  reticulate::py_run_string(local = TRUE, sprintf("
import h5py
with h5py.File('%s', 'a') as file:
    names = file['optimizer_weights'].attrs['weight_names']
    file['optimizer_weights'].attrs['weight_names'] = names[:-1]
", file))
  expect_match(warned_by(load()), "^Expected the state of the optimizer to have 10 variables")
})

test_that("so is Keras' own, and each text is said once", {
  parallel <- shared_parallel_model()
  batches <- list(list(small_data()$x, small_data()$y))
  next_batch <- function() {
    batch <- batches[1][[1]]
    batches <<- batches[-1]
    batch
  }
  said <- warned_by(fit_generator(parallel, next_batch, steps_per_epoch = 3))
  expect_length(grep("ran out of data", said), 1)
})

test_that("a warning in a callback, whose functions call Python too, is said", {
  file <- tempfile(fileext = ".h5")
  save_model_weights_hdf5(small_model(), file)
  other <- keras_model_sequential(layers = list(keras$Input(list(4L)), keras$layers$Dense(3L, name = "hidden")))
  load <- function(epoch, logs) load_model_weights_hdf5(other, file, by_name = TRUE, skip_mismatch = TRUE)
  said <- warned_by(fit(
    shared_parallel_model(), small_data()$x, small_data()$y,
    epochs = 1, callbacks = list(on_epoch_end = load)
  ))
  expect_match(said, "^Left out: the file has")
})

test_that("long texts of Python are whole to R, and are cut in the middle", {
  raised <- function(size) {
    code <- sprintf("import multigpu.base.refusal as r; raise r.refuse('one', 'a' * %d, 'Use another.')", size)
    error_text(clean_errors(reticulate::py_run_string(code)))
  }
  for (size in c(300, 1500, 20000)) expect_match(raised(size), "^Expected one. Received: a+ [.]{3} a+[.] Use another.$")
  expect_identical(raised(100), paste0("Expected one. Received: ", strrep("a", 100), ". Use another."))
})

test_that("an error of this package that passes through Python in a callback keeps its form", {
  callbacks <- list(on_epoch_end = function(epoch, logs) refuse("a", "b {c}", "Use d."))
  text <- error_text(fit(shared_parallel_model(), small_data()$x, small_data()$y, callbacks = callbacks))
  expect_identical(text, "Expected a. Received: b {c}. Use d.")
})

test_that("what a text quotes of Python is in R's words", {
  said <- function(text) put_in_r_words(paste("Expected", text))
  expect_identical(said("x. Use `gpus=[0, 1]`, or None."), "Expected x. Use `gpus = c(0, 1)`, or NULL.")
  expect_identical(said("`compile=True` or False"), "Expected `compile = TRUE` or FALSE")
  expect_identical(said("`multigpu.estimate()` and multigpu.json"), "Expected `estimate()` and multigpu.json")
  expect_identical(said("`keras.layers.Dense`, 'model.keras'"), "Expected `keras$layers$Dense`, 'model.keras'")
  expect_identical(said("Pass `parallel.template`, 'model.h5'"), "Expected Pass `parallel$template`, 'model.h5'")
  expect_identical(said("b. Received: 1.5 of type float"), "Expected b. Received: 1.5 of type numeric")
  expect_identical(said("custom_objects={'Own': Own}"), "Expected custom_objects = list(Own = Own)")
  expect_identical(said("devices=['CPU:0', 'CPU:1']"), "Expected devices = c('CPU:0', 'CPU:1')")
  expect_identical(said("--hosts=a, TF_CONFIG='{}', a == b, x[0]"), "Expected --hosts=a, TF_CONFIG='{}', a == b, x[0]")
  for (text in c("In None of Keras", "Expected keys ['a'] in loss dict, but found None")) {
    expect_identical(in_r_words(text), text)
  }
})

test_that("values that Python would take for others are refused", {
  model <- small_model()
  expect_snapshot({
    writeLines(error_text(multi_gpu_model(model, cpu_merge = NA)))
    writeLines(error_text(multi_gpu_model(model, cpu_merge = "a")))
    writeLines(error_text(multi_gpu_model(model, cpu_relocation = c(TRUE, FALSE))))
    writeLines(error_text(multi_gpu_model(model, gpus = 0)))
    writeLines(error_text(multi_gpu_model(model, gpus = integer())))
    writeLines(error_text(multi_gpu_model(model, gpus = list())))
  })
})

test_that("too few GPUs have a class of their own, which nothing else has", {
  caught <- function(...) {
    too_few <- function(e) "too few"
    tryCatch(multi_gpu_model(small_model(), ...), multigpu_too_few_gpus = too_few, error = conditionMessage)
  }
  expect_identical(caught(gpus = 1), "too few")
  expect_identical(caught(gpus = 9), "too few")
  expect_match(caught(gpus = c(0, 0)), "^Expected each device once in `gpus`")
})

test_that("a model of a session that has ended is named", {
  file <- tempfile()
  saveRDS(compile(small_model(), "sgd", "mse"), file)
  model <- readRDS(file)
  for (verb in c(summary, print, get_config, multi_gpu_model, compile, evaluate)) {
    expect_match(error_text(verb(model)), "^Expected an object of this R session")
  }
  for (verb in c(predict, predict_proba, predict_on_batch)) {
    expect_match(error_text(verb(model, small_data()$x)), "^Expected an object of this R session")
  }
})

test_that("a forked child does not wait for TensorFlow", {
  model <- small_model()
  expect_warning(answers <- parallel::mclapply(1:2, function(i) predict(model, small_data()$x)), "encountered errors")
  expect_match(unlist(answers), "Received: a fork of it, as `parallel::mclapply()` makes", fixed = TRUE)
})

test_that("a double where Python wants an integer is explained", {
  hint <- "In R, whole numbers for Python are written with L: `4L`.$"
  expect_match(error_text(keras_model_sequential(layers = list(keras$Input(list(4))))), hint)
  expect_match(error_text(keras_model_sequential(layers = list(keras$Input(list(4L)), keras$layers$Dense(2)))), hint)
  expect_no_match(error_text(keras_model_sequential(4, layers = list(keras$layers$Dense(-2L)))), hint)
})

test_that("so does an interrupt of a function that Python has called", {
  parallel <- parallel_model()
  data <- small_data()
  next_batch <- function() {
    Sys.sleep(0.02)
    list(data$x, data$y)
  }
  fit(parallel, data$x, data$y, epochs = 1)
  for (attempt in 1:2) {
    system(sprintf("(sleep 0.5; kill -INT %d) &", Sys.getpid()))
    ended <- tryCatch(
      fit(parallel, next_batch, steps_per_epoch = 10, epochs = 1e6),
      interrupt = function(e) "interrupted"
    )
    expect_identical(ended, "interrupted")
  }
})

test_that("a warning of a function that Python has called can be caught, and Python goes on", {
  data <- small_data()
  warned <- function(value) {
    warning("careful")
    value
  }
  parallel <- parallel_model()
  loss <- function(y_true, y_pred) warned(mean((y_true - y_pred)^2))
  fits <- list(
    callback = function() {
      fit(parallel, data$x, data$y, epochs = 1, callbacks = list(on_epoch_end = function(...) warned(1)))
    },
    generator = function() fit(parallel, function() warned(list(data$x, data$y)), steps_per_epoch = 2, epochs = 1),
    loss = function() fit(compile(parallel, "sgd", loss), data$x, data$y, epochs = 1),
    within = function() {
      predicts <- function(epoch, logs) warned(predict(parallel, data$x))
      fit(compile(parallel, "sgd", "mse"), data$x, data$y, epochs = 1, callbacks = list(on_epoch_end = predicts))
    }
  )
  for (each in fits) {
    expect_identical(tryCatch(each(), warning = conditionMessage), "careful")
    suppressWarnings(expect_warning(history <- each(), "careful")) # a loss warns in each trace
    expect_true(is.finite(history$metrics$loss))
  }
})

test_that("Python shows its warnings after a warning has left a verb", {
  data <- small_data(32)
  warns <- list(on_epoch_end = function() warning("mine"))
  fit_warning <- function() fit(shared_parallel_model(), data$x, data$y, callbacks = warns)
  expect_identical(tryCatch(fit_warning(), warning = conditionMessage), "mine")
  listening <- "len(__import__('multigpu.r.interface', fromlist = ['x'])._listening)"
  expect_identical(reticulate::py_eval(listening), 0L)
})
