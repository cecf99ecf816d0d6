skip_on_cran()

test_that("class weights are a list or a vector", {
  data <- small_data()
  labels <- as.integer(data$y > 0)
  train <- function(class_weight) {
    keras$utils$set_random_seed(0L)
    weights <- compile(small_model(), "sgd", "mse")
    fit(weights, data$x, labels, epochs = 1, class_weight = class_weight, shuffle = FALSE)
    weights_of(weights)
  }
  by_vector <- train(c("0" = 1, "1" = 5))
  expect_identical(by_vector, train(list("0" = 1, "1" = 5)))
  expect_false(identical(by_vector, train(NULL)))
})

test_that("a class is named by its level where the targets are a factor, as its number otherwise", {
  y <- factor(c("b", "a", "c"))
  as_r <- function(...) reticulate::py_to_r(as_class_weight(...))
  expect_identical(as_r(c(a = 1, c = 5), y), list("0" = 1, "2" = 5))
  expect_identical(as_r(c(a = 1, c = 5), data.frame(y)), list("0" = 1, "2" = 5))
  expect_identical(as_r(c("0" = 1, "2" = 5), y), list("0" = 1, "2" = 5))
  expect_identical(as_r(c("1" = 1, "3" = 5), factor(1:3)), list("0" = 1, "2" = 5))
  expect_identical(as_r(c("1" = 1, "3" = 5), 1:3), list("1" = 1, "3" = 5))
})

test_that("weights by level train as those by number, in `fit()` and in `train_on_batch()`", {
  data <- small_data()
  y <- factor(ifelse(data$y > 0, "yes", "no"))
  train <- function(class_weight) {
    keras$utils$set_random_seed(0L)
    model <- compile(small_model(), "sgd", "mse")
    fit(model, data$x, y, epochs = 1, class_weight = class_weight, shuffle = FALSE)
    train_on_batch(model, data$x, y, class_weight)
    weights_of(model)
  }
  expect_identical(train(c(yes = 5, no = 1)), train(c("0" = 1, "1" = 5)))
})

test_that("a class that is not there is an error", {
  y <- factor(c("a", "b"))
  expect_snapshot({
    writeLines(error_text(as_class_weight(c(1, 2), NULL)))
    writeLines(error_text(as_class_weight(c(a = 1, z = 2), y)))
    writeLines(error_text(as_class_weight(c(yes = 1), NULL)))
    writeLines(error_text(as_class_weight(list("0" = "a"), NULL)))
  })
})
