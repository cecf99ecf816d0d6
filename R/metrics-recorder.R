# Metrics for the package tfruns: RStudio's live plot, and the record of a run. Returns a list of callbacks for Keras,
# empty if there is nothing to do. Values that an epoch does not have are NA: of future epochs, of epochs before a
# resumed training, and of epochs without validation.
metrics_recorder <- function(view_metrics, epochs, model, tfruns = optional_namespace("tfruns"), verbose = 1L) {
  view_metrics <- as_choice(view_metrics, "view_metrics", list("auto"))
  wanted <- in_rstudio() && epochs > 1 && !identical(as_integer(verbose), 0L)
  shows <- if (identical(view_metrics, "auto")) wanted else view_metrics
  if (is.null(tfruns) || !(shows || tfruns$is_run_active())) {
    return(list())
  }
  note <- function() tfruns$write_run_metadata("properties", run_properties(model, epochs))
  list(as_callback(list(
    on_train_begin = function() if (tfruns$is_run_active()) note(),
    on_epoch_end = recorded_epoch(epochs, tfruns, shows)
  )))
}

recorded_epoch <- function(epochs, tfruns, shows) {
  seen <- list()
  viewer <- NULL
  function(epoch, logs) {
    for (name in names(logs)) {
      seen[[name]] <<- replace(seen[[name]] %||% rep(NA_real_, epochs), epoch + 1, logs[[name]])
    }
    table <- as.data.frame(seen)
    if (tfruns$is_run_active()) {
      tfruns$write_run_metadata("metrics", table)
    }
    if (shows) {
      if (is.null(viewer)) viewer <<- tfruns$view_run_metrics(table) else tfruns$update_run_metrics(viewer, table)
    }
  }
}

run_properties <- function(model, epochs) {
  list(
    epochs = epochs, model = paste(utils::capture.output(print_model(model)), collapse = "\n"),
    loss_function = if (is.character(model$loss)) model$loss, optimizer = model$optimizer$name,
    learning_rate = as.numeric(keras$ops$convert_to_numpy(model$optimizer$learning_rate))
  )
}

# The numbers of an evaluation, in the record of a run.
record_evaluation <- function(numbers, tfruns = optional_namespace("tfruns")) {
  if (!is.null(tfruns) && tfruns$is_run_active()) {
    tfruns$write_run_metadata("evaluation", numbers)
  }
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
