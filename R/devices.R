#' GPUs that are not there
#'
#' Splits this machine's one GPU, or else its CPU, into `n` devices, so that `gpus = n` means those. Results are those
#' of real GPUs; speed is not. Call it once, before anything else uses TensorFlow. On a machine that has `n` GPUs or
#' more, there is nothing to do.
#'
#' @param n Number of devices, from 1 to 1024.
#' @param memory_limit Memory of each device in MB, when a GPU is split. A CPU is not limited.
#' @return `NULL`, invisibly.
#' @family devices
#' @examples
#' \dontrun{
#' simulate_gpus(4)
#' available_gpus()
#' }
#' @export
simulate_gpus <- function(n, memory_limit = 2048L) {
  with_clean_errors(core()$simulate_gpus(as_whole(n), as_whole(memory_limit)))
  invisible()
}

#' GPUs that are there
#'
#' The devices that `gpus` counts in [multi_gpu_model()]: the GPUs that TensorFlow sees or, on a machine without any,
#' the devices made by [simulate_gpus()]. Asking does not start TensorFlow's devices: [simulate_gpus()] can still be
#' called.
#'
#' @return A data frame with one row per device, which prints as a table, or says why there is none. Its columns are
#'   `id`, counted from 0, and `name`, either of which `gpus` takes; `physical`, the hardware; `memory_total` that
#'   TensorFlow may use there and `memory_free`, in bytes, which are `NA` for CPUs, and for GPUs until they are used.
#' @family devices
#' @examples
#' \dontrun{
#' available_gpus()
#' multi_gpu_model(model, gpus = available_gpus()$name[1:2])
#' }
#' @export
available_gpus <- function() {
  as_table(with_clean_errors(core()$gpu_table()))
}

#' Bring weights back to one device
#'
#' [multi_gpu_model()] spreads a template's weights over the GPUs, which makes parallel training fast, and the template
#' alone slower. `bring_home()` moves all weights, and what the optimizer keeps beside them, to one device, in place and
#' with their values. A parallel model of it works on, only slower, until `multi_gpu_model()` is called anew.
#'
#' @param model A template or a parallel model.
#' @param device Name of a device, such as `"CPU:0"`. `NULL` takes the first GPU, or the CPU where there is none.
#' @return The model, invisibly.
#' @family devices
#' @examples
#' \dontrun{
#' bring_home(model)
#' }
#' @export
bring_home <- function(model, device = NULL) {
  with_clean_errors(core()$bring_home(model, device))
  invisible(model)
}

#' Parts of one model on different devices
#'
#' Layers and models called inside run on `device`, forward and backward, whenever the model around runs. This is model
#' parallelism: for a model that does not fit into one GPU, or two parts that can work at the same time. A layer called
#' twice can run on two devices, with one set of weights. They are kept by the device where it was called first.
#' Results are those of one device, and the model is a plain Keras model, to be trained and saved as always. A file
#' knows nothing of devices: a loaded model runs on one.
#'
#' @param device Name of a device, such as `"GPU:0"`; `"CPU:0"` is the CPU.
#' @return What [with()] takes, as `tf$device()` does.
#' @family devices
#' @examples
#' \dontrun{
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
#' }
#' @export
on_device <- function(device) {
  with_clean_errors(core()$on_device(device))
}
