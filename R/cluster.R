#' Join the workers of a scheduler or a cloud
#'
#' On several machines, [multi_gpu_model()] trains with the workers that the environment variable TF_CONFIG names. This
#' joins the tasks that `srun` has started, or `mpirun` on one machine, or those that one of TensorFlow's cluster
#' resolvers finds, to train one model together. Without it each task trains a model of its own, and says so. Call it
#' at the top of the script, in every task, before a model is built.
#'
#' @param resolver `NULL` takes the workers that TF_CONFIG names, or else the tasks of SLURM or MPI. For another
#'   scheduler or a cloud, a resolver from `tf$distribute$cluster_resolver`, which has to know which task this process
#'   is: give those that do not `task_type` and `task_id`.
#' @return `NULL`, invisibly. Where this process is alone, nothing changes.
#' @section Errors:
#' TensorFlow has already used a device; or a scheduler has started several tasks and does not say where the others
#' are; or the resolver does not say which task this is, or is none; or there are parameter servers; or this process
#' has joined other workers before.
#' @section Security:
#' TensorFlow's workers trust whoever reaches their ports, which are open on all network interfaces. Use a network that
#' you trust, and a firewall.
#' @family devices
#' @examples
#' \dontrun{
#' join_cluster() # in a script that `srun Rscript train.R` starts
#' parallel_model <- multi_gpu_model(model, gpus = NULL)
#'
#' resolver <- tf$distribute$cluster_resolver$KubernetesClusterResolver()
#' resolver$task_type <- "worker"
#' resolver$task_id <- 0L # which of them this is
#' join_cluster(resolver)
#' }
#' @export
join_cluster <- function(resolver = NULL) {
  with_clean_errors(core()$join_cluster(resolver))
  invisible()
}
