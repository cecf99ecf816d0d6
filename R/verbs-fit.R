#' Train, evaluate and predict
#'
#' Keras' own verbs, with R data and R functions. They take parallel models and all other Keras models alike.
#'
#' @param object A Keras model, parallel or not.
#' @param x Inputs: an array whose first dimension counts rows, a list of them for several inputs, a data frame, a
#'   Python dataset, or, in `fit()`, an R function without arguments that returns the next batch as `list(x, y)`.
#' @param y Targets, in the same forms. A factor is taken as classes, which count from 0.
#' @param batch_size Rows of a batch; 32 if `NULL`. On several GPUs it is the size of the whole batch.
#' @param epochs Passes over the data.
#' @param verbose What is printed: 0 nothing, 1 a progress bar, 2 one line per epoch, `"auto"` what suits the terminal.
#'   The default is 2 in knitr, 0 in tests with testthat, and `"auto"` elsewhere.
#' @param callbacks A list of Keras callbacks, or of R functions named by the moment when they are called, see below.
#' @param view_metrics Whether to plot metrics in RStudio's Viewer during training. `"auto"` does so in RStudio, if the
#'   package tfruns is installed.
#' @param validation_split Share of the rows, the last ones, to validate on rather than to train on.
#' @param validation_data `list(x, y)` or `list(x, y, weights)` to validate on after each epoch, or a function as for
#'   `x`.
#' @param shuffle Whether to deal rows anew in each epoch; `"batch"` does so within batches.
#' @param class_weight Weights of classes, named by them: `list("0" = 1, "1" = 50)`.
#' @param sample_weight Weights of rows.
#' @param initial_epoch Epochs that were trained before, to resume.
#' @param steps_per_epoch,validation_steps,steps Batches of an epoch, of a validation, of a pass. Needed for functions.
#' @param ... More arguments of the same verb of Keras, such as `validation_freq` or `validation_batch_size`.
#'
#' @section Callbacks in R:
#' `callbacks = list(on_epoch_end = function(epoch, logs) ...)` calls the function after each epoch. Epochs and batches
#' count from 0; `logs` is a named list of the loss and metrics. There are `on_train_begin`, `on_train_end` (both with
#' `logs` alone), `on_epoch_begin`, `on_epoch_end`, `on_train_batch_begin`, `on_train_batch_end`, and the like with
#' `test` and `predict`. Inside any of them the template has the weights trained so far.
#'
#' @section Memory:
#' Large R arrays are viewed from Python, not copied: each batch is cut and cast when its turn comes. Batches and their
#' order are those that Keras makes of the same array.
#'
#' @section Interrupts:
#' Ctrl-C, or Stop in RStudio, ends training after the step that is under way; a second one ends it at once. The
#' template keeps the weights trained so far and can be trained on.
#'
#' @return `fit()`: a training history with a `print()`, a `plot()` and an `as.data.frame()` method. `evaluate()`: a
#'   named list of the loss and metrics. `predict()`: an array, or a list of them for several outputs.
#' @family verbs
#' @examples
#' \dontrun{
#' history <- parallel_model %>% fit(
#'   x, y,
#'   epochs = 20, batch_size = 256, validation_split = 0.2,
#'   callbacks = list(on_epoch_end = function(epoch, logs) message("loss: ", logs$loss))
#' )
#' plot(history)
#' parallel_model %>% evaluate(x, y)
#' parallel_model %>% predict(x)
#' }
#' @name fit.keras
#' @aliases fit
NULL

#' @rdname fit.keras
#' @method fit keras.src.trainers.trainer.Trainer
#' @export
fit.keras.src.trainers.trainer.Trainer <- function(object,
                                                   x = NULL,
                                                   y = NULL,
                                                   batch_size = NULL,
                                                   epochs = 10,
                                                   verbose = default_verbose(),
                                                   callbacks = NULL,
                                                   view_metrics = "auto",
                                                   validation_split = 0,
                                                   validation_data = NULL,
                                                   shuffle = TRUE,
                                                   class_weight = NULL,
                                                   sample_weight = NULL,
                                                   initial_epoch = 0,
                                                   steps_per_epoch = NULL,
                                                   validation_steps = NULL,
                                                   ...) {
  history <- with_clean_errors(core()$fit(
    object,
    x = as_source(x, as_arrays),
    y = as_arrays(y),
    batch_size = as_whole(batch_size),
    epochs = as_whole(epochs),
    verbose = as_whole(verbose),
    callbacks = c(as_callbacks(callbacks), metrics_viewer(view_metrics, epochs)),
    validation_split = validation_split,
    validation_data = as_source(validation_data, as_validation_data),
    shuffle = shuffle,
    class_weight = as_class_weight(class_weight),
    sample_weight = as_arrays(sample_weight),
    initial_epoch = as_whole(initial_epoch),
    steps_per_epoch = as_whole(steps_per_epoch),
    validation_steps = as_whole(validation_steps),
    ...
  ))
  invisible(as_history(history))
}

#' @rdname fit.keras
#' @export
evaluate <- function(object, ...) {
  UseMethod("evaluate")
}

#' @rdname fit.keras
#' @export
#' @rawNamespace S3method(generics::evaluate, keras.src.trainers.trainer.Trainer)
evaluate.keras.src.trainers.trainer.Trainer <- function(object,
                                                        x = NULL,
                                                        y = NULL,
                                                        batch_size = NULL,
                                                        verbose = default_verbose(),
                                                        sample_weight = NULL,
                                                        steps = NULL,
                                                        callbacks = NULL,
                                                        ...) {
  with_clean_errors(core()$evaluate(
    object,
    x = as_source(x, as_arrays),
    y = as_arrays(y),
    batch_size = as_whole(batch_size),
    verbose = as_whole(verbose),
    sample_weight = as_arrays(sample_weight),
    steps = as_whole(steps),
    callbacks = as_callbacks(callbacks),
    return_dict = TRUE,
    ...
  ))
}

#' @rdname fit.keras
#' @export
predict.keras.src.trainers.trainer.Trainer <- function(object,
                                                       x,
                                                       batch_size = NULL,
                                                       verbose = 0,
                                                       steps = NULL,
                                                       callbacks = NULL,
                                                       ...) {
  with_clean_errors(core()$predict(
    object,
    x = as_source(x, as_arrays),
    batch_size = as_whole(batch_size),
    verbose = as_whole(verbose),
    steps = as_whole(steps),
    callbacks = as_callbacks(callbacks),
    ...
  ))
}

# A generator in Python is an R function in R; all else are data.
as_source <- function(x, as_data) {
  if (is.function(x)) reticulate::r_to_py(function() as_batch(x()), convert = TRUE) else as_data(x)
}

as_batch <- function(batch) {
  if (is.list(batch)) unname(as_arrays(batch)) else batch
}

default_verbose <- function() {
  if (isTRUE(getOption("knitr.in.progress"))) {
    return(2L)
  }
  if (identical(Sys.getenv("TESTTHAT"), "true")) 0L else "auto"
}
