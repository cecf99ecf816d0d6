"""Several processes that train together."""

import os
from typing import Any, NoReturn

import keras

from multigpu.cluster.config import Cluster, described
from multigpu.engines.jax.refused import TENSORFLOW
from multigpu.engines.jax.training import Training
from multigpu.plan.plan import Plan


def join() -> None:
    """Do nothing: a model refuses TF_CONFIG when it is made, and all else works without a cluster."""


def join_cluster(resolver: Any = None) -> None:
    """Joins the tasks that a scheduler has started.

    Raises:
        ValueError: there are several.
    """
    joined_cluster()


def joined_cluster() -> Cluster | None:
    """None: this process trains alone.

    Raises:
        ValueError: TF_CONFIG describes several workers.
    """
    cluster = described(os.environ)
    if cluster is not None:
        raise _not_yet(f"TF_CONFIG, which makes this {cluster}")
    return None


def synchronize_workers(model: keras.Model, plan: Plan) -> NoReturn:
    """The handshake of workers.

    Raises:
        ValueError: always.
    """
    raise _not_yet(str(plan))


class MultiWorkerTraining(Training):
    """The verbs of one of several workers."""


def _not_yet(received: str) -> ValueError:
    return ValueError(
        f"Expected one process on JAX. Received: {received}. To train with several, {TENSORFLOW}, or unset TF_CONFIG."
    )
