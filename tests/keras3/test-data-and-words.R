# What a user meets besides the verbs is also the same with keras3 not there, loaded, and attached before and after:
# tables, messages, tensors, data of many types, and the words of losses and metrics.

script <- "
multigpu::keras$utils$set_random_seed(1L)
layers <- multigpu::keras$layers
say <- function(...) cat('said', ..., '\\n')
refused <- function(expr) {
  error <- tryCatch(expr, error = identity)
  say(inherits(error, 'multigpu_error'), gsub('\\\\s+', ' ', conditionMessage(error)))
}
make <- function(outputs = 1L, ...) {
  model <- multigpu::keras_model_sequential(4, layers = list(layers$Dense(outputs, ...)))
  model$set_weights(lapply(model$get_weights(), function(each) 0 * each + 0.1))
  model
}
model <- make()
parallel <- multi_gpu_model(model, gpus = 2)
parallel |> multigpu::compile(optimizer = 'sgd', loss = 'mse')
set.seed(1)
x <- round(matrix(rnorm(80), 20), 2)
y <- x[, 1] - 2 * x[, 2]
loss <- function(...) signif(multigpu::fit(..., verbose = 0, shuffle = FALSE)$metrics$loss, 4)

say(available_gpus()$name)

# tables print what they contain
table <- overview(parallel, 32)
for (line in capture.output(print(table))) say(line)
table$weights <- table$weights * 2
names(table)[1] <- 'where'
table <- within(table, rows <- rows + 1)
for (line in capture.output(print(vctrs::vec_slice(table, 2)))) say(line)

# tensors outside of a loss have no methods of this package
tensor <- multigpu::tf$constant(c(1, 2, 3))
say(any(grepl('multigpu', class(tensor))))

# data
sparse <- Matrix::Matrix(ifelse(x > 0.5, x, 0), sparse = TRUE)
for (kind in c('CsparseMatrix', 'RsparseMatrix', 'TsparseMatrix')) {
  data <- methods::as(sparse, kind)
  say(kind, loss(parallel, data, y), signif(predict(parallel, data, verbose = 0)[1:2], 4))
  say(signif(multigpu::train_on_batch(parallel, data, y), 4))
}
say(loss(parallel, function() list(sparse[1:5, ], y[1:5]), steps_per_epoch = 2))
refused(multigpu::fit(parallel, data.frame(x[, 1:3], when = as.Date('2026-01-01') + 1:20), y))
refused(multigpu::fit(parallel, data.frame(x[, 1:3], when = as.POSIXct('2026-01-01') + 1:20), y))
refused(multigpu::fit(parallel, matrix(letters[1:4], 20, 4), y))
refused(multigpu::fit(parallel, replace(x, 3, NA), y))
refused(multigpu::fit(parallel, matrix(c(NA, 1:79), 20), y))
classes <- make(2L, activation = 'softmax')
parallel_classes <- multi_gpu_model(classes, gpus = 2)
parallel_classes |> multigpu::compile(optimizer = 'sgd', loss = 'sparse_categorical_crossentropy')
label <- factor(ifelse(y > 0, 'yes', 'no'))
say(loss(parallel_classes, x, label, class_weight = c(yes = 3, no = 1)))
refused(multigpu::fit(parallel_classes, x, label, class_weight = c(maybe = 3, no = 1)))

# arguments
sparse_y <- Matrix::Matrix(y, 20, sparse = TRUE)
for_column <- multi_gpu_model(make(), gpus = 2) # Keras does not take a vector after a column
for_column |> multigpu::compile(optimizer = 'sgd', loss = 'mse')
say(loss(for_column, x, sparse_y), signif(unlist(multigpu::evaluate(for_column, x, sparse_y, verbose = 0)), 4))
say(signif(multigpu::predict_generator(parallel, function() x, 1)[1:2], 4))
inputs <- multigpu::keras$Input(list(4L))
outputs <- lapply(c('a', 'b'), function(name) layers$Dense(1L, name = name, kernel_initializer = 'ones')(inputs))
two <- multi_gpu_model(multigpu::keras_model(inputs, outputs), gpus = 2)
far <- function(y_true, y_pred) max(abs(y_true - y_pred))
two |> multigpu::compile(optimizer = 'sgd', loss = 'mse', metrics = list(list(far = far, 'mae'), far))
measured <- unlist(multigpu::evaluate(two, x, list(as.matrix(y), as.matrix(y)), verbose = 0))
say(names(measured), signif(measured, 4))
refused(two |> multigpu::compile(optimizer = 'sgd', loss = 'mse', metrics = list(far)))
refused(multi_gpu_model(mtcars))
refused(multigpu::fit(parallel_classes, x, rep(1:2, 10)))
refused(multigpu::fit(parallel, x, y, callbacks = 'a text'))
refused(multigpu::fit(parallel, x, y, validation_data = x))
refused(multigpu::fit(parallel, y ~ x, y))
refused(multigpu::fit(parallel, x, y, epochs = 1.5))
refused(multi_gpu_model(parallel, gpus = 2))

# words of losses and metrics
above <- function(x) pmax(x, 0)
words <- list(
  sd = function(y_true, y_pred) sd(y_pred[, 1]) + mean((y_true - y_pred)^2),
  median = function(y_true, y_pred) median(y_true) + mean(abs(y_true - y_pred)),
  product = function(y_true, y_pred) sum(t(y_pred) %*% y_pred) / 100 + mean(crossprod(y_true - y_pred)),
  diff = function(y_true, y_pred) mean(diff(y_pred[, 1])^2),
  cbind = function(y_true, y_pred) mean(cbind(y_true, y_pred)^2),
  is.finite = function(y_true, y_pred) mean(ifelse(is.finite(y_pred), (y_true - y_pred)^2, 0)),
  is.numeric = function(y_true, y_pred) if (is.numeric(y_pred) && is.matrix(y_pred)) mean((y_true - y_pred)^2),
  helper = function(y_true, y_pred) mean(above(y_true - y_pred)),
  columns = function(y_true, y_pred) Reduce(`+`, lapply(seq_len(ncol(y_pred)), function(i) mean(y_pred[, i]))),
  logical = function(y_true, y_pred) mean((y_pred > 0) * (y_true - y_pred)^2),
  change = function(y_true, y_pred) {
    y_pred[y_pred < 0] <- 0
    mean(y_pred)
  },
  apply = function(y_true, y_pred) mean(apply(y_pred, 1, sum)),
  sapply = function(y_true, y_pred) mean(sapply(y_pred, sum)),
  scale = function(y_true, y_pred) mean(scale(y_pred)),
  'if' = function(y_true, y_pred) if (mean(y_pred) > 0) mean(y_pred) else mean(y_true)
)
for (word in names(words)) {
  parallel |> multigpu::compile(optimizer = 'sgd', loss = words[[word]], metrics = list(again = words[[word]]))
  result <- tryCatch(loss(parallel, x, y), error = function(e) gsub('\\\\s+', ' ', conditionMessage(e)))
  say(word, result)
}
"

test_that("tables, messages, tensors, data and words are the same in all states", {
  said <- lapply(names(states), function(state) {
    ran <- run(c(states[[state]], script), env = "CUDA_VISIBLE_DEVICES=-1")
    expect_identical(ran$status, 0L, info = paste(c(state, tail(ran$printed, 15)), collapse = "\n"))
    grep("^said", ran$printed, value = TRUE)
  })
  expect_length(said[[1]], 47)
  expect_false(any(grepl("said FALSE (Error|Expected)", said[[1]]))) # what is refused, this package refuses
  for (each in said) expect_identical(each, said[[1]])
})
