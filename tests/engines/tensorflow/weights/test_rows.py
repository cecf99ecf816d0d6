"""Rows of a gradient add up as on one device: optimizers that square or clip them tell the difference."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import soak
from equality import assert_same, assert_same_training, make_twins, random_ids, random_rows
from executed_graphs import executed, sent_tensors
from keras import layers, ops, optimizers
from optimizer_cases import COMMON, OTHERS
from part_models import LAYOUTS, assert_same_in_groups

from multigpu import multi_gpu_model
from multigpu.engines.tensorflow.weights import embedding_tables

IDS, Y = random_ids(18, 6, below=9), random_rows(18, 2, seed=1)
WORDS = np.array([[f"word {number}" for number in row] for row in IDS])


class Different(layers.Layer):
    """Looks each of the ids up once."""

    def __init__(self):
        super().__init__()
        self.table = layers.Embedding(9, 4)

    def call(self, ids):
        different, places = tf.unique(tf.reshape(ids, [-1]))
        return tf.reshape(tf.gather(self.table(different), places), [-1, 6, 4])


class Positions(layers.Layer):
    """Rows for the places in a row, whose number is open in the trace."""

    def __init__(self):
        super().__init__()
        self.table = layers.Embedding(6, 4)

    def call(self, ids):
        return self.table(tf.range(tf.shape(ids)[1]))


def reader():
    """All ways to look rows up, in tables that are sent: beside the usual one, by sparse inputs of a Dense."""
    ids, words = keras.Input((None,), dtype="int32"), keras.Input((6,), dtype="string")
    many = layers.StringLookup(vocabulary=[f"word {n}" for n in range(9)], output_mode="multi_hot", sparse=True)(words)
    x = layers.GlobalAveragePooling1D()(layers.Embedding(9, 4)(ids) + Different()(ids) + Positions()(ids))
    return keras.Model([ids, words], layers.Dense(2)(layers.Concatenate()([x, layers.Dense(3)(many)])))


CLIPPED = ("SGD", {"learning_rate": 0.1, "clipnorm": 0.01})
CHOSEN = [CLIPPED, COMMON[1]]


@pytest.mark.parametrize(
    ("name", "arguments"), [case if case in CHOSEN else soak(*case) for case in [CLIPPED, *COMMON, *OTHERS]]
)
def test_rows_of_slices_are_summed_as_on_one_device(name, arguments):
    def compile():
        return {"optimizer": getattr(optimizers, name)(**arguments), "loss": "mse"}

    assert_same_training(reader, [IDS, WORDS], Y, compile=compile, only_fit=True)


class Multiplies(layers.Layer):
    """A product of sparse inputs with a weight of its own, and with the same one again."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 3), initializer="ones")

    def compute_output_shape(self, shape):
        return (shape[0], 3)

    def call(self, x):
        x = tf.cast(x, "float32")
        return tf.sparse.sparse_dense_matmul(x, self.kernel) + ops.matmul(x, 2.0 * self.kernel)


class Counts(layers.Layer):
    """Takes each different word once, as often as it is there."""

    def __init__(self):
        super().__init__()
        self.table = layers.Embedding(9, 4)

    def call(self, ids):
        different, places, counts = tf.unique_with_counts(tf.reshape(ids, [-1]))
        rows = self.table(different) / tf.cast(counts, "float32")[:, None] ** 0
        return tf.reduce_mean(tf.reshape(tf.gather(rows, places), [-1, 6, 4]), axis=1)


@pytest.mark.parametrize("optimizer", [lambda: optimizers.Adam(0.1), lambda: optimizers.Adagrad(0.1, clipnorm=0.01)])
def test_rows_of_other_kinds_of_sparse_products_as_well(optimizer):
    def build():
        ids = keras.Input((6,), dtype="int32")
        hashed = layers.Hashing(7, output_mode="multi_hot", sparse=True)(ids)
        counted = layers.IntegerLookup(vocabulary=[*range(9)], output_mode="count", sparse=True)(ids)
        x = layers.Concatenate()([layers.Dense(3)(hashed), Multiplies()(counted), Counts()(ids)])
        return keras.Model(ids, layers.Dense(2)(x))

    assert_same_training(build, IDS, Y, compile=lambda: {"optimizer": optimizer(), "loss": "mse"}, only_fit=True)


@pytest.mark.parametrize("eagerly", [False, True])
def test_rows_of_tables_that_stay_with_their_owner_as_well(monkeypatch, eagerly):
    monkeypatch.setattr(embedding_tables, "BUCKET_BYTES", 1)

    def build():
        ids = keras.Input((6,), dtype="int32")
        x = layers.Embedding(9, 4)(ids) + Different()(ids) + Positions()(ids)
        return keras.Model(ids, layers.Dense(2)(layers.Flatten()(x)))

    def compile():
        return {"optimizer": optimizers.Adam(0.1), "loss": "mse", "run_eagerly": eagerly}

    assert_same_training(build, IDS, Y, compile=compile, only_fit=True)


class Reads(layers.Layer):
    """Reads one table several times, and looks it up in its own way each time."""

    def __init__(self, *lookups):
        super().__init__()
        self.table, self.lookups = layers.Embedding(9, 4), lookups

    def build(self, shape):
        self.table.build(shape)

    def call(self, ids):
        return sum(lookup(self.table, ids) for lookup in self.lookups)


def by_ids(table, ids):
    return table(ids)


def by_others(table, ids):
    return table(8 - ids)


def by_a_constant(table, ids):
    return table(ops.zeros((1, 1), "int32"))


def by_places(table, ids):
    return table(tf.range(tf.shape(ids)[1]))


def by_each_id_once(table, ids):
    different, places = tf.unique(tf.reshape(ids, [-1]))
    return tf.reshape(tf.gather(table(different), places), tf.concat([tf.shape(ids), [4]], 0))


def by_each_half_once(table, ids):
    return by_each_id_once(table, ids // 2)


def by_nothing(table, ids):
    return ops.cast(ids, "float32")[..., None] / 8


def by_all(table, ids):
    """As the weights of a layer, so that the gradient is no longer rows."""
    return ops.mean(ops.matmul(table(ids), ops.transpose(table.embeddings)), axis=-1, keepdims=True)


def by_ids_again(table, ids):
    """In a part that is computed again in the backward pass, in which the table is read twice."""
    return keras.remat(lambda x: table(x) * table(x // 2))(ids)


READS = {
    "ids and a constant": [by_ids, by_a_constant],
    "ids of two inputs": [by_ids, by_others],
    "ids, others, and a constant": [by_ids, by_a_constant, by_others],
    "each id once, and all": [by_each_id_once, by_ids],
    "each id once, twice": [by_each_id_once, by_each_half_once],
    "places and a constant": [by_places, by_a_constant, by_nothing],
    "a constant alone": [by_a_constant, by_nothing],
    "whole as well": [by_ids, by_a_constant, by_all],
    "again alone": [by_ids_again],
    "ids that are looked up again": [by_a_constant, by_ids_again, by_each_id_once],
}
SPARSE = {
    "Adam": lambda: optimizers.Adam(0.1, clipnorm=0.05),
    "SGD": lambda: optimizers.SGD(0.1, momentum=0.9),
    "Adagrad": lambda: optimizers.Adagrad(0.1, clipnorm=0.01),
}


def reading(how, on=None):
    """A template, and a part of it if `on` says where parts are."""
    ids = keras.Input((6,), dtype="int32")
    with on("GPU:0") if on else contextlib.nullcontext():
        x = Reads(*READS[how])(ids)
    with on("GPU:1") if on else contextlib.nullcontext():
        return keras.Model(ids, layers.Dense(2)(layers.Flatten()(x)))


ONE_ROW_LEFT = IDS[:17], Y[:17]  # batches of 8, 8 and 1


@pytest.mark.parametrize(
    ("how", "optimizer", "gpus"),
    [
        pytest.param("ids and a constant", "Adam", 3, marks=pytest.mark.quick),
        *[("ids and a constant", "SGD", 8), ("ids and a constant", "Adagrad", 8)],
        *[(how, "Adam", 3) for how in READS if how not in ("ids and a constant", "ids of two inputs")],
        *[soak(how, optimizer, gpus) for how in READS for optimizer in SPARSE for gpus in (2, 8)],
    ],
)
def test_each_read_of_a_table_is_looked_up_as_on_one_device(how, optimizer, gpus):
    def compile():
        return {"optimizer": SPARSE[optimizer](), "loss": "mse"}

    assert_same_training(lambda: reading(how), *ONE_ROW_LEFT, compile=compile, gpus=gpus, only_fit=True)


@pytest.mark.parametrize("how", ["ids, others, and a constant", soak("whole as well")])
@pytest.mark.parametrize("arguments", [{"run_eagerly": True}, {"jit_compile": True}], ids=["eagerly", "by XLA"])
def test_op_by_op_and_by_xla_too(how, arguments):
    def compile():
        return {"optimizer": optimizers.Adam(0.1), "loss": "mse", **arguments}

    assert_same_training(lambda: reading(how), *ONE_ROW_LEFT, compile=compile, only_fit=True)


@pytest.mark.parametrize("eagerly", [False, True])
def test_rows_in_a_part_that_is_computed_again_have_a_dense_gradient(eagerly):
    def compile():
        return {"optimizer": optimizers.Adam(0.1), "loss": "mse", "run_eagerly": eagerly}

    assert_same_training(lambda: reading("again alone"), *ONE_ROW_LEFT, compile=compile, only_fit=True)


@pytest.mark.parametrize("eagerly", [False, True])
def test_a_table_that_would_stay_with_its_owner_is_sent_if_its_reads_differ(monkeypatch, eagerly):
    monkeypatch.setattr(embedding_tables, "BUCKET_BYTES", 1)

    def compile():
        return {"optimizer": optimizers.Adam(0.1), "loss": "mse", "run_eagerly": eagerly}

    build = lambda: reading("ids, others, and a constant")  # noqa: E731
    assert_same_training(build, *ONE_ROW_LEFT, compile=compile, only_fit=True)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_table_of_a_part_too(layout):
    def compile():
        return {"optimizer": optimizers.Adam(0.1), "loss": "mse"}

    def build(on):
        return reading("ids, others, and a constant", on)

    assert_same_in_groups(build, IDS[:17], [LAYOUTS[layout](2)], compile, y=Y[:17], only_fit=True)


def test_mixed_precision_too():
    keras.config.set_dtype_policy("mixed_float16")
    try:  # a float16 has 11 bits
        rough = {"rtol": 4e-3, "atol": 4e-4}
        compile = lambda: {"optimizer": optimizers.SGD(0.1, momentum=0.9), "loss": "mse"}  # noqa: E731
        build = lambda: reading("ids and a constant")  # noqa: E731
        assert_same_training(build, *ONE_ROW_LEFT, compile=compile, tolerance=rough, only_fit=True)
    finally:
        keras.config.set_dtype_policy("float32")


def test_gradients_of_gradients_too():
    one, parallel = make_twins(lambda: reading("ids and a constant"))
    table = [each.trainable_variables[0] for each in (one, parallel)]
    found = []
    for model, weight in zip((one, parallel), table, strict=True):
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                loss = tf.reduce_sum(model(IDS) ** 4)
            gradient = inner.gradient(loss, model.trainable_variables[-1].value)
            penalty = tf.reduce_sum(gradient**2)
        found.append(tf.convert_to_tensor(outer.gradient(penalty, weight.value)))
    assert_same(found[1], found[0])


def test_every_read_is_a_copy_that_the_overview_counts():
    parallel = multi_gpu_model(reading("ids, others, and a constant"), gpus=2)
    parallel.compile(SPARSE["Adam"](), "mse")
    before = [row.received for row in parallel.overview()]
    run = executed(lambda: parallel.fit(IDS, Y, batch_size=18, verbose=0))
    assert sum(row.received for row in parallel.overview()) > sum(before)
    assert len([each for each in sent_tensors(run) if each.shape == (9, 4)]) == 3


def test_it_is_refused_by_name_to_take_rows_of_which_one_device_would_have_others():
    class ReadsOnce(Different):
        def call(self, ids):
            table = self.table.embeddings.value
            different, places = tf.unique(tf.reshape(ids, [-1]))
            rows = tf.gather(tf.gather(table, different), places)
            return tf.reshape(rows, [-1, 6, 4]) + ops.take(table, ids, axis=0)

    ids = keras.Input((6,), dtype="int32")
    layer = ReadsOnce()
    layer.table.build()
    parallel = multi_gpu_model(keras.Model(ids, layers.Dense(2)(layers.Flatten()(layer(ids)))), gpus=2)
    assert parallel(IDS).shape == (18, 2)  # which takes no gradient
    parallel.compile("sgd", "mse")
    with pytest.raises(
        ValueError, match=r"each time that a layer reads it: .* Received: a weight with rows of shape \(4,\)"
    ):
        parallel.fit(IDS, Y, verbose=0)
