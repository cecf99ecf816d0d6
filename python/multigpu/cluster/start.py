"""Joining the cluster: TensorFlow's collective ops, set up before TensorFlow starts."""

import json
import os

import tensorflow as tf
from tensorflow.python.eager import context  # the one public way, a strategy, starts TensorFlow: see `join`

from multigpu.arguments import shown
from multigpu.cluster.description import Cluster, described, jobs_of
from multigpu.cluster.schedulers import config_of_tasks, say_that_tasks_train_together, warn_of_tasks_apart


def join() -> None:
    """Makes TensorFlow, when it starts, listen as the worker that TF_CONFIG or a scheduler describes, if any does.

    A model is built before `multi_gpu_model()` is called, and TensorFlow starts with its first variable. So this runs
    when the package is imported. `tf.distribute.MultiWorkerMirroredStrategy()` does the same, but starts TensorFlow,
    and then devices can no longer be configured.
    """
    try:
        cluster = described_here()
    except ValueError:  # `check_joined` says so when a model is made: all else works without a cluster
        return
    if cluster is not None and joined() is None and not _started():  # `check_joined` says so where it is too late
        _listen(cluster)


def described_here() -> Cluster | None:
    """The cluster in TF_CONFIG, which has the last word, even if it is `{}`; or else that of a scheduler's tasks."""
    config = None if "TF_CONFIG" in os.environ else config_of_tasks(os.environ)
    return described({**os.environ, "TF_CONFIG": config} if config else os.environ)


def join_cluster(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> None:
    """Joins the workers that one of TensorFlow's cluster resolvers finds, as TF_CONFIG and `srun` do by themselves.

    Args:
        resolver: of another scheduler or a cloud, for instance
            `tf.distribute.cluster_resolver.KubernetesClusterResolver(...)`. It has to know which task this process
            is: give those that do not `task_type` and `task_id`.

    Raises:
        ValueError: TensorFlow has already used a device; or the resolver does not say which task this is; or there
            are parameter servers; or this process has joined other workers. Where the resolver finds this process
            alone, nothing happens.

    Examples:
        >>> import multigpu
        >>> import tensorflow as tf
        >>> spec = tf.train.ClusterSpec({"worker": ["10.0.0.1:2222"]})
        >>> simple = tf.distribute.cluster_resolver.SimpleClusterResolver
        >>> multigpu.join_cluster(simple(spec, task_type="worker", task_id=0))  # one worker: nothing changes
    """
    cluster = described({**os.environ, "TF_CONFIG": _config_of(resolver)})
    before = joined()
    if cluster is None or cluster == before:
        return
    if before is not None and ("TF_CONFIG" in os.environ or _started()):  # not one that a scheduler describes
        raise ValueError(
            f"Expected one cluster. Received: {cluster}, with {', '.join(cluster.addresses)}, and before "
            f"{before}, with {', '.join(before.addresses)}. Set TF_CONFIG or call `join_cluster()`, not both, and "
            "before a model is built."
        )
    if _started():
        raise _too_late(cluster, "the resolver finds", "Call `multigpu.join_cluster()`")
    _listen(cluster)


def _config_of(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> str:
    if not isinstance(resolver, tf.distribute.cluster_resolver.ClusterResolver):
        raise ValueError(
            f"Expected `resolver` to be one of TensorFlow's cluster resolvers. Received: resolver={shown(resolver)}. "
            "Use one of those in `tf.distribute.cluster_resolver`."
        )
    spec = resolver.cluster_spec()  # some know their task only after this
    if not resolver.task_type or resolver.task_id is None:
        raise ValueError(
            "Expected a resolver that knows which task this process is. Received: "
            f"{type(resolver).__name__} with task_type={resolver.task_type!r} and task_id={resolver.task_id!r}. "
            "Give it both, for instance `resolver.task_type, resolver.task_id = 'worker', 0` for the first worker."
        )
    task = {"type": resolver.task_type, "index": resolver.task_id}
    return json.dumps({"cluster": {job: spec.job_tasks(job) for job in spec.jobs}, "task": task})


def _started() -> bool:
    return context.context()._context_handle is not None


def _listen(cluster: Cluster) -> None:
    this = context.context()
    this.configure_collective_ops(
        collective_leader=cluster.tasks[0],
        scoped_allocator_enabled_ops=(),
        device_filters=(cluster.tasks[cluster.number],),
    )
    this.enable_collective_ops(_Server(cluster))


def joined() -> Cluster | None:
    """The cluster that this process has joined, if any."""
    return getattr(context.context()._collective_ops_server_def, "joined", None)


def check_joined() -> None:
    """Refuses to train alone where TF_CONFIG or a scheduler describes a cluster that was not understood or joined.

    Where a scheduler has started several tasks, it says whether they train together, or warns that they do not.

    Raises:
        ValueError: the message says what was expected, what was received, and what to do.
    """
    by_hand = "TF_CONFIG" in os.environ
    cluster, found = described_here(), joined()
    if cluster is not None and found is None and by_hand:
        raise _too_late(cluster, "TF_CONFIG describes", "Import multigpu, with TF_CONFIG set,")
    if cluster is not None and found is None:
        known = "variables of SLURM or MPI describe"
        raise _too_late(cluster, known, "Set TF_CONFIG='{}' to train alone; or import multigpu")
    if found is None:
        warn_of_tasks_apart(os.environ)
    elif not by_hand and found == cluster:
        say_that_tasks_train_together(found)


def _too_late(cluster: Cluster, known: str, cure: str) -> ValueError:
    return ValueError(
        f"Expected to join before TensorFlow uses a device, since {known} {cluster.size} workers: TensorFlow opens "
        f"its port when it starts. Received: TensorFlow started first, on {cluster}. {cure} at the top of the script."
    )


class _Server:
    """What TensorFlow asks for its server: the settings as they are when it starts, not when this was made."""

    def __init__(self, cluster: Cluster) -> None:
        device = tf.DeviceSpec.from_string(cluster.tasks[cluster.number])
        self.joined = cluster
        self.job_name, self.task_index = device.job, device.task

    def SerializeToString(self) -> bytes:  # noqa: N802  # the name that a protocol buffer has
        definition = tf.train.ServerDef(
            cluster=tf.train.ClusterSpec(jobs_of(self.joined)).as_cluster_def(),
            job_name=self.job_name,
            task_index=self.task_index,
            protocol="grpc",
            default_session_config=context.context().config,
        )
        return definition.SerializeToString()
