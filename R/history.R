as_history <- function(history, validation_freq = 1) {
  metrics <- lapply(history$history, function(values) unlist(values))
  epochs <- as.integer(unlist(history$epoch)) + 1L
  structure(
    list(params = history$params, metrics = metrics, epochs = epochs, validated = validated(epochs, validation_freq)),
    class = c("multigpu_history", "keras_training_history")
  )
}

# The epochs after which Keras validates: every so many, counted from the first one ever, or those that are listed.
validated <- function(epochs, freq) {
  if (length(freq) == 1 && !is.list(freq)) epochs[epochs %% freq == 0] else epochs[epochs %in% unlist(freq)]
}

#' Training history
#'
#' \code{\link[=fit]{fit()}} returns a list with `params`, `metrics` (a named list of vectors with one value per epoch)
#' and `epochs`, the numbers of the epochs.
#'
#' @param x A training history.
#' @param y Ignored.
#' @param row.names,optional Ignored; they are arguments of [as.data.frame()].
#' @param metrics Names of the metrics to plot; `NULL` plots all.
#' @param method `"ggplot2"`, `"base"`, or `"auto"` for ggplot2 if it is installed.
#' @param ... Ignored.
#' @return `as.data.frame()`: one row per epoch, metric and kind of data, with the columns `epoch`, `value`, `metric`
#'   and `data` (`"training"` or `"validation"`). `plot()`: a ggplot object or, for base graphics, the history,
#'   invisibly.
#' @examplesIf multigpu::multigpu_is_installed()
#' simulate_gpus(2) # does nothing on a machine with two GPUs
#' model <- keras_model_sequential(input_shape = 4, layers = list(keras$layers$Dense(1L)))
#' parallel_model <- multi_gpu_model(model, gpus = 2)
#' parallel_model |> compile(optimizer = "sgd", loss = "mse")
#' x <- matrix(rnorm(400), 100)
#' y <- rowSums(x)
#' history <- fit(parallel_model, x, y, epochs = 3, validation_split = 0.2)
#' history
#' plot(history)
#' as.data.frame(history)
#' @name plot.multigpu_history
#' @aliases history
NULL

#' @rdname plot.multigpu_history
#' @export
print.multigpu_history <- function(x, ...) {
  if (length(x$epochs) == 0) {
    cat("Trained for 0 epochs.\n")
    return(invisible(x))
  }
  last <- vapply(x$metrics, function(values) values[[length(values)]], 0)
  epochs <- length(x$epochs)
  cat("Trained for ", epochs, if (epochs == 1) " epoch" else " epochs", ". Final values:\n", sep = "")
  cat(paste0("  ", format(names(last)), "  ", formatC(last, digits = 4, format = "g", flag = "#")), sep = "\n")
  invisible(x)
}

#' @rdname plot.multigpu_history
#' @export
as.data.frame.multigpu_history <- function(x, row.names = NULL, optional = FALSE, ...) { # nolint: object_name_linter.
  rows <- lapply(names(x$metrics), metric_rows, x = x)
  rows <- do.call(rbind, c(list(metric_rows(NULL, x)), rows))
  rows$metric <- factor(rows$metric, unique(rows$metric))
  rows$data <- factor(rows$data, c("training", "validation"))
  rows
}

metric_rows <- function(name, x) {
  values <- as.numeric(x$metrics[[name %||% ""]])
  is_validation <- startsWith(name %||% "", "val_")
  data.frame(
    epoch = utils::head(if (is_validation) x$validated %||% x$epochs else x$epochs, length(values)),
    value = values,
    metric = rep(sub("^val_", "", name %||% ""), length(values)),
    data = rep(if (is_validation) "validation" else "training", length(values))
  )
}

#' @rdname plot.multigpu_history
#' @export
plot.multigpu_history <- function(x, y, metrics = NULL, method = c("auto", "ggplot2", "base"), ...) {
  method <- match.arg(method)
  values <- as.data.frame(x)
  values <- values[values$metric %in% (metrics %||% values$metric), ]
  if (nrow(values) == 0) {
    refuse(
      c("a history with values of ", if (is.null(metrics)) "metrics" else toString(metrics)),
      c(length(x$epochs), " epochs", if (length(x$metrics) > 0) " of ", toString(names(x$metrics))),
      "Train for one epoch or more."
    )
  }
  if (method == "ggplot2" || method == "auto" && requireNamespace("ggplot2", quietly = TRUE)) {
    return(history_ggplot(values))
  }
  history_panels(values)
  invisible(x)
}

history_ggplot <- function(values) {
  values$metric <- factor(values$metric, unique(values$metric))
  ggplot2::ggplot(values, ggplot2::aes(epoch, value, colour = data)) +
    ggplot2::geom_line() +
    ggplot2::geom_point() +
    ggplot2::scale_x_continuous(breaks = whole_epochs) +
    ggplot2::facet_grid("metric ~ .", scales = "free_y", switch = "y") +
    ggplot2::labs(y = NULL, colour = NULL)
}

# Where the axis of epochs has numbers: at most six of them.
whole_epochs <- function(range) {
  whole <- seq(ceiling(range[[1]]), floor(range[[2]]))
  if (length(whole) <= 6) whole else intersect(pretty(range, 5), whole)
}

# One panel per metric, and the kinds of data named above the first one.
history_panels <- function(values) {
  panels <- split(values, factor(values$metric, unique(values$metric)))
  old <- graphics::par(mfrow = c(length(panels), 1), mar = c(4, 4, 2, 1))
  on.exit(graphics::par(old))
  Map(history_panel, panels, names(panels))
}

history_panel <- function(values, metric) {
  kinds <- split(values, factor(values$data, unique(values$data)))
  graphics::plot(values$epoch, values$value, type = "n", xlab = "epoch", ylab = metric, xaxt = "n")
  graphics::axis(1, whole_epochs(range(values$epoch)))
  draw <- function(kind, line) graphics::lines(kind$epoch, kind$value, type = "o", pch = 20, lty = line)
  Map(draw, kinds, seq_along(kinds))
  above <- graphics::par("usr")[c(1, 4)]
  graphics::legend(
    above[[1]], above[[2]], names(kinds),
    lty = seq_along(kinds), pch = 20, bty = "n", horiz = TRUE, yjust = 0, xpd = TRUE
  )
}

utils::globalVariables(c("epoch", "value", "data")) # columns that ggplot2 looks up
