# RStudio's live plot of metrics, as callbacks for Keras; none where there is nothing to show them.
metrics_viewer <- function(view_metrics, epochs, tfruns = namespace_if_there("tfruns")) {
  wanted <- if (identical(view_metrics, "auto")) in_rstudio() else isTRUE(view_metrics)
  if (!wanted || is.null(tfruns)) {
    return(list())
  }
  list(as_callback(viewer_moments(as_whole(epochs), tfruns)))
}

viewer_moments <- function(epochs, tfruns) {
  seen <- list()
  viewer <- NULL
  show <- function(epoch, logs) {
    for (name in names(logs)) {
      seen[[name]] <<- c(seen[[name]], logs[[name]])
    }
    table <- as.data.frame(lapply(seen, `length<-`, epochs)) # epochs to come are NA
    if (is.null(viewer)) {
      viewer <<- tfruns$view_run_metrics(table)
    } else {
      tfruns$update_run_metrics(viewer, table)
    }
  }
  list(on_epoch_end = show)
}

in_rstudio <- function() {
  interactive() && nzchar(Sys.getenv("RSTUDIO")) && !is.null(getOption("viewer"))
}

namespace_if_there <- function(package) {
  if (requireNamespace(package, quietly = TRUE)) asNamespace(package)
}
