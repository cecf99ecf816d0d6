"""With whom this process trains, asked where a parallel model is made."""

from multigpu.cluster.config import Cluster
from multigpu.engines.tensorflow.cluster.join import check_joined, joined
from multigpu.engines.tensorflow.parallel.distribute_strategy import CALLED, check_no_strategy


def joined_cluster() -> Cluster | None:
    """The cluster that this process has joined, or None where it trains alone.

    Raises:
        ValueError: this is the scope of a strategy of `tf.distribute`; or TF_CONFIG was not understood, or read too
            late.
    """
    check_no_strategy(CALLED)
    check_joined()
    return joined()
