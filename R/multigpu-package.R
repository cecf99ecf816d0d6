#' Multi-GPU training for Keras 3
#'
#' One call, [multi_gpu_model()], replicates a Keras model on the GPUs of a machine. Training gives the results of one
#' device, and the weights remain in the original model.
#'
#' The verbs of this package ([compile()], [fit()], [evaluate()], `predict()` and others) are for sessions without
#' keras3. If keras3 is attached, its verbs are used, for parallel models as well, and this package does not mask them.
#'
#' R can also run inside a Python process and use the same models as Python: see the Python module
#' `multigpu.embedded_r`.
#'
#' Start with `vignette("multigpu")`. [multigpu_sitrep()] reports what is installed and what is missing.
#'
#' @importFrom stats predict
#' @keywords internal
"_PACKAGE"
