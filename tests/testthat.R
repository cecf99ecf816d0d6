library(testthat)
library(multigpu)

# CRAN has no TensorFlow, and ten minutes: there, the tests before `skip_on_cran()` run, and none where it is missing.
if (identical(Sys.getenv("NOT_CRAN"), "true") || multigpu_is_installed()) test_check("multigpu")
