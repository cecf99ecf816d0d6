library(testthat)
library(multigpu)

test_check("multigpu")
