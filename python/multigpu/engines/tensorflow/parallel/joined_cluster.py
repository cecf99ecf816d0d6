"""The workers with which this process trains, checked when a parallel model is made."""

from multigpu.cluster.config import Cluster
from multigpu.engines.tensorflow.cluster.join import check_joined, joined
from multigpu.engines.tensorflow.parallel.distribute_strategy import CALLED, check_eager, check_no_strategy


def joined_cluster() -> Cluster | None:
    """Return the cluster that this process has joined, or None if it trains alone.

    Raises:
        ValueError: a strategy of `tf.distribute`, or a graph, is active, or TF_CONFIG was not understood, or was read
            too late.
    """
    check_no_strategy(CALLED)
    check_eager(CALLED)
    check_joined()
    return joined()
