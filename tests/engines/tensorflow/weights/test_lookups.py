"""Weights whose gradient is rows are known before the gradient is, and so is which rows one device would have apart."""

import pytest
import tensorflow as tf
from keras import ops

from multigpu.engines.tensorflow.weights.lookups import ways_of_lookup
from multigpu.engines.tensorflow.weights.rows import Rows

IDS = tf.constant([0, 2, 2])
LOOKED_UP = {
    "gather": lambda table: tf.gather(table, IDS),
    "cast, as in mixed precision": lambda table: tf.gather(tf.cast(table, tf.float16), IDS),
    "rows by their position": lambda table: tf.gather_nd(table, IDS[:, None]),
    "in a function": tf.function(lambda table: tf.gather(table, IDS)),
    "in a function in a function": tf.function(lambda table: tf.function(lambda: tf.gather(table, IDS))()),
    "compiled by XLA": tf.function(lambda table: tf.gather(table, IDS), jit_compile=True),
    "in a branch": lambda table: tf.cond(IDS[0] > 0, lambda: tf.gather(table, IDS), lambda: tf.zeros((3, 2))),
    "in a loop": lambda table: tf.while_loop(
        lambda i, x: i < 2, lambda i, x: (i + 1, x + tf.gather(table, IDS)), (0, tf.zeros((3, 2)))
    )[1],
}


@pytest.mark.parametrize("how", LOOKED_UP)
def test_a_table_is_found_wherever_it_is_looked_up(how):
    specs = [tf.TensorSpec((2, 2)), tf.TensorSpec((4, 2))]
    function = tf.function(lambda w, table: [w @ w, LOOKED_UP[how](table)]).get_concrete_function(*specs)
    assert ways_of_lookup(function, range(len(function.inputs)), [0, 1]) == {1: Rows.BY_PLACE}


def different(x):
    return tf.unique(tf.reshape(x, [-1]))


def in_a_branch(table, x):
    """The ids are made outside, and the rows taken inside."""
    ids = different(x)[0]
    return tf.cond(x[0, 0] > 0, lambda: tf.gather(table, ids), lambda: tf.gather(table, ids) * 2)


WAYS = {
    Rows.APART: {
        "ids": lambda table, x: tf.gather(table, x),
        "a row for each row": lambda table, x: tf.gather(table, tf.zeros(tf.shape(x)[0], tf.int32)),
        "the ids again": lambda table, x: tf.gather(table, tf.gather(*different(x))),
        "drawn": lambda table, x: tf.gather(table, tf.random.uniform([3], maxval=4, dtype=tf.int32)),
        "drawn for each row": lambda table, x: tf.gather(
            table, tf.random.stateless_uniform(tf.shape(x), [1, 2], maxval=4, dtype=tf.int32)
        ),
    },
    Rows.BY_ID: {
        "each id once": lambda table, x: tf.gather(table, tf.cast(different(x)[0], tf.int64)),
        "of Keras, which takes rows from the end, too": lambda table, x: ops.take(table, different(x)[0], axis=0),
        "a function's result": lambda table, x: tf.gather(table, tf.function(lambda y: different(y)[0])(x)),
        "sparse": lambda table, x: tf.nn.embedding_lookup_sparse(table, tf.sparse.from_dense(x), None),
        "sums of rows": lambda table, x: tf.sparse.segment_sum(table, x[0], x[0], sparse_gradient=True),
        "in a branch": in_a_branch,
    },
    Rows.BY_PLACE: {
        "positions": lambda table, x: tf.gather(table, tf.range(tf.shape(x)[1])),
        "drawn from a seed": lambda table, x: tf.gather(
            table, tf.random.stateless_uniform([3], [1, 2], maxval=4, dtype=tf.int32)
        ),
        "different constants": lambda table, x: tf.gather(table, different(IDS)[0]),
    },
    Rows.UNCLEAR: {
        "twice": lambda table, x: [tf.gather(table, different(y)[0]) for y in (x, x // 2)],
        "in two ways": lambda table, x: tf.reduce_sum(tf.gather(table, x)) + tf.gather(table, IDS),
        "computed": lambda table, x: tf.gather(table, different(x)[0] // 2),
        "the first ones": lambda table, x: tf.gather(table, different(x)[0][:2]),
    },
}


@pytest.mark.parametrize(("rows", "how"), [(rows, how) for rows, hows in WAYS.items() for how in hows])
def test_it_is_known_whether_rows_of_slices_are_those_of_the_batch(rows, how):
    specs = [tf.TensorSpec((4, 2)), tf.TensorSpec((None, None), tf.int32)]
    function = tf.function(lambda table, x: WAYS[rows][how](table, x)).get_concrete_function(*specs)
    assert ways_of_lookup(function, {*range(len(function.inputs))} - {1}, [0]) == {0: rows}
