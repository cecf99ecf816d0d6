#' Functions of Keras 2 that are not here
#'
#' Layers, optimizers, callbacks and the like have functions in the package keras3, which works beside this one, and in
#' the module [keras], which this package exports. Functions with the names that scripts of 2018 use raise an error that
#' says where each of them is. If keras3 is attached, its functions are used.
#'
#' @param ... Ignored.
#' @return None: an error.
#' @examples
#' try(layer_dense(units = 10))
#' @name keras2-names
#' @eval paste(c("@aliases", names(elsewhere)), collapse = " ")
#' @evalNamespace sprintf("export(%s)", names(elsewhere))
NULL

# name → what to use without keras3
elsewhere <- c(
  layer_dense = "keras$layers$Dense()", layer_dropout = "keras$layers$Dropout()",
  layer_activation = "keras$layers$Activation()", layer_flatten = "keras$layers$Flatten()",
  layer_conv_1d = "keras$layers$Conv1D()", layer_conv_2d = "keras$layers$Conv2D()",
  layer_max_pooling_2d = "keras$layers$MaxPooling2D()", layer_average_pooling_2d = "keras$layers$AveragePooling2D()",
  layer_global_average_pooling_2d = "keras$layers$GlobalAveragePooling2D()",
  layer_batch_normalization = "keras$layers$BatchNormalization()", layer_embedding = "keras$layers$Embedding()",
  layer_lstm = "keras$layers$LSTM()", layer_gru = "keras$layers$GRU()", layer_input = "keras$layers$Input()",
  layer_concatenate = "keras$layers$Concatenate()", layer_add = "keras$layers$Add()",
  layer_reshape = "keras$layers$Reshape()", layer_lambda = "keras$layers$Lambda()",
  optimizer_sgd = "keras$optimizers$SGD()", optimizer_rmsprop = "keras$optimizers$RMSprop()",
  optimizer_adam = "keras$optimizers$Adam()", optimizer_adagrad = "keras$optimizers$Adagrad()",
  optimizer_adadelta = "keras$optimizers$Adadelta()", optimizer_adamax = "keras$optimizers$Adamax()",
  optimizer_nadam = "keras$optimizers$Nadam()", callback_model_checkpoint = "keras$callbacks$ModelCheckpoint()",
  callback_early_stopping = "keras$callbacks$EarlyStopping()",
  callback_tensorboard = "keras$callbacks$TensorBoard()",
  callback_reduce_lr_on_plateau = "keras$callbacks$ReduceLROnPlateau()",
  callback_csv_logger = "keras$callbacks$CSVLogger()",
  callback_learning_rate_scheduler = "keras$callbacks$LearningRateScheduler()",
  callback_lambda = "keras$callbacks$LambdaCallback()",
  loss_categorical_crossentropy = "keras$losses$CategoricalCrossentropy()",
  loss_binary_crossentropy = "keras$losses$BinaryCrossentropy()",
  loss_mean_squared_error = "keras$losses$MeanSquaredError()",
  metric_categorical_accuracy = "keras$metrics$CategoricalAccuracy()",
  metric_binary_accuracy = "keras$metrics$BinaryAccuracy()", application_resnet50 = "keras$applications$ResNet50()",
  application_vgg16 = "keras$applications$VGG16()", application_inception_v3 = "keras$applications$InceptionV3()",
  application_mobilenet = "keras$applications$MobileNet()", dataset_mnist = "keras$datasets$mnist$load_data()",
  dataset_cifar10 = "keras$datasets$cifar10$load_data()", k_mean = "keras$ops$mean()", k_sum = "keras$ops$sum()",
  k_max = "keras$ops$max()", k_abs = "keras$ops$abs()", k_square = "keras$ops$square()", k_sqrt = "keras$ops$sqrt()",
  k_exp = "keras$ops$exp()", k_log = "keras$ops$log()", k_clip = "keras$ops$clip()",
  k_clear_session = "keras$utils$clear_session()", to_categorical = "keras$utils$to_categorical()",
  pad_sequences = "keras$utils$pad_sequences()", clone_model = "keras$models$clone_model()",
  freeze_weights = "model$trainable <- FALSE, then compile()",
  unfreeze_weights = "model$trainable <- TRUE, then compile()",
  custom_metric = "metrics = list(name = function(y_true, y_pred) ...)", save_model = "save_model_hdf5()",
  load_model = "load_model_hdf5()", save_model_tf = "save_model_hdf5()", load_model_tf = "load_model_hdf5()",
  predict_classes = "max.col(predict(model, x)) - 1"
)

not_in_keras3 <- c("predict_classes", "save_model_tf", "load_model_tf", "k_")

refusal_of <- function(name) {
  force(name)
  function(...) {
    is_in_keras3 <- !any(startsWith(name, not_in_keras3))
    stop(
      "Expected a function of multigpu. Received: `", name, "()`, which the R interface of Keras 2 had. Use ",
      if (is_in_keras3) "that of the package keras3, `library(keras3)`, or ", "`", elsewhere[[name]], "`.",
      call. = FALSE
    )
  }
}

for (name in names(elsewhere)) {
  assign(name, refusal_of(name))
}
rm(name)
