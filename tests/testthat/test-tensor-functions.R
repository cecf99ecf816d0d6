skip_on_cran()

loaded$depth <- 1 # as in a loss
constant <- function(...) as_tensor(tf$constant(...))
values <- function(tensor) as.numeric(tensor$numpy())
numbers <- c(0.5, 2, 4)
vector <- function() constant(numbers)
table <- rbind(c(-1.5, 2, 4), c(1, -2, 3))
matrix_of <- function() constant(table)

test_that("functions are those of R", {
  for (name in c(
    "abs", "sign", "sqrt", "exp", "log", "log2", "log10", "log1p", "expm1", "floor", "ceiling", "trunc",
    "cos", "sin", "tan", "atan", "cosh", "sinh", "tanh", "asinh", "cumsum", "cumprod", "sum", "prod",
    "max", "min", "range", "mean", "length"
  )) {
    known <- get(name)(numbers)
    result <- get(name)(vector())
    result <- if (is_python_object(result)) values(result) else result
    expect_equal(result, known, tolerance = 1e-5, info = name) # float32
  }
  expect_equal(values(acos(vector() / 8)), acos(numbers / 8), tolerance = 1e-5)
  expect_equal(values(asin(vector() / 8)), asin(numbers / 8), tolerance = 1e-5)
  expect_equal(values(atanh(vector() / 8)), atanh(numbers / 8), tolerance = 1e-5)
  expect_equal(values(acosh(vector() + 1)), acosh(numbers + 1), tolerance = 1e-5)
  expect_identical(any(vector() > 3)$numpy(), TRUE)
  expect_identical(all(vector() > 3)$numpy(), FALSE)
})

test_that("their second arguments are those of R", {
  expect_equal(values(log(vector(), 2)), log(numbers, 2), tolerance = 1e-6)
  expect_equal(values(log(vector(), base = 10)), log(numbers, base = 10), tolerance = 1e-6)
  expect_equal(values(round(constant(c(0.444, 1.666)), 2)), c(0.44, 1.67), tolerance = 1e-6)
  expect_equal(values(round(constant(c(0.4, 1.6)))), c(0, 2))
  for (name in c("sum", "prod", "max", "min")) {
    f <- get(name)
    expect_equal(values(f(matrix_of(), 1L)), f(table, 1L), info = name)
    expect_equal(values(f(matrix_of(), 5, c(2, 7))), f(table, 5, c(2, 7)), info = name)
    expect_equal(values(f(matrix_of(), vector())), f(table, numbers), info = name)
  }
  expect_identical(any(vector() > 5, TRUE)$numpy(), TRUE)
  expect_equal(values(range(matrix_of(), 9)), c(-2, 9))
})

test_that("Keras' axes are arguments by name", {
  expect_equal(values(sum(matrix_of(), axis = 0)), colSums(table))
  expect_equal(dim(max(matrix_of(), axis = -1L, keepdims = TRUE)), c(2L, 1L))
  expect_equal(values(mean(matrix_of(), axis = 1L)), rowMeans(table))
})

test_that("the shape of a tensor is that of R, and a tensor itself while a step is traced", {
  expect_identical(dim(matrix_of()), c(2L, 3L))
  expect_identical(c(nrow(matrix_of()), ncol(matrix_of()), length(matrix_of())), c(2L, 3L, 6L))
  expect_identical(c(dim(constant(1)), length(constant(1))), 1L)
  per_row <- function(x) sum(x) / nrow(x) + length(x) * 0L + prod(dim(x)) * 0L
  traced <- tf[["function"]](per_row, input_signature = list(tf$TensorSpec(list(NULL, 3L), tf$float32)))
  expect_equal(values(traced(tf$cast(matrix_of(), tf$float32))), sum(table) / 2, tolerance = 1e-6)
})

test_that("a length that is known while a step is traced is a number, with which loops run over columns", {
  by_column <- function(x) {
    expect_identical(c(ncol(x), dim(x)[2], dim(x)[[2]]), c(3L, 3L, 3L))
    total <- 0
    for (column in seq_len(ncol(x))) total <- total + column * sum(x[, column]) / nrow(x)
    total
  }
  traced <- tf[["function"]](by_column, input_signature = list(tf$TensorSpec(list(NULL, 3L), tf$float32)))
  expect_equal(values(traced(tf$cast(matrix_of(), tf$float32))), sum(1:3 * colSums(table)) / 2, tolerance = 1e-6)
})

test_that("what would mean something else than in R is refused, with what to use", {
  expect_snapshot({
    writeLines(error_text(cumsum(matrix_of())))
    writeLines(error_text(gamma(vector())))
    writeLines(error_text(signif(vector(), 2)))
    writeLines(error_text(mean(vector(), na.rm = TRUE)))
    writeLines(error_text(sum(vector(), na.rm = TRUE)))
    writeLines(error_text(mean(vector(), 0.1)))
    writeLines(error_text(ifelse(vector() > 1, 1, 0)))
  })
  for (f in c(sd, order, which.max, as.numeric, quantile)) {
    expect_error(f(vector())) # R's own errors
  }
  expect_equal(values(mean(vector(), na.rm = FALSE)), mean(numbers), tolerance = 1e-6)
})

in_loss <- function(f) with_tensor_functions(f)

test_that("functions that are not generic in R know tensors in losses and metrics", {
  expect_equal(values(in_loss(function(x) pmax(x, 1))(vector())), pmax(numbers, 1))
  expect_equal(values(in_loss(function(x) pmin(1, x, 3))(vector())), pmin(1, numbers, 3))
  expect_equal(values(in_loss(function(x) ifelse(x > 1, x, 0))(vector())), ifelse(numbers > 1, numbers, 0))
  expect_equal(values(in_loss(function(x) var(x))(vector())), var(numbers), tolerance = 1e-6)
  sums <- function(x) list(rowSums(x), rowMeans(x), colSums(x), colMeans(x))
  expect_equal(lapply(in_loss(sums)(matrix_of()), values), sums(table))
  expect_identical(in_loss(sums)(table), sums(table))
})

test_that("numbers may come before tensors, and tensors in a list, as R collects them", {
  lowest <- function(x) list(max(0, x), min(1, x, 3), sum(1, x), prod(2, x), range(0, x))
  expect_equal(lapply(in_loss(lowest)(vector()), values), lowest(numbers), tolerance = 1e-6)
  by_column <- function(x) {
    means <- sapply(1:2, function(j) mean(x[, j]))
    collected <- c()
    for (j in 1:2) collected <- c(collected, sum(x[, j]))
    list(mean(means), max(means), sum(collected, 1), min(0, collected), mean(unlist(list(means, 3))))
  }
  expect_equal(lapply(in_loss(by_column)(matrix_of()), values), by_column(table), tolerance = 1e-6)
  expect_equal(in_loss(by_column)(table), by_column(table))
})

test_that("without tensors they are R's, and a function of the user's own with such a name stays", {
  expect_identical(in_loss(function(x) pmax(x, 1, na.rm = TRUE))(c(NA, 2)), c(1, 2))
  expect_identical(in_loss(function(x) ifelse(x > 1, x, 0))(numbers), c(0, 2, 4))
  expect_identical(in_loss(function(x) var(x))(numbers), var(numbers))
  pmax <- function(...) "mine"
  expect_identical(in_loss(function(x) pmax(x, 1))(numbers), "mine")
  expect_identical(in_loss(abs), abs)
})

test_that("a number of the user's may have the name of a function", {
  for (name in names(tensor_functions)) {
    weight <- list2env(stats::setNames(list(0.5), name))
    expect_identical(in_loss(eval(bquote(function(x) .(as.name(name))), weight))(vector()), 0.5, info = name)
  }
})

test_that("they too are refused where they would mean something else", {
  expect_snapshot({
    writeLines(error_text(in_loss(function(x) pmax(x, na.rm = TRUE))(vector())))
    writeLines(error_text(in_loss(function(x) pmax(x, c(1, 2, 3)))(matrix_of())))
    writeLines(error_text(in_loss(function(x) ifelse(TRUE, x, 0))(vector())))
    writeLines(error_text(in_loss(function(x) var(x))(matrix_of())))
    writeLines(error_text(in_loss(function(x) rowSums(x))(vector())))
  })
})

test_that("losses in R's words train as those of Keras, on one device and on several", {
  data <- small_data(10)
  plain <- small_model()
  plain %>% compile("sgd", "mse")
  plain %>% fit(data$x, data$y, epochs = 2, batch_size = 8, shuffle = FALSE)
  in_r_words <- function(y_true, y_pred) {
    error <- pmax(y_true[, 1] - y_pred[, 1], 0) + ifelse(y_true < y_pred, y_pred - y_true, 0)[, 1]
    sum(error^2) / nrow(y_true)
  }
  for (gpus in c(1, 4)) {
    model <- if (gpus == 1) small_model() else multi_gpu_model(small_model(), gpus)
    model %>% compile("sgd", in_r_words, metrics = list(largest = function(y_true, y_pred) max(y_pred, y_true)))
    model %>% fit(data$x, data$y, epochs = 2, batch_size = 8, shuffle = FALSE)
    expect_equal(weights_of(model), weights_of(plain), tolerance = 1e-5)
  }
})

test_that("more of R's functions are those of R", {
  x <- c(3, 1, 7, 2)
  v <- constant(x)
  m <- matrix_of()
  expect_equal(values(median(v)), median(x))
  expect_equal(values(in_loss(function(x) sd(x))(v)), sd(x), tolerance = 1e-6)
  rows <- matrix(x, 2) # of all numbers
  expect_equal(values(in_loss(function(x) sd(x))(keras$ops$convert_to_tensor(rows))), sd(rows), tolerance = 1e-6)
  expect_equal(values(diff(v)), diff(x))
  expect_equal(as.numeric(diff(m)$numpy()), as.numeric(diff(table)))
  expect_equal(t(m)$numpy(), t(table))
  expect_equal(t(v)$numpy(), t(x))
  expect_equal(cbind(v, x, v)$numpy(), cbind(x, x, x), ignore_attr = TRUE)
  expect_equal(rbind(m, m)$numpy(), rbind(table, table))
  expect_equal(in_loss(function(a, b) a %*% t(b))(m, m)$numpy(), table %*% t(table))
  expect_equal(in_loss(function(a) crossprod(a))(m)$numpy(), crossprod(table))
  expect_equal(in_loss(function(a) tcrossprod(a))(m)$numpy(), tcrossprod(table))
  expect_equal(in_loss(function(a) crossprod(a))(v)$numpy(), crossprod(x))
  expect_equal(in_loss(function(a) tcrossprod(a))(v)$numpy(), tcrossprod(x))
  expect_equal(in_loss(function(a, b) crossprod(a, b))(constant(c(1, 2)), m)$numpy(), crossprod(c(1, 2), table))
  expect_equal(in_loss(function(a, b) tcrossprod(a, b))(constant(c(1, 2, 3)), m)$numpy(), tcrossprod(c(1, 2, 3), table))
  expect_equal(in_loss(function(a, b) a %*% b)(m, constant(c(1, 2, 3)))$numpy(), table %*% c(1, 2, 3))
  expect_equal(in_loss(function(a) 1:3 %*% a)(1:3), matrix(14))
  expect_identical(c(is.numeric(v), is.numeric(v > 1), is.matrix(v), is.matrix(m)), c(TRUE, FALSE, FALSE, TRUE))
  expect_equal(values(is.finite(constant(c(1, Inf)))), c(1, 0))
  expect_equal(values(is.nan(constant(c(1, NaN)))), c(0, 1))
})

test_that("others are refused with the function to use, as is a test of one value", {
  refused <- function(f) error_text(with_tensors(in_loss(f)(matrix_of())))
  expect_match(refused(function(x) apply(x, 1, sum)), "`apply()` of a tensor. Use `keras$ops$vecto", fixed = TRUE)
  expect_match(refused(function(x) sapply(x, abs)), "vectorized_map", fixed = TRUE)
  expect_match(refused(function(x) scale(x)), "keras$ops$std", fixed = TRUE)
  expect_match(refused(function(x) quantile(x, 0.5)), "keras$ops$quantile", fixed = TRUE)
  expect_match(refused(function(x) if (mean(x) > 0) 1 else 2), "`keras$ops$where(test, yes, no)`", fixed = TRUE)
  expect_match(refused(function(x) mean(x) > 0 && TRUE), "`keras$ops$where(test, yes, no)`", fixed = TRUE)
  expect_match(refused(function(x) if (NA) 1), "TRUE/FALSE")
  named <- sub("[(].*", "", grep("^keras[$]", refused_functions, value = TRUE))
  for (path in unique(named)) expect_true(is.function(eval(parse(text = path)[[1]])), info = path)
})

loaded$depth <- 0

test_that("a generic that a package makes of a function of R is replaced, too", {
  home <- new.env()
  methods::setGeneric("rowSums", where = home)
  f <- function(y_true, y_pred) mean(rowSums((y_true - y_pred)^2))
  environment(f) <- home
  expect_identical(environment(with_tensor_functions(f))$rowSums, tensor_functions$rowSums)
})
