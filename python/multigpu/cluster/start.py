"""Joining the cluster: TensorFlow's collective ops, set up before TensorFlow starts."""

import os

import tensorflow as tf
from tensorflow.python.eager import context  # the one public way, a strategy, starts TensorFlow: see `join`

from multigpu.cluster.description import Cluster, described, jobs_of


def join() -> None:
    """Makes TensorFlow, when it starts, listen as the worker that TF_CONFIG describes. Without one nothing happens.

    A model is built before `multi_gpu_model()` is called, and TensorFlow starts with its first variable. So this runs
    when the package is imported. `tf.distribute.MultiWorkerMirroredStrategy()` does the same, but starts TensorFlow,
    and then devices can no longer be configured.
    """
    try:
        cluster = described(os.environ)
    except ValueError:  # `check_joined` says so when a model is made: all else works without a cluster
        return
    if cluster is None or joined() is not None:
        return
    this = context.context()
    if this._context_handle is not None:  # TensorFlow has started: `check_joined` says so when a model is made
        return
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
    """Refuses to train alone where TF_CONFIG is not understood, or describes a cluster that could not be joined.

    Raises:
        ValueError: the message says what was expected, what was received, and what to do.
    """
    cluster = described(os.environ)
    if cluster is not None and joined() is None:
        raise ValueError(
            f"Expected `import multigpu` before TensorFlow uses a device, since TF_CONFIG describes {cluster.size} "
            f"workers: TensorFlow opens its port when it starts. Received: TensorFlow started first, on {cluster}. "
            "Import multigpu, with TF_CONFIG set, at the top of the script."
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
