#' Train, evaluate and predict from a generator
#'
#' A generator is an R function without arguments that returns the next batch, as `list(x, y)` or `list(x, y, weights)`,
#' and `NULL` when there are no more batches. Then the training ends. On TensorFlow, it goes on with the next epoch if
#' the function then returns batches again. For predictions it may return `x` alone. It is called just before each step,
#' on the main thread. TensorFlow never calls it from a background thread, which would block or crash R.
#'
#' \code{\link[=fit]{fit()}} accepts such a function as well. The names on this page are those of the R interface of
#' Keras 2.
#'
#' @inheritParams fit
#' @param generator An R function that returns the next batch, or a Python generator, dataset or `PyDataset`.
#' @param steps_per_epoch,validation_steps,steps Number of batches in an epoch, in a validation, in a pass.
#' @param validation_data A generator, or `list(x, y)`.
#' @param max_queue_size,workers Ignored: each batch is made when it is needed.
#' @return The same as \code{\link[=fit]{fit()}}, \code{\link[=evaluate]{evaluate()}} and `predict()`.
#' @seealso Other verbs: \code{\link[=compile]{compile()}}, \code{\link[=fit]{fit()}}, [train_on_batch()].
#' @examplesIf multigpu::multigpu_is_installed()
#' simulate_gpus(2) # does nothing on a machine with two GPUs
#' model <- keras_model_sequential(input_shape = 4, layers = list(keras$layers$Dense(1L)))
#' parallel_model <- multi_gpu_model(model, gpus = 2)
#' parallel_model |> compile(optimizer = "sgd", loss = "mse")
#' x <- matrix(rnorm(400), 100)
#' y <- rowSums(x)
#' next_batch <- function() {
#'   rows <- sample(nrow(x), 32)
#'   list(x[rows, ], y[rows])
#' }
#' parallel_model |> fit_generator(next_batch, steps_per_epoch = 4, epochs = 2)
#' @export
fit_generator <- function(object,
                          generator,
                          steps_per_epoch,
                          epochs = 1,
                          verbose = getOption("keras.fit_verbose", default_verbose()),
                          callbacks = NULL,
                          view_metrics = getOption("keras.view_metrics", "auto"),
                          validation_data = NULL,
                          validation_steps = NULL,
                          class_weight = NULL,
                          max_queue_size = 10,
                          workers = 1,
                          initial_epoch = 0) {
  fit_model(
    object, generator,
    steps_per_epoch = steps_per_epoch, epochs = epochs, verbose = verbose, callbacks = callbacks,
    view_metrics = view_metrics, validation_data = validation_data, validation_steps = validation_steps,
    class_weight = class_weight, initial_epoch = initial_epoch, shuffle = any(grepl("PyDataset$", class(generator)))
  )
}

#' @rdname fit_generator
#' @export
evaluate_generator <- function(object,
                               generator,
                               steps,
                               max_queue_size = 10,
                               workers = 1,
                               callbacks = NULL,
                               verbose = default_verbose()) {
  evaluate_model(
    object, generator,
    steps = steps, verbose = verbose, callbacks = callbacks
  )
}

#' @rdname fit_generator
#' @export
predict_generator <- function(object,
                              generator,
                              steps,
                              max_queue_size = 10,
                              workers = 1,
                              verbose = 0,
                              callbacks = NULL) {
  predict_model(object, generator, steps = steps, verbose = verbose, callbacks = callbacks)
}
