# The same script prints the same with keras3 not there, loaded, and attached before and after.

script <- "
multigpu::keras$utils$set_random_seed(1L)
layers <- multigpu::keras$layers
model <- multigpu::keras_model_sequential(4, layers = list(layers$Dense(8L, activation = 'tanh'), layers$Dense(1L)))
parallel <- multi_gpu_model(model, gpus = 2)
set.seed(1)
x <- as.data.frame(matrix(rnorm(200), 50))
y <- as.matrix(x[, 1] - 2 * x[, 2]) # beside keras3, metrics get a vector as it is
parallel |> compile(
  optimizer = 'sgd', loss = function(y_true, y_pred) mean(pmax(y_true - y_pred, y_pred - y_true)),
  metrics = list(largest = function(y_true, y_pred) max(abs(y_true[, 1] - y_pred[, 1])))
)
epochs <- c()
note <- list(on_epoch_end = function(epoch, logs) epochs <<- c(epochs, epoch))
for (verb in list(fit, multigpu::fit)) {
  history <- parallel |> verb(x, y, verbose = 0, shuffle = FALSE, callbacks = note)
}
say <- function(...) cat('said', ..., '\\n')
say(class(history), names(history$metrics), signif(history$metrics$loss, 4))
say(epochs)
for (verb in list(evaluate, multigpu::evaluate)) {
  result <- parallel |> verb(x, y, verbose = 0)
  say(names(result), signif(unlist(result), 4))
}
say(signif(predict(parallel, x, verbose = 0)[1:3], 4))
say(signif(multigpu::train_on_batch(parallel, x, y), 4))
say(grep('Total', capture.output(print(parallel)), value = TRUE))
say(grep('Total', capture.output(summary(parallel)), value = TRUE))
refused <- function(expr) {
  error <- tryCatch(expr, error = identity)
  say(inherits(error, 'multigpu_error'), gsub('\\\\s+', ' ', conditionMessage(error)))
}
refused(parallel |> fit(x, y, epoch_number = 2))
refused(parallel |> multigpu::fit(cbind(x, when = Sys.Date()), y))
refused(multi_gpu_model(mtcars))
bring_home(parallel)
say(grep('weights on CPU:0$', capture.output(print(parallel)), value = TRUE))

shape <- function(model) unlist(reticulate::import_builtins()$list(model$input_shape))
model <- keras_model_sequential(input_shape = 4, layers = list(layers$Dense(1L)))
stopifnot(shape(model) == 4, count_params(model) == 5, length(get_weights(model)) == 2)
set_weights(model, lapply(get_weights(model), function(each) 0 * each + 1))
stopifnot(unlist(get_weights(model, trainable = TRUE)) == 1, length(get_weights(model, trainable = FALSE)) == 0)
several <- keras_model_sequential(c(NA, 3), name = 'several', input_batch_size = 2, layers = list(layers$Dense(1L)))
stopifnot(several$name == 'several')
stopifnot(length(get_layer(model, index = 1)$get_weights()) == 2)
"

# Other models have the verbs of keras3 when it is loaded, also by the names of this package.
of_keras3 <- "
model |> compile(optimizer = 'sgd', loss = 'mse')
x <- matrix(0, 10, 4)
for (verb in list(fit, multigpu::fit)) stopifnot(length(verb(model, x, x[, 1], verbose = 0)$metrics$loss) == 1)
expected <- keras3::evaluate(model, x, x[, 1], verbose = 0)
stopifnot(identical(multigpu::evaluate(model, x, x[, 1], verbose = 0), expected))
stopifnot(inherits(try(multigpu::evaluate(model, as.data.frame(x), x[, 1]), silent = TRUE), 'try-error'))
"

# As R users write it.
in_a_pipe <- "
model <- keras_model_sequential(input_shape = 4) |> layer_dense(32, 'relu') |> layer_dense(1)
stopifnot(count_params(model) == 193)
said <- tryCatch(multi_gpu_model(model, gpus = 2) |> layer_dense(1), error = conditionMessage)
stopifnot(grepl('Received: a parallel model. Add layers to its template', said, fixed = TRUE))
"


test_that("a parallel model's verbs, and the functions that make models, are the same in all states", {
  said <- lapply(names(states), function(state) {
    ran <- run(c(
      states[[state]], script, if (state != "alone") of_keras3, if (state %in% names(orders)) in_a_pipe
    ))
    expect_identical(ran$status, 0L, info = paste(c(state, tail(ran$printed, 5)), collapse = "\n"))
    grep("^said", ran$printed, value = TRUE)
  })
  expect_length(said[[1]], 12)
  for (each in said) expect_identical(each, said[[1]])
})
