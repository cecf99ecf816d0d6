library(testthat)
library(multigpu)

# CRAN has no TensorFlow, and ten minutes: the small set there, and none where it is missing. Elsewhere all tests run.
is_cran <- !identical(Sys.getenv("NOT_CRAN"), "true")
if (is_cran) Sys.setenv(MULTIGPU_QUICK = "1")
if (!is_cran || multigpu_is_installed()) test_check("multigpu")
