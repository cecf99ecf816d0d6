# Several machines: the same call, with TF_CONFIG set.

script_of_a_worker <- c(
  "library(multigpu)",
  "x <- matrix(sin(1:200), 50)",
  "keras$utils$set_random_seed(0L)",
  "model <- keras_model_sequential(list(keras$Input(list(4L)), keras$layers$Dense(1L)))",
  "parallel_model <- multi_gpu_model(model, gpus = if (nzchar(Sys.getenv('TF_CONFIG'))) 1 else 2)",
  "parallel_model %>% compile('sgd', 'mse')",
  "history <- parallel_model %>% fit(x, x[, 1], batch_size = 16, epochs = 2, verbose = 0)",
  "stopifnot(nrow(overview(parallel_model)) > 0)",
  "cat(sprintf('%s: %.5f\\n', format(parallel_model$plan$cluster), tail(history$metrics$loss, 1)))"
)

test_that("two processes with TF_CONFIG train as one", {
  file <- tempfile(fileext = ".R")
  writeLines(script_of_a_worker, file)
  python <- reticulate::py_config()$python
  libs <- paste(.libPaths(), collapse = .Platform$path.sep)
  env <- c(
    paste0("R_LIBS=", libs), "TESTTHAT=false", paste0("RETICULATE_PYTHON=", python),
    paste0("PYTHONPATH=", python_folder())
  )
  command <- c("-m", "multigpu", "launch", "--processes", "2", shQuote(file))
  printed <- system2(python, command, stdout = TRUE, stderr = TRUE, env = env)
  lines <- sort(grep("^worker [01] of 2: ", printed, value = TRUE))
  expect_length(lines, 2)
  losses <- sub(".*: ", "", lines)
  expect_equal(losses[1], losses[2])

  alone <- run_in_new_r(c("multigpu::simulate_gpus(2)", script_of_a_worker))
  expect_equal(losses[1], sub(".*: ", "", tail(alone, 1)))
})
