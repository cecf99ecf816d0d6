# Matrices of the package Matrix: sparse ones stay sparse, and Keras makes batches of them dense for most models.

# R loads the package for an object from a file only when a method of it is asked for.
is_of_package_matrix <- function(x) isS4(x) && requireNamespace("Matrix", quietly = TRUE) && methods::is(x, "Matrix")

is_sparse <- function(x) is_of_package_matrix(x) && methods::is(x, "sparseMatrix")

# TensorFlow stores sparse values row by row, as an RsparseMatrix. Keras on JAX takes a matrix of scipy.
as_sparse_tensor <- function(x) {
  by_row <- methods::as(methods::as(methods::as(x, "dMatrix"), "generalMatrix"), "RsparseMatrix")
  row <- rep(seq_len(nrow(by_row)), diff(by_row@p))
  at <- first_missing(by_row@x)
  if (!is.null(at)) {
    refuse_missing(row[[at]], by_row@j[[at]] + 1)
  }
  if (identical(r_start()$backend(), "jax")) {
    return(reticulate::r_to_py(by_row))
  }
  indices <- reticulate::r_to_py(matrix(c(row - 1L, by_row@j), ncol = 2))
  tf$SparseTensor(indices$astype("int64"), as_r_array(by_row@x), as.list(dim(by_row)))
}
