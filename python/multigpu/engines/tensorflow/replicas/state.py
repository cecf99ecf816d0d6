"""State that a forward pass assigns (moving means, counters, seeds): merge one value per replica into one."""

from collections.abc import Collection, Iterator, Sequence

import keras
import tensorflow as tf

from multigpu.engines.tensorflow.cluster.one_worker import OneWorker
from multigpu.engines.tensorflow.private_api.variables import is_seed
from multigpu.engines.tensorflow.weights.buckets import Bucket, buckets_of, open_bucket, pack
from multigpu.engines.tensorflow.weights.place_locate import stored_dtype


def is_combined(variable: keras.Variable, assigned_by_users: Collection[int]) -> bool:
    """Return whether its values in the replicas tell its value for the global batch, as a mean or that of the first.

    It says so, or Keras' own code alone assigns it, which keeps moving means and seeds.
    """
    says_so = variable.aggregation in ("mean", "only_first_replica")
    return is_seed(variable) or says_so or id(variable) not in assigned_by_users


class Updates:
    """The variables that a replica assigned, packed by owner and type so that few tensors travel.

    Floating-point state is their mean, weighted by rows, which is exact for moving means, and for what no row changes.
    Whole numbers, text and seeds are those of the first replica, so a layer that counts its calls counts them as on one
    device. What depends on rows in other ways is not here: it is computed for the global batch.
    """

    def __init__(self, variables: Sequence[keras.Variable]):
        averaged = [v for v in variables if _is_averaged(v)]
        taken = [v for v in variables if all(v is not other for other in averaged)]
        self.groups: list[tuple[bool, list[keras.Variable], list[Bucket]]] = [
            (True, averaged, buckets_of(averaged)),
            (False, taken, buckets_of(taken)),
        ]

    def pack(self, new: dict[int, tf.Tensor]) -> list[tf.Tensor]:
        """One replica's values, by id of the variable, as a flat list of buffers."""
        buffers = []
        for _, members, buckets in self.groups:
            buffers += [pack([new[id(variable)] for variable in members], bucket) for bucket in buckets]
        return buffers

    def combined(
        self, buffers: Sequence[Sequence[tf.Tensor]], kept: Sequence[tf.Tensor], workers: OneWorker
    ) -> Iterator[tuple[keras.Variable, tf.Tensor]]:
        """Variables with the one value that all replicas' buffers make, on the owner.

        Args:
            buffers: for each replica, what `pack` gave.
            kept: for each replica, its rows that count.
            workers: over which values are combined.
        """
        for position, (is_averaged, members, bucket) in enumerate(self._buckets()):
            values = [replica[position] for replica in buffers]
            with tf.device(bucket.owner):
                single = weighted_mean(values, kept) if is_averaged else values[0]
                if is_averaged:
                    single = workers.mean(single, bucket.owner, f"state {position}")
                combined = open_bucket(single, bucket)
                for place, number in enumerate(bucket.members):
                    variable, value = members[number], combined[place]
                    if not is_averaged:
                        value = _of_first(variable, value, workers, bucket.owner, f"state {position} {place}")
                    yield variable, value

    def assign(self, buffers: Sequence[Sequence[tf.Tensor]], kept: Sequence[tf.Tensor], workers: OneWorker) -> None:
        """Assigns the template's variables what all replicas' buffers make, on their owners."""
        for variable, value in self.combined(buffers, kept, workers):
            variable.assign(value)

    def _buckets(self) -> list[tuple[bool, list[keras.Variable], Bucket]]:
        return [(averaged, members, bucket) for averaged, members, buckets in self.groups for bucket in buckets]


def _is_averaged(variable: keras.Variable) -> bool:
    number = stored_dtype(variable).is_floating and not is_seed(variable)
    return number and variable.aggregation != "only_first_replica"


def _of_first(variable: keras.Variable, value: tf.Tensor, workers: OneWorker, owner: str, label: str) -> tf.Tensor:
    """The value of the first replica of all workers. How noise goes on, all of them know."""
    return value if is_seed(variable) else workers.of_chief(value, owner, label)


def weighted_mean(values: Sequence[tf.Tensor], kept: Sequence[tf.Tensor]) -> tf.Tensor:
    """Mean of the replicas' values, weighted by rows; a replica that stood by does not count, even if it is NaN."""
    if len(values) == 1:
        return values[0]
    weights = [tf.cast(rows, values[0].dtype) for rows in kept]
    total = tf.add_n([tf.math.multiply_no_nan(value, rows) for value, rows in zip(values, weights, strict=True)])
    return total / tf.add_n(weights)
