"""What a forward pass assigns (moving means, counters, seeds): from one value per replica to the one value kept."""

from collections.abc import Sequence

import keras
import tensorflow as tf

from multigpu.place_locate import stored_dtype
from multigpu.send_reduce import Parcel, open_parcel, pack, parcels_of

MEAN, SUM, FIRST = "mean", "sum", "first"


def rule_of(variable: keras.Variable) -> str:
    """How the replicas' values of a variable are combined.

    A variable that says `aggregation="sum"` (Keras' metrics do) sums its changes. Other floating-point state is
    averaged, weighted by rows, which is exact for moving means. Whole numbers, text and seeds have no mean: the first
    replica's value is kept, so a layer that counts its calls counts them as on one device.
    """
    if variable.aggregation == "sum":
        return SUM
    averaged = variable.aggregation != "only_first_replica" and keras.backend.is_float_dtype(
        stored_dtype(variable).name
    )
    return MEAN if averaged else FIRST


class Updates:
    """The variables that a replica assigned, packed by owner, type and rule so that few tensors travel."""

    def __init__(self, variables: Sequence[keras.Variable]):
        self.groups: list[tuple[str, list[keras.Variable], list[Parcel]]] = []
        for rule in (MEAN, SUM, FIRST):
            members = [variable for variable in variables if rule_of(variable) == rule]
            if members:
                self.groups.append((rule, members, parcels_of(members)))

    def pack(self, new: dict[int, tf.Tensor], old: dict[int, tf.Tensor], kept: tf.Tensor) -> list[tf.Tensor]:
        """One replica's values, by id of the variable, as a flat list of buffers. What is summed is the change."""
        buffers = []
        for rule, members, parcels in self.groups:
            values = [new[id(variable)] for variable in members]
            if rule == SUM:
                counts = tf.minimum(kept, 1)
                changes = [value - old[id(v)] for v, value in zip(members, values, strict=True)]
                values = [change * tf.cast(counts, change.dtype) for change in changes]
            buffers += [pack(values, parcel) for parcel in parcels]
        return buffers

    def assign(self, buffers: Sequence[Sequence[tf.Tensor]], kept: Sequence[tf.Tensor]) -> None:
        """Combines all replicas' buffers on the owners and assigns the template's variables."""
        position = 0
        for rule, members, parcels in self.groups:
            for parcel in parcels:
                with tf.device(parcel.owner):
                    combined = _combine(rule, [replica[position] for replica in buffers], kept)
                    for number, value in zip(parcel.members, open_parcel(combined, parcel), strict=True):
                        variable = members[number]
                        variable.assign(variable + value if rule == SUM else value)
                position += 1


def _combine(rule: str, buffers: list[tf.Tensor], kept: Sequence[tf.Tensor]) -> tf.Tensor:
    if rule == FIRST:
        return buffers[0]
    if rule == SUM:
        return tf.add_n(buffers)
    return weighted_mean(buffers, kept)


def weighted_mean(values: Sequence[tf.Tensor], kept: Sequence[tf.Tensor]) -> tf.Tensor:
    """Mean of the replicas' values, weighted by rows; a replica that stood by does not count, even if it is NaN."""
    weights = [tf.cast(rows, values[0].dtype) for rows in kept]
    total = tf.add_n([tf.math.multiply_no_nan(value, rows) for value, rows in zip(values, weights, strict=True)])
    return total / tf.add_n(weights)
