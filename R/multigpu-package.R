#' Multi-GPU training for Keras 3
#'
#' One call, [multi_gpu_model()], spreads a Keras model over the GPUs of a machine. Training gives the numbers that one
#' device gives, and the model that was spread stays the owner of its weights.
#'
#' The verbs of this package ([compile()], [fit()], [evaluate()], `predict()`, ...) are there for sessions without
#' keras3. Where keras3 is attached, its own do all of that, on parallel models too, and this package keeps its
#' verbs to itself.
#'
#' R can also run inside a Python process, on the very models that Python holds: see `multigpu.embedded_r` there.
#'
#' Start with `vignette("multigpu")`; [multigpu_sitrep()] tells what is installed and what is missing.
#'
#' @importFrom stats predict
#' @keywords internal
"_PACKAGE"
