model <- "
build <- function() {
  keras$utils$set_random_seed(1L)
  inputs <- keras_input(4)
  model <- keras_model(inputs, inputs |> layer_dense(8, activation = 'tanh') |> layer_dense(1))
  model
}
set.seed(1)
x <- matrix(rnorm(200), 50)
y <- x[, 1] - 2 * x[, 2]
"

for (order in names(orders)) {
  attached <- orders[[order]]

  test_that(paste("devices are simulated and train the numbers of one device, with keras3 attached", order), {
    expect_runs(c(attached, "simulate_gpus(4)", "stopifnot(nrow(available_gpus()) == 4)", model, "
      one <- build()
      template <- build()
      parallel <- multi_gpu_model(template, gpus = 4)
      for (each in list(one, parallel)) {
        each |> compile(optimizer = 'adam', loss = 'mse')
        each |> fit(x, y, epochs = 2, batch_size = 16, shuffle = FALSE, verbose = 0)
      }
      stopifnot(all.equal(get_weights(template), get_weights(one), tolerance = 1e-5))
      file <- tempfile(fileext = '.h5')
      save_model_hdf5(parallel, file)
      stopifnot(identical(get_weights(load_model_hdf5(file)), get_weights(template)))
    "))
  })

  test_that(paste("a number that is no number of devices is refused in one line, with keras3 attached", order), {
    ran <- run(c(attached, "simulate_gpus(0)"))
    expect_match(ran$printed, "^Error: Expected `n`|Expected `n` to be", all = FALSE)
  })

  test_that(paste("`join_cluster()`, and TF_CONFIG with several devices, come in time, with keras3 attached", order), {
    port <- 20000 + sample(20000, 1)
    alone <- sprintf('{"cluster": {"worker": ["127.0.0.1:%d"]}, "task": {"type": "worker", "index": 0}}', port)
    expect_runs(c(attached, "join_cluster()", "cat(nrow(available_gpus()))"))
    config <- function(index) {
      sprintf(
        '{"cluster": {"worker": ["127.0.0.1:%d", "127.0.0.1:%d"]}, "task": {"type": "worker", "index": %d}}',
        port, port + 1, index
      )
    }
    script <- c(
      "Sys.setenv(TF_CONFIG = commandArgs(TRUE)[[1]])", attached, devices, model,
      "model <- build()", "parallel <- multi_gpu_model(model, gpus = 2)",
      "parallel |> compile(optimizer = 'sgd', loss = 'mse')",
      "parallel |> fit(x, y, epochs = 1, batch_size = 16, shuffle = FALSE, verbose = 0)",
      "cat('\\nsum of weights', format(sum(unlist(lapply(get_weights(model), sum))), digits = 6), '\\n')"
    )
    file <- tempfile(fileext = ".R")
    writeLines(script, file)
    logs <- c(tempfile(), tempfile())
    for (index in 0:1) {
      system2(
        file.path(R.home("bin"), "Rscript"), c(shQuote(file), shQuote(config(index))),
        stdout = logs[[index + 1]], stderr = logs[[index + 1]], wait = index == 1
      )
    }
    Sys.sleep(5) # the first one may end a little later
    sums <- lapply(logs, function(log) grep("^sum of weights", readLines(log), value = TRUE))
    expect_length(sums[[1]], 1)
    one <- sub("multi_gpu_model(model, gpus = 2)", "model", script[-1], fixed = TRUE)
    expect_identical(grep("^sum of weights", run(one)$printed, value = TRUE), sums[[1]])
    expect_identical(sums[[1]], sums[[2]])
  })

  test_that(paste("verbs of this package take R functions, with keras3 attached", order), {
    expect_runs(c(attached, "simulate_gpus(2)", model, "
      parallel <- multi_gpu_model(build(), gpus = 2)
      parallel |> compile(optimizer = 'sgd', loss = 'mse')
      epochs <- c()
      batch <- function() list(x[1:16, ], y[1:16])
      history <- parallel |> fit_generator(
        batch, steps_per_epoch = 2, epochs = 2, verbose = 0,
        callbacks = list(on_epoch_end = function(epoch, logs) epochs <<- c(epochs, epoch))
      )
      stopifnot(identical(as.integer(epochs), 0:1), length(history$metrics$loss) == 2)
      stopifnot(is.list(evaluate_generator(parallel, batch, steps = 2, verbose = 0)))
      stopifnot(identical(dim(predict_proba(parallel, x)), c(50L, 1L)))
    "))
  })

  test_that(paste("warnings from Python are warnings of R, with keras3 attached", order), {
    expect_runs(c(attached, "simulate_gpus(2)", model, "
      file <- tempfile(fileext = '.h5')
      one <- build()
      one |> compile(optimizer = 'adam', loss = 'mse')
      save_model_hdf5(one, file)
      options(warn = 2)
      untrained <- load_model_hdf5(file)
      options(warn = 0)
      save_model_weights_hdf5(one, file)
      inputs <- keras_input(4)
      other <- keras_model(inputs, inputs |> layer_dense(3, name = one$layers[[2]]$name))
      said <- tryCatch(
        load_model_weights_hdf5(other, file, by_name = TRUE, skip_mismatch = TRUE),
        warning = conditionMessage
      )
      stopifnot(grepl('^Left out', said))
    "))
  })

  test_that(paste("a layer of one's own is a custom object, with keras3 attached", order), {
    expect_runs(c(attached, "simulate_gpus(2)", model, "
      layer_doubled <- Layer('Doubled', call = function(inputs) 2 * inputs)
      inputs <- keras_input(4)
      model <- keras_model(inputs, inputs |> layer_dense(1) |> layer_doubled())
      file <- tempfile(fileext = '.h5')
      save_model_hdf5(model, file)
      loaded <- load_model_hdf5(file, custom_objects = list(Doubled = layer_doubled))
      stopifnot(identical(predict(loaded, x, verbose = 0), predict(model, x, verbose = 0)))
    "))
  })

  test_that(paste("losses and metrics of keras3 have Keras' names, with keras3 attached", order), {
    expect_runs(c(attached, "simulate_gpus(2)", model, "
      own <- structure(function(y_true, y_pred) op_mean(y_pred), name = 'own')
      metric_counted <- Metric('Counted', update_state = function(y_true, y_pred, sample_weight = NULL) NULL,
        result = function() 1)
      named <- function(model) {
        compile(model, 'sgd', loss_huber, metrics = list(metric_mean_absolute_error, metric_auc, own, metric_counted))
        several <- names(fit(model, x, y, epochs = 1, verbose = 0)$metrics)
        compile(model, 'sgd', 'mse', metrics = metric_mean_squared_error(name = 'squares'))
        list(sort(several), sort(names(fit(model, x, y, epochs = 1, verbose = 0)$metrics)))
      }
      keras$backend$clear_session()
      plain <- named(build())
      keras$backend$clear_session()
      parallel <- named(multi_gpu_model(build(), gpus = 2))
      print(list(plain, parallel))
      stopifnot(identical(parallel, plain), c('own', 'mean_absolute_error') %in% parallel[[1]])
    "))
  })
}

for (backend in c("tensorflow", "jax")) {
  test_that(paste("a loss and a metric in R mean what they mean in a model of keras3, on", backend), {
    expect_runs(c(states$after, "
      x <- matrix((1:20 * 7 %% 11) / 10, 10)
      y <- cbind(x[, 1], x[, 2]^2, x[, 1] * x[, 2])
      model <- keras_model_sequential(input_shape = 2) |> layer_dense(3, kernel_initializer = 'ones')
      parallel <- multi_gpu_model(clone_model(model), gpus = 2)
      set_weights(parallel, get_weights(model))
      of_index <- list(
        last = function(y_true, y_pred) op_mean((y_true[, -1] - y_pred[, -1])^2),
        first = function(y_true, y_pred) op_mean((y_true[, 1] - y_pred[, 1])^2)
      )
      of_axis <- list(
        norm = function(y_true, y_pred) mean(sqrt(sum((y_true - y_pred)^2, axis = 2))),
        mean = function(y_true, y_pred) max(mean(abs(y_true - y_pred), axis = 1, keepdims = TRUE)),
        vector = function(y_true, y_pred) op_mean((y_true - y_pred) * c(1, 10, 100)),
        all = function(y_true, y_pred) op_mean(y_pred[all_dims(), 1]),
        sorted = function(y_true, y_pred) op_mean(sort(y_pred, decreasing = TRUE)[, 1]),
        counts = function(y_true, y_pred) op_mean(lgamma(abs(y_true) + 1) - y_pred)
      )
      all_dims <- tensorflow::all_dims
      for (f in c(of_index, if (config_backend() == 'tensorflow') of_axis)) {
        found <- lapply(list(model, parallel), function(each) {
          each |> compile(optimizer = 'sgd', loss = f, metrics = list(custom_metric('same', f)))
          unlist(each |> evaluate(x, y, verbose = 0))
        })
        print(found)
        stopifnot(all.equal(found[[1]], found[[2]], tolerance = 1e-6))
      }
      labels <- as.integer(1:10 %% 3)
      of_labels <- list(
        one_hot = function(y_true, y_pred) op_mean((op_one_hot(op_cast(y_true, 'int32'), 3) - y_pred)^2),
        accuracy = function(y_true, y_pred) {
          op_mean(op_equal(op_cast(y_true, 'int32'), op_cast(op_argmax(y_pred, axis = -1), 'int32')))
        }
      )
      found <- lapply(list(model, parallel), function(each) {
        accuracy <- custom_metric('accuracy_in_r', of_labels$accuracy)
        each |> compile(optimizer = 'sgd', loss = of_labels$one_hot, metrics = list(accuracy))
        unlist(each |> evaluate(x, labels, verbose = 0))
      })
      print(found)
      stopifnot(all.equal(found[[1]], found[[2]], tolerance = 1e-6), found[[1]][['accuracy_in_r']] > 0)
    "), env = paste0("KERAS_BACKEND=", backend))
  })
}
