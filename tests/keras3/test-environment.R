# What reticulate installs into the environment that it makes by itself, which needs reticulate 1.41.

test_that("the environment that reticulate makes has CUDA where the machine has an NVIDIA driver", {
  expect_runs("
    namespace <- loadNamespace('multigpu')
    for (name in c('keras', 'tf')) unlockBinding(name, namespace)
    has_cuda <- function(has_driver) {
      assignInNamespace('has_nvidia', function() has_driver, 'multigpu')
      namespace$declare_python()
      'tensorflow[and-cuda]>=2.21' %in% reticulate::py_require()$packages
    }
    stopifnot(!has_cuda(FALSE), has_cuda(TRUE))
  ")
})
