"""What a forward pass assigns (moving means, counters, seeds): from one value per replica to the one value kept."""

from collections.abc import Collection, Sequence

import keras
import tensorflow as tf

from multigpu.cluster.workers import Workers
from multigpu.parcels import Parcel, open_parcel, pack, parcels_of
from multigpu.place_locate import stored_dtype
from multigpu.replica_scope import is_seed, without_offset


def may_grow(variable: keras.Variable) -> bool:
    """Whether a variable could sum something over rows: a number, but not a seed or one that says otherwise."""
    number = stored_dtype(variable).is_floating or stored_dtype(variable).is_integer
    return number and not is_seed(variable) and variable.aggregation != "only_first_replica"


class Updates:
    """The variables that a replica assigned, packed by owner and type so that few tensors travel.

    A sum over rows (it changes twice as much for twice the rows) is the sum of the replicas' changes. Other
    floating-point state is their mean, weighted by rows, which is exact for moving means. Other whole numbers, text and
    seeds are those of the first replica, so a layer that counts its calls counts them as on one device.
    """

    def __init__(self, variables: Sequence[keras.Variable]):
        averaged = [v for v in variables if may_grow(v) and stored_dtype(v).is_floating]
        taken = [v for v in variables if all(v is not other for other in averaged)]
        self.groups: list[tuple[bool, list[keras.Variable], list[Parcel]]] = [
            (True, averaged, parcels_of(averaged)),
            (False, taken, parcels_of(taken)),
        ]

    def pack(self, new: dict[int, tf.Tensor]) -> list[tf.Tensor]:
        """One replica's values, by id of the variable, as a flat list of buffers."""
        buffers = []
        for _, members, parcels in self.groups:
            buffers += [pack([new[id(variable)] for variable in members], parcel) for parcel in parcels]
        return buffers

    def unpack(self, buffers: Sequence[tf.Tensor]) -> list[tuple[keras.Variable, tf.Tensor]]:
        """The inverse of `pack`: variables with their values."""
        pairs = []
        for buffer, (_, members, parcel) in zip(buffers, self._parcels(), strict=True):
            pairs += [(members[i], value) for i, value in zip(parcel.members, open_parcel(buffer, parcel), strict=True)]
        return pairs

    def assign(
        self,
        buffers: Sequence[Sequence[tf.Tensor]],
        kept: Sequence[tf.Tensor],
        growing: Collection[int],
        workers: Workers | None = None,
    ) -> None:
        """Combines all replicas' buffers on the owners and assigns the template's variables.

        Args:
            buffers: for each replica, what `pack` gave.
            kept: for each replica, its rows that count.
            growing: ids of the variables that are sums over rows.
            workers: the machines over which values are combined as well.
        """
        for position, (is_averaged, members, parcel) in enumerate(self._parcels()):
            values = [replica[position] for replica in buffers]
            with tf.device(parcel.owner):
                single = weighted_mean(values, kept) if is_averaged else values[0]
                if workers and is_averaged:
                    single = workers.mean(single, parcel.owner, f"state {position}")
                combined = open_parcel(single, parcel)
                opened = [open_parcel(value, parcel) for value in values]
                for place, number in enumerate(parcel.members):
                    variable, label = members[number], f"state {position} {place}"
                    if id(variable) in growing:
                        changes = _changes(variable, [pieces[place] for pieces in opened], kept)
                        total = workers.total(changes, parcel.owner, label) if workers else changes
                        variable.assign(tf.convert_to_tensor(variable) + total)
                    elif workers and not is_averaged:
                        variable.assign(_of_first(variable, combined[place], workers, parcel.owner, label))
                    else:
                        variable.assign(combined[place])

    def _parcels(self) -> list[tuple[bool, list[keras.Variable], Parcel]]:
        return [(averaged, members, parcel) for averaged, members, parcels in self.groups for parcel in parcels]


def _changes(variable: keras.Variable, values: Sequence[tf.Tensor], kept: Sequence[tf.Tensor]) -> tf.Tensor:
    """How much all replicas that have rows change the variable's value."""
    before = tf.convert_to_tensor(variable)
    changes = [tf.where(rows > 0, value - before, 0) for value, rows in zip(values, kept, strict=True)]
    return tf.add_n([tf.cast(change, before.dtype) for change in changes])


def _of_first(variable: keras.Variable, value: tf.Tensor, workers: Workers, owner: str, label: str) -> tf.Tensor:
    """The value of the first replica of all workers. All workers know how noise goes on, with an offset of each."""
    if is_seed(variable):
        return without_offset(value, tf.constant(workers.first_replica))
    return workers.of_chief(value, owner, label)


def weighted_mean(values: Sequence[tf.Tensor], kept: Sequence[tf.Tensor]) -> tf.Tensor:
    """Mean of the replicas' values, weighted by rows; a replica that stood by does not count, even if it is NaN."""
    weights = [tf.cast(rows, values[0].dtype) for rows in kept]
    total = tf.add_n([tf.math.multiply_no_nan(value, rows) for value, rows in zip(values, weights, strict=True)])
    return total / tf.add_n(weights)
