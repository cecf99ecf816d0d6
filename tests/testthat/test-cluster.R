# Several machines: the same call, with TF_CONFIG set, or in a task of SLURM.

skip_on_cran()

script_of_a_worker <- c(
  "library(multigpu)",
  "if (nzchar(Sys.getenv('SLURM_PROCID'))) join_cluster()",
  "if (!exists('alone')) simulate_gpus(2)",
  "x <- matrix(sin(1:200), 50)",
  "of_another <- reticulate::import('keras')", # as a package that has built a model before
  "of_another$utils$set_random_seed(0L)",
  "model <- of_another$Sequential(list(of_another$Input(list(4L)), of_another$layers$Dense(1L)))",
  "parallel_model <- multi_gpu_model(model, gpus = if (exists('alone')) 4 else 2)",
  "parallel_model %>% compile('sgd', 'mse')",
  "history <- parallel_model %>% fit(x, x[, 1], batch_size = 16, epochs = 2, verbose = 0)",
  "stopifnot(nrow(overview(parallel_model)) > 0)",
  # in one piece: both print at the same time
  "cat(sprintf('%s: %.5f\\n', format(parallel_model$plan$cluster), tail(history$metrics$loss, 1)))"
)

# What two workers print that run these lines, sorted. The first gets TF_CONFIG from the launcher. The second gets what
# SLURM tells its tasks, as `srun Rscript file` does.
run_two_workers <- function(lines) {
  file <- tempfile(fileext = ".R")
  writeLines(lines, file)
  python <- reticulate::py_config()$python
  port <- reticulate::import_from_path("multigpu.cli.launch", python_folder())$free_ports(1L)
  hosts <- sprintf("localhost:%d,localhost:%d", port, port + 1L)
  launched <- paste(shQuote(python), "-m multigpu launch --rank 0 --hosts", hosts, shQuote(file))
  task <- c(
    "SLURM_PROCID=1", "SLURM_STEP_NODELIST=localhost", "SLURM_STEP_TASKS_PER_NODE=2", "SLURM_STEP_NUM_TASKS=2",
    sprintf("SLURM_STEP_RESV_PORTS=%d-%d", port, port + 1L), shQuote(file.path(R.home("bin"), "Rscript")), shQuote(file)
  )
  both <- paste(launched, "&", paste(task, collapse = " "), "; wait")
  libs <- paste(.libPaths(), collapse = .Platform$path.sep)
  env <- c(
    paste0("R_LIBS=", libs), "TESTTHAT=false", paste0("RETICULATE_PYTHON=", python),
    paste0("PYTHONPATH=", paste(c(python_folder(), Sys.getenv("PYTHONPATH")), collapse = .Platform$path.sep)),
    paste0("PATH=", R.home("bin"), .Platform$path.sep, Sys.getenv("PATH")) # --as-cran puts another Rscript there
  )
  # a worker whose peer does not join waits for it for ever
  printed <- system2("sh", c("-c", shQuote(both)), stdout = TRUE, stderr = TRUE, env = env, timeout = 300)
  lines <- sort(grep("^worker [01] of 2: ", printed, value = TRUE))
  if (length(lines) != 2) stop(paste(printed, collapse = "\n"))
  lines
}

test_that("a process with TF_CONFIG and a task of SLURM that joins train as one, a model that another package built", {
  lines <- run_two_workers(script_of_a_worker)
  expect_identical(sub(":.*", "", lines), c("worker 0 of 2", "worker 1 of 2"))
  losses <- sub(".*: ", "", lines)
  expect_equal(losses[1], losses[2])

  alone <- list2env(list(alone = TRUE), parent = globalenv())
  printed <- capture.output(eval(parse(text = script_of_a_worker), alone))
  expect_equal(losses[1], sub(".*: ", "", tail(printed, 1)))
})

resolver_of <- function(...) {
  spec <- tf$train$ClusterSpec(reticulate::dict(worker = list(...)))
  tf$distribute$cluster_resolver$SimpleClusterResolver(spec, task_type = "worker", task_id = 0L)
}

test_that("a resolver with one worker changes nothing, and one with more is too late here", {
  expect_null(join_cluster())
  expect_match(error_text(join_cluster("slurm")), "Expected `resolver` to be one of .* Received: resolver = 'slurm'")
  expect_null(join_cluster(resolver_of("a:1")))
  available_gpus()
  tf$ones(1L)
  expect_error(join_cluster(resolver_of("a:1", "b:2")), "TensorFlow started first, on worker 0 of 2")
})
