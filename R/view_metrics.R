# RStudio's live plot of metrics, as a list of callbacks for Keras; empty if it cannot be shown. What an
# epoch has no value of is NA: those to come, those before a training that is resumed, those without a validation.
metrics_viewer <- function(view_metrics, epochs, tfruns = optional_namespace("tfruns")) {
  wanted <- if (identical(view_metrics, "auto")) in_rstudio() else isTRUE(view_metrics)
  if (!wanted || is.null(tfruns)) {
    return(list())
  }
  list(as_callback(viewer_hooks(as_integer(epochs), tfruns)))
}

viewer_hooks <- function(epochs, tfruns) {
  seen <- list()
  viewer <- NULL
  show <- function(epoch, logs) {
    for (name in names(logs)) {
      seen[[name]] <<- replace(seen[[name]] %||% rep(NA_real_, epochs), epoch + 1, logs[[name]])
    }
    table <- as.data.frame(seen)
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

# A script that runs in RStudio's pane of jobs, which shows text, but no progress bar.
in_rstudio_job <- function() {
  nzchar(Sys.getenv("RSTUDIOAPI_IPC_REQUESTS_FILE"))
}

optional_namespace <- function(package) {
  if (requireNamespace(package, quietly = TRUE)) asNamespace(package)
}
