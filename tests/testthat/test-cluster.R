# Several machines: the same call, with TF_CONFIG set.

script_of_a_worker <- c(
  "library(multigpu)",
  "x <- matrix(sin(1:200), 50)",
  "of_another <- reticulate::import('keras')", # as a package that has built a model before
  "of_another$utils$set_random_seed(0L)",
  "model <- of_another$Sequential(list(of_another$Input(list(4L)), of_another$layers$Dense(1L)))",
  "parallel_model <- multi_gpu_model(model, gpus = if (nzchar(Sys.getenv('TF_CONFIG'))) 1 else 2)",
  "parallel_model %>% compile('sgd', 'mse')",
  "history <- parallel_model %>% fit(x, x[, 1], batch_size = 16, epochs = 2, verbose = 0)",
  "stopifnot(nrow(overview(parallel_model)) > 0)",
  "cat(sprintf('%s: %.5f\\n', format(parallel_model$plan$cluster), tail(history$metrics$loss, 1)))"
)

# What two workers print that run these lines, sorted: with TF_CONFIG, or with what SLURM tells its tasks.
run_two_workers <- function(lines, by_slurm = FALSE) {
  file <- tempfile(fileext = ".R")
  writeLines(lines, file)
  python <- reticulate::py_config()$python
  libs <- paste(.libPaths(), collapse = .Platform$path.sep)
  env <- c(
    paste0("R_LIBS=", libs), "TESTTHAT=false", paste0("RETICULATE_PYTHON=", python),
    paste0("PYTHONPATH=", python_folder()),
    paste0("PATH=", R.home("bin"), .Platform$path.sep, Sys.getenv("PATH")) # --as-cran puts another Rscript there
  )
  printed <- if (by_slurm) {
    system2("sh", c("-c", shQuote(two_tasks(file))), stdout = TRUE, stderr = TRUE, env = c(env, step_of_slurm()))
  } else {
    command <- c("-m", "multigpu", "launch", "--processes", "2", shQuote(file))
    system2(python, command, stdout = TRUE, stderr = TRUE, env = env)
  }
  lines <- sort(grep("^worker [01] of 2: ", printed, value = TRUE))
  if (length(lines) != 2) stop(paste(printed, collapse = "\n"))
  lines
}

# As `srun -n 2 Rscript file` does.
two_tasks <- function(file) {
  task <- paste("SLURM_PROCID=%d", shQuote(file.path(R.home("bin"), "Rscript")), shQuote(file))
  paste(sprintf(task, 0), "&", sprintf(task, 1), "; wait")
}

step_of_slurm <- function() {
  ports <- reticulate::import_from_path("multigpu.cli.launch", python_folder())$free_ports(1L)
  c(
    "SLURM_STEP_NODELIST=localhost", "SLURM_STEP_TASKS_PER_NODE=2", "SLURM_STEP_NUM_TASKS=2",
    sprintf("SLURM_STEP_RESV_PORTS=%d-%d", ports, ports + 1L)
  )
}

test_that("two processes with TF_CONFIG train as one, also a model that another package has built first", {
  lines <- run_two_workers(script_of_a_worker)
  losses <- sub(".*: ", "", lines)
  expect_equal(losses[1], losses[2])

  alone <- capture.output(eval(parse(text = script_of_a_worker), new.env()))
  expect_equal(losses[1], sub(".*: ", "", tail(alone, 1)))
})

built_by_another <- c(
  "library(multigpu)",
  "of_another <- reticulate::import('keras')",
  "model <- of_another$Sequential(list(of_another$Input(list(4L)), of_another$layers$Dense(1L)))",
  "parallel_model <- multi_gpu_model(model, gpus = 1)",
  "cat(sprintf('%s: joined\\n', format(parallel_model$plan$cluster)))" # in one piece: both print at the same time
)

test_that("tasks of SLURM that call join_cluster() join, before another package builds the model", {
  joined <- c("worker 0 of 2: joined", "worker 1 of 2: joined")
  asked <- append(built_by_another, "join_cluster()", after = 1)
  expect_equal(run_two_workers(asked, by_slurm = TRUE), joined)
})

resolver_of <- function(...) {
  spec <- tf$train$ClusterSpec(reticulate::dict(worker = list(...)))
  tf$distribute$cluster_resolver$SimpleClusterResolver(spec, task_type = "worker", task_id = 0L)
}

test_that("a resolver with one worker changes nothing, and one with more is too late here", {
  expect_null(join_cluster())
  expect_error(join_cluster("slurm"), "Expected `resolver` to be one of .* Received: resolver='slurm'")
  expect_null(join_cluster(resolver_of("a:1")))
  available_gpus()
  tf$ones(1L)
  expect_error(join_cluster(resolver_of("a:1", "b:2")), "TensorFlow started first, on worker 0 of 2")
})
