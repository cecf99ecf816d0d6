"""Join the cluster: set up TensorFlow's collective ops before TensorFlow starts."""

import json
import os

import tensorflow as tf

from multigpu.base.arguments import shown
from multigpu.base.refusal import refuse
from multigpu.cluster.config import Cluster, described, jobs_of, too_late, understood
from multigpu.cluster.schedulers import check_alone, known_here
from multigpu.engines.tensorflow.private_api.runtime import config, has_started, listen, server


def join() -> None:
    """Make TensorFlow, when it starts, listen as the worker that TF_CONFIG describes, if any.

    You build a model before you call `multi_gpu_model()`, and TensorFlow starts with the first variable. So this runs
    when the package is imported. `tf.distribute.MultiWorkerMirroredStrategy()` does the same, but it starts TensorFlow,
    after which devices cannot be configured.
    """
    cluster = understood(os.environ)
    if cluster is not None and joined() is None and not has_started():  # `check_joined` raises it
        _listen(cluster)


def join_cluster(resolver: tf.distribute.cluster_resolver.ClusterResolver | None = None) -> None:
    """Join the other tasks that a scheduler has started, to train one model together.

    Call it at the top of the script, in every task, before you build a model. If TF_CONFIG is set, you need no call.

    Args:
        resolver: None takes the workers of TF_CONFIG, or the tasks that `srun` has started, or that `mpirun` has
            started on one machine. For another scheduler or a cloud, pass one of TensorFlow's cluster resolvers, for
            instance `tf.distribute.cluster_resolver.KubernetesClusterResolver(...)`. The resolver must know which task
            this process is. If it does not know, pass it `task_type` and `task_id`.

    Raises:
        ValueError: TensorFlow has already used a device; a scheduler has started several tasks, but its variables do
            not contain the addresses of the others; the argument is not a resolver, or the resolver does not know which
            task this is; there are parameter servers; or this process has joined other workers. If this process is
            alone, nothing happens.

    Examples:
        >>> import multigpu
        >>> multigpu.join_cluster()  # no scheduler: nothing changes
        >>> import tensorflow as tf
        >>> spec = tf.train.ClusterSpec({"worker": ["10.0.0.1:2222"]})
        >>> simple = tf.distribute.cluster_resolver.SimpleClusterResolver
        >>> multigpu.join_cluster(simple(spec, task_type="worker", task_id=0))  # one worker: nothing changes
    """
    known, cluster = known_here(os.environ) if resolver is None else ("the resolver finds", _found_by(resolver))
    before = joined()
    if cluster is None or cluster == before:
        return
    if before is not None:
        raise refuse(
            "one cluster",
            f"{cluster}, with {', '.join(cluster.addresses)}, and before {before}, with {', '.join(before.addresses)}",
            "Set TF_CONFIG or call `join_cluster()`, not both, and before a model is built.",
        )
    if has_started():
        raise too_late(cluster, "TensorFlow", known, "Call `multigpu.join_cluster()`")
    _listen(cluster)


def _found_by(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> Cluster | None:
    if not isinstance(resolver, tf.distribute.cluster_resolver.ClusterResolver):
        raise refuse(
            "`resolver` to be one of `tf.distribute.cluster_resolver`, or None for TF_CONFIG, SLURM or MPI",
            f"resolver={shown(resolver)}",
            "Call `join_cluster()` in a task of `srun` or `mpirun`.",
        )
    return described({**os.environ, "TF_CONFIG": _config_of(resolver)}, "the resolver")


def _config_of(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> str:
    spec = resolver.cluster_spec()  # some resolvers know their task only after this
    if not resolver.task_type or resolver.task_id is None:
        raise refuse(
            "a resolver that knows which task this process is",
            f"{type(resolver).__name__} with task_type={resolver.task_type!r} and task_id={resolver.task_id!r}",
            "Give it both, for instance `resolver.task_type, resolver.task_id = 'worker', 0` for the first worker.",
        )
    task = {"type": resolver.task_type, "index": resolver.task_id}
    # some resolvers return numbers of numpy
    return json.dumps({"cluster": {job: spec.job_tasks(job) for job in spec.jobs}, "task": task}, default=int)


def _listen(cluster: Cluster) -> None:
    listen(_Server(cluster), leader=cluster.tasks[0], task=cluster.tasks[cluster.number])


def joined() -> Cluster | None:
    """Return the cluster that this process has joined, if any."""
    return getattr(server(), "joined", None)


def check_joined() -> None:
    """Raise a ValueError if TF_CONFIG describes a cluster that was not understood or not joined.

    If a scheduler has started several tasks that did not join, print this once.

    Raises:
        ValueError: the message gives what was expected, what was received, and what to do.
    """
    if joined() is None:
        check_alone(os.environ, "TensorFlow")


class _Server:
    """The description of TensorFlow's server, with the settings at its start, not at the time of `join_cluster()`."""

    def __init__(self, cluster: Cluster) -> None:
        device = tf.DeviceSpec.from_string(cluster.tasks[cluster.number])
        self.joined = cluster
        self.job_name, self.task_index = device.job, device.task

    def SerializeToString(self) -> bytes:  # noqa: N802  # the name of the method of protocol buffers
        definition = tf.train.ServerDef(
            cluster=tf.train.ClusterSpec(jobs_of(self.joined)).as_cluster_def(),
            job_name=self.job_name,
            task_index=self.task_index,
            protocol="grpc",
            default_session_config=config(),
        )
        return definition.SerializeToString()
