# A run of tfruns has the metrics of our `fit()` as it has those of keras3's.

script <- "
model <- keras_model_sequential(input_shape = 4) |> layer_dense(1)
%s
%s |> compile(optimizer = 'sgd', loss = 'mse', metrics = 'mae')
set.seed(1)
x <- matrix(rnorm(200), 50)
y <- x[, 1]
%s |> fit(x, y, epochs = 3, validation_split = 0.2, verbose = 0, view_metrics = FALSE)
%s |> evaluate(x, y, verbose = 0)
"

test_that("a run of tfruns has the metrics, the evaluation and the properties of a parallel model as of keras3's", {
  folder <- tempfile("runs")
  dir.create(folder)
  ours <- sprintf(script, "parallel <- multi_gpu_model(model, gpus = 2)", "parallel", "parallel", "parallel")
  writeLines(ours, file.path(folder, "ours.R"))
  writeLines(sprintf(script, "", "model", "model", "model"), file.path(folder, "theirs.R"))
  expect_runs(c(states$before, sprintf("setwd('%s')", folder), "
    recorded <- lapply(c('theirs.R', 'ours.R'), function(file) {
      tfruns::training_run(file, run_dir = file.path('runs', file), echo = FALSE, view = FALSE)
      tfruns::run_info(file.path('runs', file))
    })
    for (part in c('metrics', 'epochs', 'epochs_completed', 'loss_function', 'learning_rate')) {
      stopifnot(identical(lapply(recorded[[1]][[part]], length), lapply(recorded[[2]][[part]], length)))
    }
    of_metrics <- grep('^metric_', names(recorded[[1]]), value = TRUE)
    stopifnot(length(of_metrics) == 4, c(of_metrics, 'eval_loss', 'eval_mae') %in% names(recorded[[2]]))
    stopifnot(!anyNA(unlist(recorded[[2]]$metrics)), grepl('dense', recorded[[2]]$model))
  "))
})
