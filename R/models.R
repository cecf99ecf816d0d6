#' Create a model
#'
#' Create a sequential model from a list of layers, or a functional model from inputs and outputs. Layers, and all else
#' that Keras provides, are in the module [keras]. The functions of the same names in keras3 take these arguments as
#' well.
#'
#' @param input_shape Shape of one row of the input, such as `4` or `c(28, 28, 1)`; `NA` is a length that varies.
#' @param name Name of the model.
#' @param ... For `keras_model_sequential()`: more arguments of `keras$Input()`, which may have the names that keras3
#'   gives them, such as `input_batch_size`. For `keras_model()`: those of `keras$Model()`.
#' @param trainable Whether the layers are trained.
#' @param layers A list of layers. More layers can be added with `model$add()` or, with keras3, in a pipe:
#'   `keras_model_sequential(input_shape = 4) |> layer_dense(32, "relu")`.
#' @param inputs,outputs Symbolic inputs and outputs, or lists of them.
#' @return A Keras model.
#' @examplesIf multigpu::multigpu_is_installed()
#' model <- keras_model_sequential(input_shape = 4, layers = list(keras$layers$Dense(1L)))
#'
#' x <- keras$Input(list(4L))
#' model <- keras_model(x, keras$layers$Dense(1L)(x))
#' model
#' @export
keras_model_sequential <- function(input_shape = NULL, name = NULL, ..., trainable = TRUE, layers = NULL) {
  if (is.list(input_shape) && any(vapply(input_shape, is_python_object, NA))) { # they came first in Keras 2
    layers <- input_shape
    input_shape <- NULL
  }
  refuse_na(trainable = trainable)
  with_clean_errors(keras$Sequential(
    c(as_input(input_shape, ...), as.list(layers)),
    name = name, trainable = trainable
  ))
}

# The input as the first layer, if there are arguments for it.
as_input <- function(shape, ...) {
  more <- list(...)
  names(more) <- sub("^input_", "", names(more))
  arguments <- c(list(shape = as_shape(shape)), do.call(more_arguments, c(list(keras, "Input"), more)))
  arguments[["batch_shape"]] <- as_shape(arguments[["batch_shape"]])
  if (length(arguments) > 1 || !is.null(shape)) list(do.call(keras$Input, arguments))
}

# A tuple, as Keras has shapes.
as_shape <- function(shape) {
  as_extent <- function(extent) if (!is.null(extent) && !is.na(extent)) as_integer(extent)
  if (!is.null(shape) && !is_python_object(shape)) do.call(reticulate::tuple, lapply(as.list(shape), as_extent))
}

#' @rdname keras_model_sequential
#' @export
keras_model <- function(inputs = NULL, outputs = NULL, ...) {
  with_clean_errors(keras$Model(inputs = inputs, outputs = outputs, ...))
}

#' The Xception model
#'
#' A convolutional network for images by F. Chollet, <https://arxiv.org/abs/1610.02357>.
#'
#' @param include_top Whether to include the dense layer that classifies the image.
#' @param weights `"imagenet"` for trained weights, which are downloaded, the path of a file of weights, or `NULL` for
#'   random weights.
#' @param input_tensor A symbolic input to use for the images.
#' @param input_shape Shape of an image, such as `c(299, 299, 3)`.
#' @param pooling If `include_top = FALSE`: `"avg"` or `"max"` to pool over the image, or `NULL` for no pooling.
#' @param classes Number of classes.
#' @param classifier_activation Activation of the dense layer that classifies the image.
#' @param name Name of the model.
#' @return A Keras model.
#' @examplesIf multigpu::multigpu_is_installed()
#' simulate_gpus(2) # does nothing on a machine with two GPUs
#' model <- application_xception(weights = NULL, input_shape = c(71, 71, 3), classes = 10)
#' parallel_model <- multi_gpu_model(model, gpus = 2)
#' @export
application_xception <- function(include_top = TRUE,
                                 weights = "imagenet",
                                 input_tensor = NULL,
                                 input_shape = NULL,
                                 pooling = NULL,
                                 classes = 1000,
                                 classifier_activation = "softmax",
                                 name = "xception") {
  with_clean_errors(keras$applications$Xception(
    include_top = include_top,
    weights = if (is.character(weights)) path.expand(weights) else weights,
    input_tensor = input_tensor,
    input_shape = as_shape(input_shape),
    pooling = pooling,
    classes = as_integer(classes),
    classifier_activation = classifier_activation,
    name = name
  ))
}

#' Inspect a model
#'
#' The configuration, the layers and a summary of a model, and the removal of its last layer.
#'
#' @param object,x A Keras model, parallel or not. For a parallel model, the result is its template's.
#' @param name Name of a layer.
#' @param index Number of a layer, counted from 1. Negative numbers count from the last layer.
#' @param rebuild Whether to build the model again.
#' @param line_length Width of the summary in characters.
#' @param ... More arguments of Keras' `summary()`, such as `expand_nested = TRUE`.
#' @return `get_layer()`: a layer. `get_config()`: the configuration, a named list. `pop_layer()`: the model without its
#'   last layer, invisibly; that of keras3 returns the layer. `summary()` and `print()`: the model, invisibly.
#' @examplesIf multigpu::multigpu_is_installed()
#' simulate_gpus(2) # does nothing on a machine with two GPUs
#' model <- keras_model_sequential(input_shape = 4, layers = list(keras$layers$Dense(1L)))
#' parallel_model <- multi_gpu_model(model, gpus = 2)
#' summary(parallel_model)
#' get_layer(parallel_model, index = 1)
#' @export
get_layer <- function(object, name = NULL, index = NULL) {
  from_end <- is.numeric(index) && isTRUE(index < 0)
  index <- if (from_end) as_integer(index) else as_counts(index = index)$index
  with_clean_errors(alive(object)$get_layer(
    name = name, index = if (is.null(index) || from_end) index else index - 1L
  ))
}

#' @rdname get_layer
#' @export
get_config <- function(object) {
  with_clean_errors({
    config <- alive(object)$get_config()
    class <- (if (is_parallel(object)) object$template else object)$`__class__`
    structure(config, `__class__` = class) # keras3's `from_config()` reads it
  })
}

#' @rdname get_layer
#' @export
pop_layer <- function(object, rebuild = TRUE) {
  if (!inherits(object, "keras.src.models.sequential.Sequential") || is_parallel(object)) {
    refuse(
      "a sequential model on one device", if (is_parallel(object)) "a parallel model" else class(object)[[1]],
      "Remove the layer from the template, before `multi_gpu_model()`."
    )
  }
  with_clean_errors(alive(object)$pop(rebuild = rebuild))
  invisible(object)
}

summarize_model <- function(object, line_length = getOption("width"), ...) {
  print_line <- function(text, ...) cat(text, "\n", sep = "")
  with_clean_errors(call_python(
    core()$summarize, more_arguments(object, "summary", ...),
    model = object, line_length = as_counts(line_length = line_length)$line_length, print_fn = print_line
  ))
  invisible(object)
}

#' @rdname get_layer
#' @export
#' @rawNamespace S3method(summary, keras.src.trainers.trainer.Trainer, summarize_model)
summary.multigpu.model.parallel_model.ParallelModel <- summarize_model

print_model <- function(x, ...) {
  summarize_model(x, ...)
}

#' @rdname get_layer
#' @export
#' @rawNamespace S3method(print, keras.src.trainers.trainer.Trainer, print_model)
print.multigpu.model.parallel_model.ParallelModel <- print_model

#' Copy weights
#'
#' Gets and sets the weights of a model or a layer as R arrays, and counts its parameters.
#'
#' @param object A Keras model or layer. A parallel model has the weights of its template.
#' @param weights A list of arrays, as `get_weights()` returns.
#' @param trainable `TRUE` for the trainable weights alone, `FALSE` for the others, `NA` for all.
#' @return `get_weights()`: a list of arrays. `set_weights()`: the model, invisibly. `count_params()`: the number of
#'   parameters.
#' @examplesIf multigpu::multigpu_is_installed()
#' model <- keras_model_sequential(input_shape = 4, layers = list(keras$layers$Dense(1L)))
#' weights <- get_weights(model)
#' set_weights(model, lapply(weights, function(each) 0 * each))
#' count_params(model)
#' @export
get_weights <- function(object, trainable = NA) {
  if (is.na(trainable)) {
    return(with_clean_errors(alive(object)$get_weights()))
  }
  of_kind <- if (trainable) "trainable_weights" else "non_trainable_weights"
  lapply(alive(object)[[of_kind]], function(weight) weight$numpy())
}

#' @rdname get_weights
#' @export
set_weights <- function(object, weights) {
  arrays <- as_arrays(weights)
  is_scalar <- vapply(alive(object)$weights, function(weight) length(weight$shape) == 0, NA)
  of_scalars <- intersect(which(is_scalar), seq_along(arrays)) # in R, a number is a vector
  arrays[of_scalars] <- lapply(arrays[of_scalars], function(x) reticulate::r_to_py(x)$reshape(reticulate::tuple()))
  with_clean_errors(alive(object)$set_weights(arrays))
  invisible(object)
}

#' @rdname get_weights
#' @export
count_params <- function(object) {
  with_clean_errors(alive(object)$count_params())
}
