# `fit` from R on a large array of doubles, for `large_array.py`.
library(multigpu)

set.seed(0)
x <- array(runif(1000 * 224 * 224 * 3), c(1000, 224, 224, 3))
y <- matrix(0, 1000, 1)
keras$config$floatx() # starts Python
shared <- reticulate::import_from_path("large_array_model", "bench/memory")
model <- shared$build()
shared$report(function() fit(model, x, y, epochs = shared$EPOCHS, verbose = 0))
