# Functions that are not generic in R, for the losses and metrics that use them. --------------------------------------

# The function `f` with these functions, which accept tensors, unless it uses others of the same names. So have the
# functions of the user's that it calls.
with_tensor_functions <- function(f) {
  if (is.primitive(f)) {
    return(f)
  }
  home <- environment(f)
  is_replaced <- function(name) { # not a number of this name
    found <- get0(name, home)
    identical(found, plain_functions[[name]]) || is_generic_of_r(found)
  }
  known <- Filter(is_replaced, names(plain_functions))
  environment(f) <- list2env(tensor_functions[known], parent = home)
  lapply(helpers_of(f, home), function(name) {
    delayedAssign(name, with_tensor_functions(get(name, home)), assign.env = environment(f))
  })
  f
}

# A generic that a package such as Matrix makes of a function of R.
is_generic_of_r <- function(f) inherits(f, "standardGeneric") && attr(f, "package") %in% c("base", "stats")

# The names of functions that `f` uses and that are from where it is from: a script or a package.
helpers_of <- function(f, home) {
  Filter(function(name) {
    helper <- get0(name, home)
    is_r_function(helper) && !is.primitive(helper) && identical(topenv(environment(helper)), topenv(home))
  }, setdiff(all.names(body(f), unique = TRUE), names(formals(f))))
}

plain_functions <- NULL # what `tensor_functions` replace, set below

elementwise <- function(name, operation) {
  function(..., na.rm = FALSE) { # nolint: object_name_linter. R's name.
    if (!any(vapply(list(...), is_python_object, NA))) {
      return(plain_functions[[name]](..., na.rm = na.rm))
    }
    refuse_na_rm(name, na.rm)
    Reduce(function(e1, e2) {
      refuse_recycling(e1, e2)
      keras$ops[[operation]](as_operand(e1), as_operand(e2))
    }, list(...))
  }
}

# R's own function finds a tensor in its first argument alone.
summary_of <- function(name) {
  function(..., na.rm = FALSE) { # nolint: object_name_linter. R's name.
    given <- lapply(list(...), stacked)
    is_tensor <- vapply(given, is_python_object, NA)
    do.call(plain_functions[[name]], c(given[order(!is_tensor)], na.rm = na.rm))
  }
}

mean_of <- function(x, ...) base::mean(stacked(x), ...)

over_axis <- function(name, operation, axis) {
  function(x, na.rm = FALSE, dims = 1L) { # nolint: object_name_linter. R's name.
    if (!is_python_object(x)) {
      return(plain_functions[[name]](x, na.rm, dims))
    }
    refuse_na_rm(name, na.rm)
    if (!identical(rank_of(x), 2L) || dims != 1) {
      refuse_function(name, "a tensor that is not a matrix", sprintf("`keras$ops$%s(x, axis)`", operation))
    }
    keras$ops[[operation]](x, axis = axis)
  }
}

chosen <- function(test, yes, no) {
  if (!is_python_object(test)) {
    if (is_python_object(yes) || is_python_object(no)) {
      refuse_function("ifelse", "a condition that is not a tensor", "`if (test) yes else no`")
    }
    return(base::ifelse(test, yes, no))
  }
  refuse_recycling(test, yes)
  refuse_recycling(test, no)
  keras$ops$where(test, as_operand(yes), as_operand(no))
}

variance <- function(x, ...) {
  if (!is_python_object(x)) {
    return(stats::var(x, ...))
  }
  if (!identical(rank_of(x), 1L) || ...length() > 0) {
    refuse_function(
      "var", "more than a vector", "`var(x[, 1])`, or `keras$ops$var(x, axis)`, which divides by n, not by n - 1"
    )
  }
  sum((x - mean(x))^2) / (length(x) - 1L)
}

deviation <- function(x, na.rm = FALSE) { # nolint: object_name_linter. R's name.
  if (!is_python_object(x)) {
    return(stats::sd(x, na.rm))
  }
  refuse_na_rm("sd", na.rm)
  sqrt(variance(keras$ops$ravel(x))) # of all numbers, as in R
}

# A vector is a column, but on the left a row in `%*%`, and in `tcrossprod()` with a matrix.
product <- function(name, left, right) {
  plain <- get(name, baseenv())
  function(x, y = NULL) {
    if (!is_python_object(x) && !is_python_object(y)) {
      return(plain(x, y))
    }
    y <- y %||% x
    is_row <- name == "%*%" || name == "tcrossprod" && identical(rank_of(y), 2L)
    keras$ops$matmul(left(as_lines(x, if (is_row) 0L else 1L)), right(as_lines(y, 1L)))
  }
}

transposed <- function(x) keras$ops$transpose(x)

# Functions that would fail or give other results than in R, and their replacements.
refused_functions <- c(
  apply = "keras$ops$vectorized_map(f, x)", lapply = "keras$ops$vectorized_map(f, x)",
  sapply = "keras$ops$vectorized_map(f, x)", vapply = "keras$ops$vectorized_map(f, x)",
  Map = "keras$ops$vectorized_map(f, x)", mapply = "keras$ops$vectorized_map(f, x)",
  outer = "keras$ops$outer(x, y)", scale = "(x - keras$ops$mean(x, axis = 0L)) / keras$ops$std(x, axis = 0L)",
  sweep = "x - matrix(values, 1)", quantile = "keras$ops$quantile(x, q)", order = "keras$ops$argsort(x)",
  sort = "keras$ops$sort(x)", rev = "keras$ops$flip(x, axis = 0L)", rank = "keras$ops$argsort(keras$ops$argsort(x))",
  which = "keras$ops$where(test, yes, no)", which.max = "keras$ops$argmax(x)", which.min = "keras$ops$argmin(x)",
  unique = "keras$ops$sort(x)", rep = "keras$ops$tile(x, n)", cor = "keras$ops$corrcoef(x)",
  cov = "keras$ops$matmul(keras$ops$transpose(x), x)", as.numeric = "keras$ops$cast(x, \"float32\")",
  as.double = "keras$ops$cast(x, \"float32\")", as.integer = "keras$ops$cast(x, \"int32\")",
  as.vector = "keras$ops$reshape(x, -1L)",
  as.matrix = "keras$ops$reshape(x, list(-1L, 1L))", isTRUE = "keras$ops$where(test, yes, no)",
  isFALSE = "keras$ops$where(test, yes, no)", head = "x[1:3, ]", tail = "keras$ops$flip(x, axis = 0L)[1:3, ]",
  array = "keras$ops$reshape(x, shape)", matrix = "keras$ops$reshape(x, shape)",
  replace = "ifelse(test, yes, no)", "%in%" = "keras$ops$isin(x, values)", norm = "keras$ops$norm(x)",
  det = "keras$ops$det(x)", diag = "keras$ops$diagonal(x)", solve = "keras$ops$solve(a, b)", svd = "keras$ops$svd(x)",
  IQR = "keras$ops$quantile(x, c(0.25, 0.75))", max.col = "keras$ops$argmax(x, axis = 1L)",
  cut = "keras$ops$digitize(x, bins)", findInterval = "keras$ops$digitize(x, bins)",
  table = "keras$ops$bincount(x)", tabulate = "keras$ops$bincount(x)", weighted.mean = "sum(w * x) / sum(w)",
  plogis = "keras$ops$sigmoid(x)", qlogis = "log(p / (1 - p))", pnorm = "0.5 * (1 + keras$ops$erf(x / sqrt(2)))",
  dnorm = "exp(-0.5 * ((x - mean) / sd)^2) / (sd * sqrt(2 * pi))", dbinom = "p^x * (1 - p)^(1 - x)",
  dpois = "exp(x * log(lambda) - lambda - tf$math$lgamma(x + 1))",
  atan2 = "keras$ops$arctan2(y, x)", "%o%" = "keras$ops$outer(x, y)", aperm = "keras$ops$transpose(x, axes)",
  rowsum = "keras$ops$segment_sum(x, ids)", beta = "exp(tf$math$lgamma(a) + tf$math$lgamma(b) - tf$math$lgamma(a + b))",
  choose = "exp(tf$math$lgamma(n + 1) - tf$math$lgamma(k + 1) - tf$math$lgamma(n - k + 1))"
)

refused_in_loss <- function(name) {
  plain <- plain_function(name)
  function(...) {
    tensors <- Filter(is_python_object, list(...))
    if (length(tensors) == 0) {
      return(plain(...))
    }
    if (!as_in_keras3(name, tensors[[1]])) {
      refuse_function(name, "a tensor", sprintf("`%s`", refused_functions[[name]]))
    }
    with_other_methods(tensors[[1]], function(x) plain(...))
  }
}

plain_function <- function(name) get(name, envir = asNamespace("stats"), mode = "function") # which has base behind it

tensor_functions <- c(
  list(
    pmax = elementwise("pmax", "maximum"), pmin = elementwise("pmin", "minimum"), ifelse = chosen, var = variance,
    sd = deviation, rowSums = over_axis("rowSums", "sum", 1L), rowMeans = over_axis("rowMeans", "mean", 1L),
    colSums = over_axis("colSums", "sum", 0L), colMeans = over_axis("colMeans", "mean", 0L),
    "%*%" = product("%*%", identity, identity), crossprod = product("crossprod", function(x) transposed(x), identity),
    tcrossprod = product("tcrossprod", identity, function(x) transposed(x)), mean = mean_of
  ),
  sapply(c("max", "min", "range", "sum", "prod", "all", "any"), summary_of, simplify = FALSE),
  sapply(names(operators), operator_in_loss, simplify = FALSE),
  sapply(names(refused_functions), refused_in_loss, simplify = FALSE)
)
plain_functions <- sapply(names(tensor_functions), plain_function, simplify = FALSE)
