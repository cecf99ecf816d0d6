# Each of these functions as a metric of a training, on four devices, where the number of rows is not known beforehand.

skip_on_cran()

above <- function(x) pmax(x, 0)
twice_above <- function(x) above(2 * above(x)) + sd(x[, 1])
turned <- function(x, times) if (times == 0) x else turned(ifelse(x > 0, x, -2 * x), times - 1)

functions <- list(
  sd = function(x, y) sd(y[, 1]), var = function(x, y) var(y[, 1]), median = function(x, y) median(y[, 1]),
  t = function(x, y) sum(t(y) * t(x)), product = function(x, y) sum(t(x) %*% y),
  crossprod = function(x, y) sum(crossprod(y, x)), diff = function(x, y) sum(diff(y)^2),
  cbind = function(x, y) sum(cbind(x, 2 * y)), is_finite = function(x, y) mean(ifelse(is.finite(y), x, 0)),
  is_numeric = function(x, y) if (is.numeric(y)) sum(y) else 0,
  is_matrix = function(x, y) if (is.matrix(y)) sum(x) else 0,
  helpers = function(x, y) mean(twice_above(x - y)) + sum(Reduce(`+`, lapply(1:2, function(i) above(x)))),
  recursive = function(x, y) mean(turned(y, 3)),
  f1 = function(x, y) 2 * sum((x > 0) * (y > 0)) / (sum(x > 0) + sum(y > 0)), minus = function(x, y) mean(-(y > 0)),
  share = function(x, y) mean((y > 0) / 2 + (x > 0) %% 2),
  columns = function(x, y) sum(sapply(seq_len(ncol(y)), function(i) i)) * mean(y),
  rows = function(x, y) sum(y) / nrow(y), centred = function(x, y) sum((y - mean(y))^2)
)

test_that("they have R's values in a training's metrics", {
  data <- small_data()
  parallel <- compile(multi_gpu_model(small_model(), 4), "sgd", "mse", metrics = functions)
  measured <- evaluate(parallel, data$x, data$y, batch_size = 50)
  targets <- matrix(data$y)
  predicted <- predict(parallel, data$x)
  for (name in names(functions)) {
    expect_equal(measured[[name]], functions[[name]](targets, predicted), tolerance = 1e-4, info = name) # float32
  }
})

test_that("what cannot be one of them names the function of Keras to use", {
  data <- small_data()
  refused <- list(
    apply = function(x, y) mean(apply(y, 1, sum)), sapply = function(x, y) sum(sapply(y, abs)),
    scale = function(x, y) mean(scale(y)), head = function(x, y) mean(head(y)), matrix = function(x, y) matrix(y, 1),
    "%in%" = function(x, y) y %in% 1:3, plogis = function(x, y) mean(plogis(y)), norm = function(x, y) norm(y),
    "dim<-" = function(x, y) {
      dim(y) <- 50
      mean(y)
    }, "if" = function(x, y) if (mean(y) > 0) sum(y) else sum(x)
  )
  for (name in names(refused)) {
    model <- compile(small_model(), "sgd", "mse", metrics = list(refused[[name]]))
    said <- error_text(evaluate(model, data$x, data$y))
    expect_match(said, paste0("`", name, "()` of a tensor"), fixed = TRUE)
    expect_match(said, if (name == "head") "Use `x[1:3, ]`" else "keras$ops$", fixed = TRUE)
  }
})

test_that("values that cannot be changed, and what R would join in another order, name what to use", {
  data <- small_data()
  refused <- list(
    "`ifelse(test, yes, no)`" = function(x, y) {
      y[y < 0] <- 0
      mean(y)
    },
    "`cbind(x, y)`" = function(x, y) mean(c(x, y)), "exp(-0.5 * " = function(x, y) mean(dnorm(x, y, log = TRUE))
  )
  for (instead in names(refused)) {
    model <- compile(small_model(), "sgd", "mse", metrics = list(refused[[instead]]))
    expect_match(error_text(evaluate(model, data$x, data$y)), instead, fixed = TRUE)
  }
})
