# What sessions do that have just started. TensorFlow takes seconds to start, so each session shows several things.

skip_on_cran()

# keras3 waits for Python's `keras`, and makes a tensor when the import that brought it has ended.
makes_a_tensor <- '
import importlib._bootstrap, sys
depth, made, find_and_load = 0, False, importlib._bootstrap._find_and_load
def hooked(name, import_):
    global depth, made
    depth += 1
    try:
        return find_and_load(name, import_)
    finally:
        depth -= 1
        if depth == 0 and not made and hasattr(sys.modules.get("keras"), "ops"):
            made = True
            sys.modules["keras"].ops.convert_to_tensor([1])
importlib._bootstrap._find_and_load = hooked
'

mock_of_keras3 <- list(
  exports = "export(keras)",
  code = c(
    "keras <- NULL", paste("code <-", deparse1(makes_a_tensor)),
    ".onLoad <- function(...) setHook('reticulate.onPyInit', function(...) reticulate::py_run_string(code))"
  )
)

simulated <- "simulate_gpus(2); cat('simulated:', nrow(available_gpus()), '\\n')"

sessions <- list(
  keras3_first = list(
    lines = c(
      "library(keras3)", "library(multigpu)", simulated,
      "of_another <- reticulate::import('keras')", # a package that builds a model
      "model <- of_another$Sequential(list(of_another$Input(list(4L)), of_another$layers$Dense(1L)))",
      "parallel_model <- multi_gpu_model(model, gpus = 2)"
    ),
    env = c(
      "SLURM_PROCID=0", "SLURM_STEP_NODELIST=localhost", "SLURM_STEP_TASKS_PER_NODE=2", "SLURM_STEP_NUM_TASKS=2",
      "SLURM_STEP_RESV_PORTS=15000-15001"
    )
  ),
  keras3_last = list(
    lines = c(
      "library(multigpu)", "library(keras3)", simulated,
      "keras <- multigpu::keras",
      "model <- multigpu::keras_model_sequential(layers = list(keras$Input(list(4L)), keras$layers$Dense(1L)))",
      "cat('begin\\n'); save_model_hdf5(model, tempfile(fileext = '.h5')); cat('end\\n')"
    )
  ),
  nothing_simulated = list(
    lines = c(
      "library(keras3)", "library(multigpu)",
      "reticulate::py_run_string('import keras; kept = keras.Layer._flatten_layers; del keras.Layer._flatten_layers')",
      "cat(tryCatch(multi_gpu_model(1, 2), error = conditionMessage), '\\n')", "invisible(multigpu_sitrep())",
      "reticulate::py_run_string('keras.Layer._flatten_layers = kept')",
      "print(available_gpus()); print(nrow(available_gpus())); invisible(multigpu_sitrep())",
      "tryCatch(simulate_gpus(2), error = function(e) cat('too late:', conditionMessage(e), '\\n'))"
    ),
    env = "CUDA_VISIBLE_DEVICES=-1"
  ),
  another_backend = list(
    lines = c(
      "library(multigpu)", "for (start in list(simulate_gpus, keras_model_sequential, function(n) keras$Input(n))) {",
      "  tryCatch(start(2), error = function(e) cat(conditionMessage(e), '\\n'))", "}"
    ),
    env = "KERAS_BACKEND=torch"
  )
)

# What a session prints, which starts when the first test asks.
printed_by <- local({
  lib <- NULL
  printed <- list()
  function(name) {
    if (is.null(lib)) lib <<- install_mocks(list(keras3 = mock_of_keras3))
    if (is.null(printed[[name]])) {
      session <- sessions[[name]]
      printed[[name]] <<- run_in_new_r(session$lines, lib, as.character(session$env))
    }
    printed[[name]]
  }
})

test_that("devices are simulated in time beside keras3, attached before or after", {
  expect_match(printed_by("keras3_first"), "^simulated: 2", all = FALSE)
  expect_match(printed_by("keras3_last"), "^simulated: 2", all = FALSE)
  too_late <- "too late: Expected `simulate_gpus()` to be called before TensorFlow uses a device"
  expect_match(printed_by("nothing_simulated"), too_late, fixed = TRUE, all = FALSE)
})

test_that("a task of SLURM that does not join trains separately, and prints one line about it", {
  told <- grep("^multigpu: this is one of 2 tasks", printed_by("keras3_first"), value = TRUE)
  expect_length(told, 1)
  cure <- "one model together, call `join_cluster()` at the top of the script; TF_CONFIG='{}'"
  expect_match(told, cure, fixed = TRUE)
})

test_that("a file that is asked for by name is written without advice", {
  printed <- printed_by("keras3_last")
  expect_identical(printed[seq(match("begin", printed), match("end", printed))], c("begin", "end"))
})

test_that("a Keras that lacks what the package uses is refused by every function, with what is missing", {
  printed <- printed_by("nothing_simulated")
  expect_length(grep("^Expected a Keras with the private names that multigpu", printed), 2)
  expect_match(printed, "lack", all = FALSE)
  expect_match(printed, "Run `reticulate::py_install(\"keras==", fixed = TRUE, all = FALSE)
})

test_that("without a GPU, the table is empty and a message says why, as the report does", {
  printed <- printed_by("nothing_simulated")
  expect_true(any(startsWith(printed, "No GPU: CUDA_VISIBLE_DEVICES='-1' hides all GPUs.")))
  expect_true("[1] 0" %in% printed)
  report <- grep("^GPUs: none", printed, value = TRUE)
  expect_identical(report[[1]], "GPUs: none") # with a Keras that is refused above
  why <- "CUDA_VISIBLE_DEVICES='-1' hides all GPUs. Unset it, or set it to the numbers of those to use."
  expect_identical(report[[2]], paste("GPUs: none:", why))
})

test_that("another backend than those that the package works with is refused by name, by whatever comes first", {
  printed <- printed_by("another_backend")
  expect_length(grep("^Expected Keras to run on", printed), 3)
  expect_length(grep("Received: the backend \"torch\"", printed, fixed = TRUE), 3)
  expect_length(grep("keras3::use_backend", printed, fixed = TRUE), 3)
})
