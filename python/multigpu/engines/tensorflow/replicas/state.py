"""Merge state that a forward pass assigns (moving means, counters, seeds): one value per replica into one."""

from collections.abc import Collection, Iterator, Sequence

import keras
import tensorflow as tf

from multigpu.engines.tensorflow.cluster.reduction import Reduction
from multigpu.engines.tensorflow.private_api.variables import is_seed
from multigpu.engines.tensorflow.weights.buckets import Bucket, buckets_of, open_bucket, pack
from multigpu.engines.tensorflow.weights.place_locate import stored_dtype


def is_combined(variable: keras.Variable, assigned_by_users: Collection[int]) -> bool:
    """Return whether a variable's values in replicas determine its global value, as a mean or the first one.

    This is so if the variable declares it, or if only Keras' own code assigns it, which keeps moving means and seeds.
    """
    says_so = variable.aggregation in ("mean", "only_first_replica")
    return is_seed(variable) or says_so or id(variable) not in assigned_by_users


class Updates:
    """The variables that a replica assigned, packed by owner and type so that few tensors are sent.

    Floating-point state becomes the mean, weighted by rows, which is exact for moving means. Integers, text, seeds and
    values that do not depend on rows are those of the first replica, so a layer that counts its calls counts them as on
    one device. State that depends on rows in other ways is not here: it is computed for the global batch.

    Attributes:
        variables: the variables.
    """

    def __init__(self, variables: Sequence[keras.Variable], same: Collection[int] = ()):
        self.variables = variables
        averaged = [v for v in variables if _is_averaged(v) and id(v) not in same]
        taken = [v for v in variables if all(v is not other for other in averaged)]
        self._buckets: list[tuple[bool, list[keras.Variable], Bucket]] = [
            (group is averaged, group, bucket) for group in (averaged, taken) for bucket in buckets_of(group)
        ]

    def pack(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Return one replica's values of the variables as a flat list of buffers."""
        new = {id(variable): value for variable, value in zip(self.variables, values, strict=True)}
        return [pack([new[id(variable)] for variable in members], bucket) for _, members, bucket in self._buckets]

    def combined(
        self, buffers: Sequence[Sequence[tf.Tensor]], kept: Sequence[tf.Tensor], workers: Reduction
    ) -> Iterator[tuple[keras.Variable, tf.Tensor]]:
        """Return variables with the merged value of all replicas' buffers, on the owner.

        Args:
            buffers: for each replica, the result of `pack`.
            kept: for each replica, the rows that count.
            workers: the workers over which values are merged.
        """
        for position, (is_averaged, members, bucket) in enumerate(self._buckets):
            values = [replica[position] for replica in buffers]
            with tf.device(bucket.owner):
                single = values[0]
                if is_averaged:
                    single = workers.mean(weighted_mean(values, kept), bucket.owner, f"state {position}")
                combined = zip(bucket.members, open_bucket(single, bucket), strict=True)
                for place, (number, value) in enumerate(combined):
                    if not (is_averaged or is_seed(members[number])):  # all workers know how noise continues
                        value = workers.of_chief(value, bucket.owner, f"state {position} {place}")
                    yield members[number], value


def _is_averaged(variable: keras.Variable) -> bool:
    number = stored_dtype(variable).is_floating and not is_seed(variable)
    return number and variable.aggregation != "only_first_replica"


def weighted_mean(values: Sequence[tf.Tensor], kept: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return the mean of the replicas' values, weighted by rows. An idle replica does not count, even with NaN.

    If there are no rows at all, all replicas have what one device has, and the first one's value is returned.
    """
    if len(values) == 1:
        return values[0]
    dtype = values[0].dtype
    wide = tf.float32 if dtype.size == 2 else dtype  # a sum over rows may be too large for float16
    weights = [tf.cast(rows, wide) for rows in kept]
    weights[0] += tf.cast(tf.equal(tf.add_n(weights), 0), wide)
    weighted = zip([tf.cast(value, wide) for value in values], weights, strict=True)
    total = tf.add_n([tf.math.multiply_no_nan(value, rows) for value, rows in weighted])
    return tf.cast(tf.math.divide_no_nan(total, tf.add_n(weights)), dtype)  # whose gradient of zeros is zero
