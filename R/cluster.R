#' Join the workers of a scheduler or a cloud
#'
#' If the environment variable TF_CONFIG is set, the workers that it lists train together and `join_cluster()` is not
#' needed. Call it to join the tasks that `srun` has started, or `mpirun` on one machine, or the workers that one of
#' TensorFlow's cluster resolvers finds. Otherwise each task trains a model of its own, and [multi_gpu_model()] reports
#' that in one line. Call it at the top of the script, in every task, before a model is built.
#'
#' @param resolver `NULL` joins the workers that TF_CONFIG lists or, if it is not set, the tasks of SLURM or MPI. For
#'   another scheduler or a cloud, pass a resolver from `tf$distribute$cluster_resolver`. It must know which task this
#'   process is: set `task_type` and `task_id` on a resolver that does not.
#' @return `NULL`, invisibly. If there is only one worker, nothing changes.
#' @section Errors:
#' An error is raised if TensorFlow has already used a device, if a scheduler has started several tasks but does not
#' give their addresses, if `resolver` is not a resolver or does not know which task this is, if the cluster has
#' parameter servers, or if this process has already joined other workers.
#' @section Security:
#' TensorFlow's workers accept any connection to their ports, which are open on all network interfaces. Use a trusted
#' network and a firewall.
#' @family devices
#' @examples
#' \dontrun{
#' join_cluster() # in a script that `srun Rscript train.R` starts
#' parallel_model <- multi_gpu_model(model, gpus = NULL)
#'
#' resolver <- tf$distribute$cluster_resolver$KubernetesClusterResolver()
#' resolver$task_type <- "worker"
#' resolver$task_id <- 0L # the number of this task
#' join_cluster(resolver)
#' }
#' @export
join_cluster <- function(resolver = NULL) {
  if (!is.null(resolver) || !clean_errors(r_start()$nobody_to_join())) {
    clean_errors(core_before_start("join_cluster", resolver))
  }
  invisible()
}
