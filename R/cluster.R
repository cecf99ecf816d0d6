#' Join the workers of a scheduler or a cloud
#'
#' On several machines, [multi_gpu_model()] trains with the workers that the environment variable TF_CONFIG names, or
#' that `srun` has started. Where another program knows them, one of TensorFlow's cluster resolvers asks it, and this
#' joins what it finds. Call it at the top of the script, on every machine, before a model is built.
#'
#' @param resolver A resolver from `tf$distribute$cluster_resolver`, which has to know which task this process is: give
#'   those that do not `task_type` and `task_id`.
#' @return `NULL`, invisibly. Where the resolver finds this process alone, nothing changes.
#' @section Errors:
#' TensorFlow has already used a device; or the resolver does not say which task this is; or there are parameter
#' servers; or this process has joined other workers before.
#' @family devices
#' @examples
#' \dontrun{
#' resolver <- tf$distribute$cluster_resolver$KubernetesClusterResolver()
#' resolver$task_type <- "worker"
#' resolver$task_id <- 0L # which of them this is
#' join_cluster(resolver)
#' parallel_model <- multi_gpu_model(model, gpus = NULL)
#' }
#' @export
join_cluster <- function(resolver) {
  with_clean_errors(core()$join_cluster(resolver))
  invisible()
}
