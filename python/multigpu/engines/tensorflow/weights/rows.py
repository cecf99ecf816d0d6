"""Sum rows of a weight's gradient that one device would have summed, and keep apart those that it would keep apart.

This matters for optimizers that square or clip rows. Replicas look up rows by the ids of their slices, and one device
by the ids of the batch. With `tf.unique` of these ids, or with ids that depend on no row, one device has each row once.
"""

import enum
from collections import Counter
from collections.abc import Sequence

import tensorflow as tf

from multigpu.base.refusal import refuse


class Rows(enum.Enum):
    """How ids by which rows of a weight are looked up depend on the batch, and so how gradients are added."""

    APART = "ids of the batch's rows"  # one after the other: all rows stay apart
    BY_ID = "ids that `tf.unique` gives"  # rows of one id are summed
    BY_PLACE = "ids that depend on no row"  # the same in all slices: the first rows are summed, the second ones, ...
    UNCLEAR = "what is computed from ids that `tf.unique` gives, or several of these one after the other"


def one_way(lookups: Counter[Rows]) -> Rows:
    """Return the single way to add the gradients of all lookups of a weight, given how many there are of each way."""
    way, *others = lookups
    return Rows.UNCLEAR if others or (way is Rows.BY_ID and lookups[way] > 1) else way


def together(parts: Sequence[tf.IndexedSlices], rows: Rows) -> tf.IndexedSlices:
    """Return the rows that one device would have, from the rows of slices of its batch, in their order.

    Raises:
        ValueError: it is unknown which rows one device would have summed.
    """
    if len(parts) == 1:
        return parts[0]
    if rows is Rows.BY_PLACE:
        return _by_place(parts)
    if rows is Rows.UNCLEAR:
        raise refuse(
            "rows of a weight to be looked up in one way each time that a layer reads it: by ids from the batch, by "
            "the result of `tf.unique` on them, or by ids that do not depend on the batch",
            f"a weight with rows of shape {tuple(parts[0].values.shape[1:])} that is read once and looked up in "
            "several of these ways, or by ids that are computed from the result of `tf.unique`",
            "Read it for each lookup; or look it up as `ops.take(1.0 * weight, ids, axis=0)`, whose gradient is dense.",
        )
    values = tf.concat([part.values for part in parts], axis=0)
    ids = tf.concat([part.indices for part in parts], axis=0)
    if rows is Rows.BY_ID:
        ids, of_each = tf.unique(ids)
        values = tf.math.unsorted_segment_sum(values, of_each, tf.size(ids))
    return tf.IndexedSlices(values, ids, parts[0].dense_shape)


def _by_place(parts: Sequence[tf.IndexedSlices]) -> tf.IndexedSlices:
    """Sum rows in the same places, which have the same id. A slice of narrower rows has fewer, such as positions."""
    longest = tf.reduce_max(tf.stack([tf.shape(part.indices)[0] for part in parts]))
    filled = [tf.nest.map_structure(lambda x: _filled(x, longest), (part.values, part.indices)) for part in parts]
    values, ids = zip(*filled, strict=True)
    return tf.IndexedSlices(tf.add_n(values), tf.reduce_max(tf.stack(ids), axis=0), parts[0].dense_shape)


def _filled(x: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    return tf.pad(x, [[0, size - tf.shape(x)[0]], *[[0, 0]] * (x.shape.rank - 1)])
