"""Weights are whole in a step whose program moves numbers along an axis. Lookups in tables of weights do not."""

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from equality import random_rows
from keras import layers

from multigpu.engines.jax.devices import make_mesh
from multigpu.engines.jax.moves import needs_whole_weights
from multigpu.engines.jax.program import trace

MESH = make_mesh(["CPU:0", "CPU:1"], [0])


def transformer(x):
    x = layers.Embedding(11, 8)(x)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True))
    return layers.Dense(3)(layers.Dropout(0.5)(x))


def dense(x):
    return layers.Dense(3)(layers.BatchNormalization()(layers.Dropout(0.5)(layers.Dense(8, "relu")(x))))


WHOLE = {
    "dense layers": (dense, (6,), "float32", False),
    "a transformer": (transformer, (6,), "int32", False),
    "a convolution": (lambda x: layers.Conv1D(3, 2)(x), (6, 2), "float32", True),
    "a loop": (lambda x: layers.LSTM(3)(x), (6, 2), "float32", True),
    "the first position": (lambda x: layers.Dense(3)(layers.Dense(4)(x)[:, 0]), (6, 2), "float32", True),
}


@pytest.mark.parametrize("name", WHOLE)
def test_weights_are_gathered_where_numbers_move_and_for_loops(name):
    body, shape, dtype, is_whole = WHOLE[name]
    inputs = keras.Input(shape, dtype=dtype)
    model = keras.Model(inputs, body(inputs))
    trainable, others = ([v.value for v in vs] for vs in (model.trainable_variables, model.non_trainable_variables))

    def loss(trainable):
        outputs, _ = model.stateless_call(trainable, others, np.ones((4, *shape), dtype), training=True)
        return jnp.mean(jnp.square(outputs))

    program, _ = trace(MESH, jax.grad(loss), trainable)
    assert needs_whole_weights(program, len(trainable)) is is_whole


@jax.custom_vjp
def rows_of(table, ids):
    return table[ids]


rows_of.defvjp(lambda table, ids: (table[ids], ids), lambda ids, g: (jnp.zeros((11, 8)).at[ids].add(g), None))


@jax.jit
def taken(table, ids):
    return jnp.take(table, ids, axis=0)


def swapped(table, ids):
    return jax.lax.cond(ids[0] > 3, lambda table, ids: table[ids], lambda table, ids: table[ids + 1], table, ids)


LOOKUPS = {
    "in a weight": (lambda w, x, ids: w[ids], False),
    "in a weight, of another type and shape": (lambda w, x, ids: w.astype("bfloat16").T[:, ids], False),
    "in a weight, computed again for the gradient": (
        lambda w, x, ids: jax.checkpoint(rows_of)(w, ids),
        False,
    ),
    "in a weight, with a gradient of one's own": (lambda w, x, ids: rows_of(w, ids), False),
    "in a weight, in a function of one's own": (lambda w, x, ids: taken(w, ids), False),
    "in rows of a weight's shape": (lambda w, x, ids: jnp.sum(w) + x[ids], True),
    "in rows of a weight's shape, in a function": (lambda w, x, ids: taken(x, ids), True),
    "in both, by the same function": (lambda w, x, ids: rows_of(w, ids) + rows_of(x, ids), True),
    "in both, in branches": (lambda w, x, ids: swapped(w, ids) + swapped(x, ids), True),
    "in twice a weight": (lambda w, x, ids: (w * 2)[ids], True),
    "in a weight, of one index": (lambda w, x, ids: w[ids[:1]], True),
    "an update of rows of a weight's shape": (
        lambda w, x, ids: jnp.sum(w[ids]) + x.at[ids].add(1.0),
        True,
    ),
    "an update of a weight": (lambda w, x, ids: w.at[ids].set(1.0), True),
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_lookups_are_told_by_the_flow_of_weights(name):
    """Here, activations have the shape of the table, too."""
    function, is_whole = LOOKUPS[name]
    table, kernel, x = random_rows(11, 8), random_rows(3, 8), random_rows(11, 3)

    def loss(weights, x, ids):
        table, kernel = weights
        return jnp.sum(jnp.tanh(function(table, x @ kernel, ids)).astype("float32"))

    for of in (loss, jax.grad(loss)):
        program, _ = trace(MESH, of, [table, kernel], x, np.array([2, 5, 2, 9, 4]))
        assert needs_whole_weights(program, 2) is is_whole


def test_a_lookup_in_a_branch():
    """Its gradient is not followed, since the branches pass their indices in common variables."""

    def loss(table, ids):
        return jnp.sum(jnp.tanh(swapped(table, ids)))

    for of, is_whole in ((loss, False), (jax.grad(loss), True)):
        program, _ = trace(MESH, of, random_rows(11, 8), np.array([2, 5, 2, 9, 4]))
        assert needs_whole_weights(program, 1) is is_whole
