"""Large embedding tables stay with their owner: rows travel, gradients are rows, and the numbers are one device's."""

import keras
import numpy as np
import pytest
from cases import soak
from equality import FLOAT32, ONE_CALL, assert_same_numbers, assert_same_training, random_ids, random_rows, train
from executed_graphs import executed, makers_of, sent_tensors
from keras import layers, ops

from multigpu import multi_gpu_model
from multigpu.engines.tensorflow.weights import embedding_tables
from multigpu.engines.tensorflow.weights.place_locate import locate

X, Y = random_ids(18, 6, below=9), random_rows(18, 2, seed=1)


@pytest.fixture(autouse=True)
def every_table_is_large(monkeypatch):
    monkeypatch.setattr(embedding_tables, "BUCKET_BYTES", 1)


class Tied(layers.Layer):
    """Uses a table twice: for its rows, and whole, as the weights of an output."""

    def __init__(self):
        super().__init__()
        self.embedding = layers.Embedding(9, 4)

    def build(self, shape):
        self.embedding.build(shape)

    def call(self, ids):
        return ops.matmul(ops.mean(self.embedding(ids), axis=1), ops.transpose(self.embedding.embeddings))


def one_table(ids="int32", **arguments):
    inputs = keras.Input((6,), dtype=ids)
    x = layers.Flatten()(layers.Embedding(9, 4, name="table", **arguments)(inputs))
    return keras.Model(inputs, layers.Dense(2)(x))


def looked_up_twice():
    inputs = keras.Input((6,), dtype="int32")
    table = layers.Embedding(9, 4, name="table")
    halved = layers.Lambda(lambda ids: ids // 2)(inputs)  # ids that are computed in the replica
    return keras.Model(inputs, layers.Dense(2)(layers.Flatten()(layers.Add()([table(inputs), table(halved)]))))


def masked():
    inputs = keras.Input((6,), dtype="int32")
    x = layers.GlobalAveragePooling1D()(layers.Embedding(9, 4, mask_zero=True, name="table")(inputs))
    return keras.Model(inputs, layers.Dense(2)(x))


def tied():
    inputs = keras.Input((6,), dtype="int32")
    return keras.Model(inputs, layers.Dense(2)(Tied()(inputs)))


def frozen():
    template = one_table()
    template.get_layer("table").trainable = False
    return template


def compiled_with(optimizer, **arguments):
    return lambda: {"optimizer": optimizer(0.1, **arguments), "loss": "mse"}


BUILDS = [one_table, looked_up_twice, masked, tied, frozen]


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.__name__)
def test_templates_with_tables_train_as_on_one_device(build):
    compile = compiled_with(keras.optimizers.SGD, momentum=0.9)
    assert_same_training(build, X, Y, compile=compile, only_fit=build is not one_table)


@pytest.mark.parametrize(
    "compile",
    [
        soak(compiled_with(keras.optimizers.Adam)),
        soak(compiled_with(keras.optimizers.RMSprop)),
        soak(compiled_with(keras.optimizers.Adagrad)),
        compiled_with(keras.optimizers.AdamW, weight_decay=0.1),
        soak(compiled_with(keras.optimizers.SGD, clipnorm=0.01)),
        compiled_with(keras.optimizers.SGD, global_clipnorm=0.01),
        lambda: {**compiled_with(keras.optimizers.SGD)(), "run_eagerly": True},
        lambda: {**compiled_with(keras.optimizers.SGD)(), "jit_compile": True},
    ],
)
def test_optimizers_that_take_rows_give_the_numbers_of_one_device(compile):
    assert_same_training(one_table, X, Y, compile=compile, gpus=3, only_fit=True)


# Every optimizer of Keras takes the rows of a gradient, and makes what it will of them.
OPTIMIZERS = [
    kind
    for kind in vars(keras.optimizers).values()
    if isinstance(kind, type)
    and issubclass(kind, keras.optimizers.Optimizer)
    and kind is not keras.optimizers.Optimizer
]
ARGUMENTS = {
    keras.optimizers.LossScaleOptimizer: lambda: [keras.optimizers.SGD(0.1)],
    keras.optimizers.MultiOptimizer: lambda: [keras.optimizers.OptimizerMap(keras.optimizers.SGD(0.1))],
}


def made(kind):
    return kind(*ARGUMENTS.get(kind, list)())


def rising():
    """A table and weights of one sign, so that no gradient is near zero where targets are far above the outputs.

    Optimizers that divide a gradient by its size would turn its rounding error into a whole step.
    """
    above_zero = keras.initializers.RandomUniform(0.2, 0.8)
    inputs = keras.Input((6,), dtype="int32")
    x = layers.Flatten()(layers.Embedding(50, 4, embeddings_initializer=above_zero, name="table")(inputs))
    return keras.Model(inputs, layers.Dense(1, kernel_initializer=above_zero)(x))


# One that adds rows, one that decays a momentum, one that keeps rows and columns, one that wraps another.
# A table that is sent gives an optimizer the same rows as one that is looked up by its owner.
ONE_OF_EACH = ["SGD", "Adam", "Adafactor", "LossScaleOptimizer"]


@pytest.mark.parametrize(
    ("kind", "is_sent"),
    [
        *((kind, False) if kind.__name__ in ONE_OF_EACH else soak(kind, False) for kind in OPTIMIZERS),
        *[(keras.optimizers.Adam, True), soak(keras.optimizers.SGD, True), soak(keras.optimizers.Adagrad, True)],
    ],
)
def test_every_optimizer_updates_a_table_on_two_devices_as_on_one(kind, is_sent, monkeypatch):
    monkeypatch.setattr(embedding_tables, "BUCKET_BYTES", 1 << 20 if is_sent else 1)
    templates = []

    def build():
        templates.append(rising())
        return templates[-1]

    def compile():  # built beforehand, for the sake of those of which Keras loses something when a trace builds them
        optimizer = made(kind)
        optimizer.build(templates[-1].trainable_variables)
        return {"optimizer": optimizer, "loss": "mse", "run_eagerly": False}  # graphs are compared

    def trained(gpus):
        data = X, np.full((len(X), 1), 20, "float32")
        numbers.append(train(build, *data, compile=compile, gpus=gpus, only_fit=True)[1])

    numbers: list = []
    one, several = (executed(lambda gpus=gpus: trained(gpus)) for gpus in (None, 2))
    assert_same_numbers(*numbers, **FLOAT32)
    if not is_sent:  # no array of the table's size moves, or is made where one device makes none
        assert makers_of(several, 50, 4) <= makers_of(one, 50, 4)
        assert not [t for t in sent_tensors(several) if t.shape == (50, 4)]


def test_optimizers_without_momentum_make_no_array_of_the_tables_size():
    template = rising()
    parallel = multi_gpu_model(template, gpus=2)
    parallel.compile(keras.optimizers.SGD(), "mse")
    run = executed(lambda: parallel.fit(X, Y[:, :1], batch_size=7, verbose=0))
    assert not makers_of(run, 50, 4)
    assert makers_of(run, 24, 1)  # the other kernel, for a test of the test


def test_a_regularised_table_trains_as_on_one_device():
    build = lambda: one_table(embeddings_regularizer="l2")  # noqa: E731  # it is built twice
    assert_same_training(build, X, Y, compile=compiled_with(keras.optimizers.SGD), gpus=3, only_fit=True)


@pytest.mark.quick
def test_rows_are_looked_up_and_updated_by_the_owner_alone():
    template = one_table()
    devices = ["CPU:1", "CPU:2", "CPU:3"]
    parallel = multi_gpu_model(template, gpus=devices)
    parallel.compile(optimizer="sgd", loss="mse")
    run = executed(lambda: parallel.fit(X, Y, batch_size=7, verbose=0))
    owner = locate(template.get_layer("table").embeddings)
    assert run.devices_of("ResourceGather") == {owner: 3}
    assert set(run.devices_of("ResourceScatter")) == {owner}
    assert not run.devices_of("UnsortedSegmentSum")  # nothing was made dense


def test_a_small_table_is_sent_as_the_other_weights_are(monkeypatch):
    monkeypatch.setattr(embedding_tables, "BUCKET_BYTES", 1 << 20)
    assert embedding_tables.Tables(one_table().layers).layers == []


@pytest.mark.parametrize("ids", [np.full((3, 6), -1), np.full((3, 6), 7.0, "float32")], ids=["negative", "as floats"])
def test_ids_of_all_kinds_mean_what_they_mean_to_keras(ids):
    template = one_table(ids.dtype.name)
    expected = template.predict(ids, verbose=0)
    np.testing.assert_allclose(multi_gpu_model(template, gpus=2).predict(ids, verbose=0), expected, **ONE_CALL)
