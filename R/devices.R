#' Simulate GPUs
#'
#' Splits the only GPU of this machine, or its CPU if there is no GPU, into `n` logical devices, which `gpus = n` then
#' uses. On a machine without a GPU, the devices also have the names of GPUs: `"GPU:0"` is the first one. The same code
#' runs as on GPUs, but not at their speed. Call it once, before anything else uses TensorFlow or JAX. On a
#' machine with `n` GPUs or more it does nothing. On JAX it splits the CPU only.
#'
#' @param n Number of devices, from 1 to 1024.
#' @param memory_limit Memory of each device in MB, if a GPU is split. The CPU has no limit.
#' @return `NULL`, invisibly.
#' @family devices
#' @examplesIf multigpu::multigpu_is_installed()
#' simulate_gpus(2) # does nothing on a machine with two GPUs
#' available_gpus()
#' @export
simulate_gpus <- function(n, memory_limit = 2048L) {
  refuse_na(n = n, memory_limit = memory_limit)
  clean_errors(core_before_start("simulate_gpus", as_integer(n), as_integer(memory_limit)))
  invisible()
}

#' List the available GPUs
#'
#' Lists the devices that the argument `gpus` of [multi_gpu_model()] counts: the GPUs that TensorFlow sees or, on a
#' machine without a GPU, the devices made by [simulate_gpus()]. This does not initialize TensorFlow's devices, so
#' you can still call [simulate_gpus()] afterwards. JAX starts here: call [simulate_gpus()] first.
#'
#' @return A data frame with one row per device. If there is none, a message gives the reason. Columns:
#'   `id`, counted from 0, and `name`, which `gpus` also accepts; `physical`, the hardware; `memory_total`, the bytes
#'   that TensorFlow may use, and `memory_free`, those that this process does not use. Both are `NA` for CPUs and, until
#'   TensorFlow has initialized its devices, for GPUs.
#' @family devices
#' @examplesIf multigpu::multigpu_is_installed()
#' simulate_gpus(2) # does nothing on a machine with two GPUs
#' model <- keras_model_sequential(input_shape = 4, layers = list(keras$layers$Dense(1L)))
#' available_gpus()
#' multi_gpu_model(model, gpus = available_gpus()$name[1:2])
#' @export
available_gpus <- function() {
  gpus <- as_table(with_clean_errors(core()$gpu_table()))
  if (nrow(gpus) == 0) message("No GPU: ", put_in_r_words(core()$why_no_gpu()))
  gpus
}

#' Move all weights to one device
#'
#' [multi_gpu_model()] distributes the weights of a template over the GPUs. This makes parallel training fast, but the
#' template alone slower. `bring_home()` moves all weights and optimizer slots to one device, in place, without changing
#' their values. A parallel model of the template still works, but more slowly, until `multi_gpu_model()` is called
#' again.
#'
#' @param model A template or a parallel model.
#' @param device Name of a device, such as `"CPU:0"`. `NULL` is the first GPU, or the CPU if there is no GPU.
#' @return The model, invisibly.
#' @family devices
#' @examplesIf multigpu::multigpu_is_installed()
#' simulate_gpus(2) # does nothing on a machine with two GPUs
#' model <- keras_model_sequential(input_shape = 4, layers = list(keras$layers$Dense(1L)))
#' parallel_model <- multi_gpu_model(model, gpus = 2)
#' bring_home(model)
#' @export
bring_home <- function(model, device = NULL) {
  with_clean_errors(core()$bring_home(alive(model), device))
  invisible(model)
}

#' Place parts of a model on different devices
#'
#' Layers and models called inside the scope run on `device`, forward and backward, whenever the whole model runs. This
#' is model parallelism, for a model that does not fit into one GPU, or for two parts that can run at the same time. A
#' layer that is called twice can run on two devices with one set of weights, which are stored on the device of the
#' first call. Results are the same as on one device. The model is a plain Keras model, which is trained and saved as
#' usual. A saved file does not store devices: a loaded model runs on one device.
#'
#' @param device Name of a device, such as `"GPU:0"`, or `"CPU:0"` for the CPU.
#' @return A scope for [with()], as `tf$device()` returns.
#' @family devices
#' @examplesIf multigpu::multigpu_is_installed()
#' simulate_gpus(2) # does nothing on a machine with two GPUs
#' first <- keras$Input(list(140L, 256L))
#' second <- keras$Input(list(140L, 256L))
#' encode <- keras$layers$LSTM(64L)
#' with(on_device("GPU:0"), {
#'   a <- encode(first)
#' })
#' with(on_device("GPU:1"), {
#'   b <- encode(second)
#' })
#' with(on_device("CPU:0"), {
#'   both <- keras$layers$concatenate(list(a, b))
#' })
#' model <- keras_model(list(first, second), keras$layers$Dense(1L, activation = "sigmoid")(both))
#' @export
on_device <- function(device) {
  with_clean_errors(core()$on_device(device))
}
