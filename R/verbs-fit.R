#' Train, evaluate and predict
#'
#' The methods of Keras models for R data and R functions. They work on parallel models and on all other Keras models.
#'
#' @param object A Keras model, parallel or not.
#' @param x Inputs: an array whose first dimension is rows, a list of arrays for several inputs, a data frame, a sparse
#'   matrix of the package Matrix, a Python dataset, or an R function without arguments that returns the next batch, as
#'   in [fit_generator()]. See the section on data.
#' @param y Targets, in the same forms. The levels of a factor become class numbers, counted from 0.
#' @param batch_size Rows of a batch, 32 if `NULL`. On several GPUs this is the size of the global batch.
#' @param epochs Number of passes over the data.
#' @param verbose What to print: 0 nothing, 1 a progress bar, 2 one line per epoch, `"auto"` lets Keras choose. The
#'   default is 2 in knitr and in a job of RStudio, 0 in testthat, and `"auto"` elsewhere; for `fit()` it can be set
#'   with `options(keras.fit_verbose = 2)`.
#' @param callbacks A list of Keras callbacks, or of R functions named by callback hooks, see below.
#' @param view_metrics Whether to plot metrics in RStudio's Viewer during training. `"auto"` does so in RStudio if the
#'   package tfruns is installed. The default can be set with `options(keras.view_metrics = FALSE)`. In a
#'   `tfruns::training_run()`, metrics are recorded in any case.
#' @param validation_split Fraction of the rows to use for validation instead of training, taken from the end.
#' @param validation_data `list(x, y)` or `list(x, y, weights)` for validation after each epoch, or a function as for
#'   `x`.
#' @param shuffle Whether to shuffle the rows before each epoch; `"batch"` shuffles within batches.
#' @param class_weight Weights of the classes, a list or a vector named by class, `c("0" = 1, "1" = 50)`, or by the
#'   levels of the factor `y`, `c(no = 1, yes = 50)`.
#' @param sample_weight Weights of the rows.
#' @param initial_epoch Number of epochs that were trained before, to resume a training.
#' @param steps_per_epoch,validation_steps,steps Number of batches in an epoch, in a validation, in a pass; fractions,
#'   as in `nrow(x) / batch_size`, are rounded down. `NULL` is all batches: of a function, until it returns `NULL`.
#' @param validation_freq After how many epochs there is a validation, or a vector of the epochs after which there is
#'   one, counted from 1.
#' @param ... More arguments of the same Keras method, such as `validation_batch_size`.
#'
#' @section Callbacks in R:
#' `callbacks = list(on_epoch_end = function(epoch, logs) ...)` calls the function after each epoch. Epochs and batches
#' are counted from 0; `logs` is a named list of the loss and metrics. The hooks are `on_train_begin` and `on_train_end`
#' (with `logs` only), `on_epoch_begin`, `on_epoch_end`, `on_train_batch_begin`, `on_train_batch_end`, and the same with
#' `test` and `predict`, which have no epochs. A function may take fewer arguments. In each hook, the template has the
#' weights trained so far.
#'
#' @section Data:
#' If a model has several inputs, the columns of a data frame with the names of these are its inputs. Otherwise a data
#' frame is one input. Columns are numbers or factors, and 64-bit integers of the package bit64 are numbers. Batches of
#' a sparse matrix are made dense for models whose inputs are not sparse. A matrix of strings is for models with inputs
#' for strings. An `NA`, dates and times raise an error that names the column; a `NaN` is passed on.
#'
#' @section Memory:
#' Python reads large R arrays in place, without copying them: each batch is sliced and cast when it is needed. The
#' batches and their order are those that Keras makes from the same array.
#'
#' @section Interrupts:
#' Ctrl-C, or Stop in RStudio, ends training after the current step; a second one ends it immediately. The template has
#' the weights trained so far, and training can be continued.
#'
#' @return `fit()`: a training history with `print()`, `plot()` and `as.data.frame()` methods, invisibly. `evaluate()`:
#'   a named list of the loss and metrics. `predict()`: an array, or a list of arrays for several outputs.
#' @seealso Other verbs: \code{\link[=compile]{compile()}}, [fit_generator()], [train_on_batch()].
#' @examplesIf multigpu::multigpu_is_installed()
#' simulate_gpus(2) # does nothing on a machine with two GPUs
#' model <- keras_model_sequential(input_shape = 4, layers = list(keras$layers$Dense(1L)))
#' parallel_model <- multi_gpu_model(model, gpus = 2)
#' parallel_model |> compile(optimizer = "sgd", loss = "mse")
#' x <- matrix(rnorm(400), 100)
#' y <- rowSums(x)
#' history <- parallel_model |> fit(
#'   x, y,
#'   epochs = 3, batch_size = 32, validation_split = 0.2,
#'   callbacks = list(on_epoch_end = function(epoch, logs) message("loss: ", logs$loss))
#' )
#' plot(history)
#' parallel_model |> evaluate(x, y)
#' parallel_model |> predict(x[1:3, ])
#' @name fit
NULL

fit_model <- function(object,
                      x = NULL,
                      y = NULL,
                      batch_size = NULL,
                      epochs = 10,
                      verbose = getOption("keras.fit_verbose", default_verbose()),
                      callbacks = NULL,
                      view_metrics = getOption("keras.view_metrics", "auto"),
                      validation_split = 0,
                      validation_data = NULL,
                      shuffle = TRUE,
                      class_weight = NULL,
                      sample_weight = NULL,
                      initial_epoch = 0,
                      steps_per_epoch = NULL,
                      validation_steps = NULL,
                      validation_freq = 1,
                      ...) {
  if (missing(epochs)) tell_default("`epochs` is 10 unless it is given; in keras3 it is 1.")
  if (!identical(as_integer(initial_epoch), 0L)) {
    tell_default("`initial_epoch` counts from 0; in keras3 it counts from 1.")
  }
  if (missing(shuffle) && is_tf_dataset(x)) shuffle <- FALSE
  counts <- c(
    as_counts(batch_size = batch_size, steps_per_epoch = steps_per_epoch, validation_steps = validation_steps),
    as_counts(epochs = epochs, initial_epoch = initial_epoch, least = 0)
  )
  history <- with_clean_errors(call_python(
    core()$fit, c(counts, more_arguments(object, "fit", ...)),
    model = object,
    x = as_source(x, object),
    y = as_targets(y),
    verbose = as_choice(verbose, "verbose", verbosities),
    callbacks = c(as_callbacks(callbacks), metrics_recorder(view_metrics, counts$epochs, object, verbose = verbose)),
    validation_split = as_fraction(validation_split),
    validation_data = as_validation_data(validation_data, object, y),
    shuffle = as_choice(shuffle, "shuffle", list("batch")),
    class_weight = as_class_weight(class_weight, y),
    sample_weight = as_arrays(sample_weight),
    validation_freq = as_frequency(validation_freq)
  ))
  invisible(as_history(history, validation_freq))
}

#' @rdname fit
#' @method fit multigpu.model.parallel_model.ParallelModel
#' @export
#' @rawNamespace S3method(fit, keras.src.trainers.trainer.Trainer, fit_model)
fit.multigpu.model.parallel_model.ParallelModel <- fit_model

#' @rdname fit
#' @export
evaluate <- function(object, ...) {
  UseMethod("evaluate")
}

evaluate_model <- function(object,
                           x = NULL,
                           y = NULL,
                           batch_size = NULL,
                           verbose = default_verbose(),
                           sample_weight = NULL,
                           steps = NULL,
                           callbacks = NULL,
                           ...) {
  numbers <- with_clean_errors(call_python(
    core()$evaluate, c(as_counts(batch_size = batch_size, steps = steps), more_arguments(object, "evaluate", ...)),
    model = object,
    x = as_source(x, object),
    y = as_targets(y),
    verbose = as_choice(verbose, "verbose", verbosities),
    sample_weight = as_arrays(sample_weight),
    callbacks = as_callbacks(callbacks),
    return_dict = TRUE
  ))
  record_evaluation(numbers)
  numbers
}

#' @rdname fit
#' @method evaluate multigpu.model.parallel_model.ParallelModel
#' @export
#' @rawNamespace S3method(evaluate, keras.src.trainers.trainer.Trainer, evaluate_model)
#' @rawNamespace S3method(generics::evaluate, multigpu.model.parallel_model.ParallelModel, evaluate_model)
#' @rawNamespace S3method(generics::evaluate, keras.src.trainers.trainer.Trainer, evaluate_model)
#' @rawNamespace S3method(tensorflow::evaluate, multigpu.model.parallel_model.ParallelModel, evaluate_model)
#' @rawNamespace S3method(tensorflow::evaluate, keras.src.trainers.trainer.Trainer, evaluate_model)
evaluate.multigpu.model.parallel_model.ParallelModel <- evaluate_model

predict_model <- function(object,
                          x,
                          batch_size = NULL,
                          verbose = 0,
                          steps = NULL,
                          callbacks = NULL,
                          ...) {
  with_clean_errors(call_python(
    core()$predict, c(as_counts(batch_size = batch_size, steps = steps), more_arguments(object, "predict", ...)),
    model = object,
    x = as_source(if (is_r_function(x)) as_inputs_alone(x) else x, object),
    verbose = as_choice(verbose, "verbose", verbosities),
    callbacks = as_callbacks(callbacks)
  ))
}

#' @rdname fit
#' @method predict multigpu.model.parallel_model.ParallelModel
#' @export
#' @rawNamespace S3method(predict, keras.src.trainers.trainer.Trainer, predict_model)
predict.multigpu.model.parallel_model.ParallelModel <- predict_model

# An R function is a generator: Python calls it for the next batch. Everything else is data.
as_source <- function(x, object) {
  if (inherits(x, "rpytools.generator.RGenerator")) { # of `reticulate::py_iterator()`, which Keras does not know
    iterator <- x
    x <- function() reticulate::iter_next(iterator)
  }
  if (is_r_function(x)) {
    return(as_generator(x))
  }
  alive(object)
  if (has_no_rows(x)) refuse("data of one row or more", "`x` without rows", "Is nothing selected, as in `x[rows, ]`?")
  as_inputs(x, object)
}

has_no_rows <- function(x) {
  if (is.list(x) && !is.object(x)) {
    return(any(vapply(x, has_no_rows, NA)))
  }
  !is.null(x) && !is_python_object(x) && identical(NROW(x), 0L) # NULL: an optional input
}

# Batches for `predict()` may be the inputs without a list around them.
as_inputs_alone <- function(next_batch) {
  function() {
    batch <- next_batch()
    if (is.null(batch) || is.list(batch) && !is.object(batch)) batch else list(batch)
  }
}

as_generator <- function(next_batch) {
  reticulate::r_to_py(function() {
    for_python({
      batch <- next_batch()
      if (is.list(batch)) in_order(as_batch(batch)) else batch
    })
  }, convert = TRUE)
}

# A Python function, with more arguments than this package names, and without those that are NULL, its default.
call_python <- function(f, more, ...) do.call(f, Filter(Negate(is.null), c(list(...), more)))

# Once per session: the same call means something else for models of keras3.
tell_default <- function(text) {
  if (isNamespaceLoaded("keras3")) {
    rlang::inform(paste("A parallel model is trained by multigpu:", text), .frequency = "once", .frequency_id = text)
  }
}

verbosities <- list(0L, 1L, 2L, "auto")

default_verbose <- function() {
  if (!is.null(of_keras3 <- getOption("keras.verbose"))) {
    return(as_integer(of_keras3))
  }
  if (isTRUE(getOption("knitr.in.progress")) || in_rstudio_job()) {
    return(2L)
  }
  if (identical(Sys.getenv("TESTTHAT"), "true")) 0L else "auto"
}
