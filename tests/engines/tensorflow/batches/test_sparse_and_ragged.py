"""Sparse and ragged inputs and outputs have the numbers of one device, however much of their shapes is known."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import soak, some
from equality import Chain, assert_same, assert_same_weights, make_twins
from keras import layers, ops

from multigpu import multi_gpu_model


def sparse(rows):
    """Rows of 4 numbers, of which most are zero, and some rows have none."""
    filled = np.arange(0, rows, 2)
    return tf.SparseTensor(np.stack([filled, filled % 4], axis=1), filled.astype("float32") + 1, (rows, 4))


def sparse_3d(rows):
    filled = np.arange(0, rows, 2)
    indices = np.stack([filled, filled % 3, filled % 4], axis=1)
    return tf.SparseTensor(indices, filled.astype("float32") + 1, (rows, 3, 4))


def ragged(rows):
    lengths = [row % 3 for row in range(rows)]
    return tf.RaggedTensor.from_row_lengths(tf.range(sum(lengths)) % 4, lengths)


def mixed(rows):
    return [sparse(rows), ragged(rows), tf.reshape(tf.range(rows * 4.0), (rows, 4)) / 10]


class ReadsAll(layers.Layer):
    """Two numbers per row of whatever it is given: dense, sparse of rank 2 or 3, or ragged."""

    def build(self, shape):
        self.table = self.add_weight(shape=(4, 2), name="table")
        self.built = True

    def compute_output_shape(self, shape):
        return (None, 2)

    def call(self, x):
        if isinstance(x, list):
            return sum(self.call(part) for part in x)
        if isinstance(x, tf.RaggedTensor):
            return tf.reduce_sum(tf.ragged.map_flat_values(lambda ids: tf.gather(self.table, ids), x), axis=1)
        if isinstance(x, tf.SparseTensor):
            x = tf.sparse.to_dense(x)
        return tf.matmul(tf.reduce_sum(x, axis=1) if x.shape.rank == 3 else x, self.table)


def own(make):
    def build():
        model = Chain(ReadsAll(), layers.Dense(2))
        model(make(3))
        return model

    return build


def called_on_a_sparse_batch():
    model = Chain(layers.Dense(3, activation="tanh"), layers.Dense(2))
    model(sparse(3))
    return model


def functional(shape, **kind):
    def build():
        x = keras.Input(shape, **kind)
        first = ReadsAll() if kind.get("ragged") else layers.Dense(3)
        return keras.Model(x, layers.Dense(2)(first(x)))

    return build


INPUTS = {
    "sparse": (own(sparse), sparse),
    "sparse of rank 3": (own(sparse_3d), sparse_3d),
    "sparse into Dense": (called_on_a_sparse_batch, sparse),
    "ragged": (own(ragged), ragged),
    "mixed": (own(mixed), mixed),
    "Input(sparse=True)": (functional((4,), sparse=True), sparse),
    "Input(ragged=True)": (functional((None,), ragged=True, dtype="int32"), ragged),
}
ROWS = (7, 2, 1)  # on three devices: uneven, and with devices that stand by


CHOSEN = [("sparse of rank 3", True), ("sparse into Dense", False), ("mixed", False), ("Input(ragged=True)", True)]


@pytest.mark.parametrize(("inputs", "run_eagerly"), some(itertools.product(INPUTS, [False, True]), CHOSEN))
def test_batches_of_known_shape_have_the_numbers_of_one_device(inputs, run_eagerly):
    build, make = INPUTS[inputs]
    one, parallel = make_twins(build, gpus=3)
    for model in (one, parallel):
        model.compile(keras.optimizers.SGD(0.01), "mse", run_eagerly=run_eagerly)
    assert_same(parallel(make(7)), one(make(7)))
    for rows in ROWS:
        x, y = make(rows), np.ones((rows, 2), "float32")
        assert_same(parallel.predict_on_batch(x), one.predict_on_batch(x))
        assert_same(parallel.train_on_batch(x, y), one.train_on_batch(x, y))
    assert_same_weights(parallel, one)


@pytest.mark.parametrize(
    ("make", "run_eagerly"),
    [(sparse, False), (ragged, True), soak(sparse, True), soak(ragged, False)],
)
def test_so_has_keras_loop_over_tensors_and_over_a_dataset(make, run_eagerly):
    one, parallel = make_twins(own(make), gpus=3)
    x, y = make(7), np.ones((7, 2), "float32")
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(5)
    for model in (one, parallel):
        model.compile(keras.optimizers.SGD(0.01), "mse", run_eagerly=run_eagerly)
    for how in ({"x": batches, "shuffle": False}, {"x": x, "y": y, "batch_size": 5, "shuffle": False}):
        losses = [model.fit(**how, epochs=2, verbose=0).history["loss"] for model in (one, parallel)]
        assert_same(losses[1], losses[0])
        how.pop("shuffle", None)
        assert_same(parallel.evaluate(**how, verbose=0), one.evaluate(**how, verbose=0))
        how.pop("y", None)
        assert_same(parallel.predict(**how, verbose=0), one.predict(**how, verbose=0))
    assert_same_weights(parallel, one)


SPECS = [
    tf.SparseTensorSpec((None, 4)),
    tf.SparseTensorSpec((7, None)),
    tf.SparseTensorSpec((None, None)),
    tf.RaggedTensorSpec((None, None), tf.int32),
    tf.RaggedTensorSpec((7, None), tf.int32),
]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_so_have_batches_of_which_less_is_known(spec):
    @tf.function(input_signature=[spec])
    def called(x):
        return parallel(x)

    make = ragged if isinstance(spec, tf.RaggedTensorSpec) else sparse
    one, parallel = make_twins(own(make), gpus=3)
    assert_same(called(make(7)), one(make(7)))


class DoublesValues(layers.Layer):
    def build(self, shape):
        self.factor = self.add_weight(shape=(), initializer="ones", name="factor")
        self.built = True

    def call(self, x):
        if isinstance(x, tf.SparseTensor):
            return tf.sparse.map_values(lambda values: 2 * self.factor * values, x)
        return tf.ragged.map_flat_values(lambda values: 2 * self.factor * tf.cast(values, tf.float32), x)


@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize("make", [sparse, sparse_3d, ragged], ids=lambda f: f.__name__)
def test_outputs_are_merged_to_those_of_one_device_and_carry_gradients(make, run_eagerly):
    template = Chain(DoublesValues())
    template(make(3))
    parallel = multi_gpu_model(template, gpus=3)
    parallel.compile("sgd", run_eagerly=run_eagerly)

    def values_and_gradient(model, x):
        with tf.GradientTape() as tape:
            y = model(x)
            loss = ops.mean(tf.nest.flatten(y, expand_composites=True)[1 if isinstance(y, tf.SparseTensor) else 0] ** 2)
        return tf.nest.flatten(y, expand_composites=True), tape.gradient(loss, model.trainable_variables)

    for rows in ROWS[:2]:
        assert_same(values_and_gradient(parallel, make(rows)), values_and_gradient(template, make(rows)))
