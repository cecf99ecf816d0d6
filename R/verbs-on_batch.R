#' Run one step on one batch
#'
#' For custom training loops. `predict_proba()` is an old name of `predict()`.
#'
#' @inheritParams fit
#' @param steps Number of batches, if `x` is a generator.
#' @return `train_on_batch()` and `test_on_batch()`: the loss or, with metrics, a vector of the loss and the metrics,
#'   without names. The functions of keras3 return a named list.
#'   `predict_on_batch()` and `predict_proba()`: an array of predictions.
#' @seealso Other verbs: \code{\link[=compile]{compile()}}, \code{\link[=fit]{fit()}}, [fit_generator()].
#' @examplesIf multigpu::multigpu_is_installed()
#' simulate_gpus(2) # does nothing on a machine with two GPUs
#' model <- keras_model_sequential(input_shape = 4, layers = list(keras$layers$Dense(1L)))
#' parallel_model <- multi_gpu_model(model, gpus = 2)
#' parallel_model |> compile(optimizer = "sgd", loss = "mse")
#' x <- matrix(rnorm(400), 100)
#' y <- rowSums(x)
#' parallel_model |> train_on_batch(x[1:64, ], y[1:64])
#' @export
train_on_batch <- function(object, x, y = NULL, class_weight = NULL, sample_weight = NULL) {
  with_clean_errors(alive(object)$train_on_batch(
    as_inputs(x, object, as_batch), as_targets(y),
    class_weight = as_class_weight(class_weight, y),
    sample_weight = as_arrays(sample_weight)
  ))
}

#' @rdname train_on_batch
#' @export
test_on_batch <- function(object, x, y = NULL, sample_weight = NULL) {
  with_clean_errors(alive(object)$test_on_batch(
    as_inputs(x, object, as_batch), as_targets(y),
    sample_weight = as_arrays(sample_weight)
  ))
}

#' @rdname train_on_batch
#' @export
predict_on_batch <- function(object, x) {
  with_clean_errors(alive(object)$predict_on_batch(as_inputs(x, object, as_batch)))
}

#' @rdname train_on_batch
#' @export
predict_proba <- function(object, x, batch_size = NULL, verbose = 0, steps = NULL) {
  predict_model(object, x, batch_size = batch_size, verbose = verbose, steps = steps)
}
