#' Multi-GPU training for Keras 3
#'
#' One call, [multi_gpu_model()], replicates a Keras model on the GPUs of a machine. Training gives the results of one
#' device, and the weights remain in the original model.
#'
#' R can also run inside a Python process and use the same models as Python: see the Python module
#' `multigpu.embedded_r`.
#'
#' Start with `vignette("multigpu")`. [multigpu_sitrep()] reports what is installed and what is missing.
#'
#' @section Beside keras3:
#' A parallel model always uses the methods of this package (\code{\link[=compile]{compile()}},
#' \code{\link[=fit]{fit()}}, \code{\link[=evaluate]{evaluate()}}, `predict()`, `print()` and `summary()`), whether
#' keras3 is loaded or not. All other models use the methods of keras3 if it is loaded, and those of this package
#' otherwise. If both packages export another function, R takes it from the package that was attached last, as always;
#' `multigpu::train_on_batch()` selects this package. Both take the same arguments by name. In keras3,
#' `train_on_batch()` and `test_on_batch()` return a named list, and `pop_layer()` returns the layer.
#'
#' A package that uses both has `import(keras3)` and `importFrom(multigpu, multi_gpu_model)` in its NAMESPACE, and one
#' `importFrom()` for each other function of this package that it calls.
#'
#' @section Functions of the old keras package:
#' Functions that this package lacks are in the package keras3 or, without it, in the module [keras]:
#' \tabular{ll}{
#'   `layer_dense()` and other layers \tab `keras$layers$Dense()` \cr
#'   `optimizer_adam()` and other optimizers \tab `keras$optimizers$Adam()` \cr
#'   `callback_early_stopping()` and other callbacks \tab `keras$callbacks$EarlyStopping()` \cr
#'   `loss_mean_squared_error()`, `metric_binary_accuracy()` \tab `keras$losses$MeanSquaredError()`,
#'     `keras$metrics$BinaryAccuracy()` \cr
#'   `custom_metric()` \tab `metrics = list(name = function(y_true, y_pred) ...)` \cr
#'   `application_resnet50()` \tab `keras$applications$ResNet50()` \cr
#'   `dataset_mnist()` \tab `keras$datasets$mnist$load_data()` \cr
#'   `k_mean()` and other functions of the backend \tab `keras$ops$mean()` \cr
#'   `to_categorical()`, `pad_sequences()` \tab `keras$utils$to_categorical()`, `keras$utils$pad_sequences()` \cr
#'   `clone_model()` \tab `keras$models$clone_model()` \cr
#'   `freeze_weights()` \tab `model$trainable <- FALSE`, then `compile()` \cr
#'   `save_model_tf()`, `load_model_tf()` \tab [save_model_hdf5()], [load_model_hdf5()] \cr
#'   `predict_classes()` \tab `max.col(predict(model, x)) - 1`
#' }
#'
#' @importFrom stats predict
#' @keywords internal
"_PACKAGE"
