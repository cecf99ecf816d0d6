"""Under mixed precision weights travel in the type that is computed with, and not one number changes by that."""

from collections.abc import Callable, Iterator

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import some
from executed_graphs import executed
from keras import layers

from multigpu import multi_gpu_model
from multigpu.engines.tensorflow.replicas.scope import ReplicaScope
from multigpu.engines.tensorflow.weights.buckets import Types
from multigpu.engines.tensorflow.weights.place_locate import locate

STORED = Types(tf.float32, tf.float32, tf.float32)
BOTH_WAYS = Types(tf.float32, tf.float16, tf.float16)
SENT_ONLY = Types(tf.float32, tf.float16, tf.float32)


@pytest.fixture(autouse=True)
def mixed_float16() -> Iterator[None]:
    keras.config.set_dtype_policy("mixed_float16")
    yield
    keras.config.set_dtype_policy("float32")


def dense_net() -> keras.Model:
    return keras.Sequential([keras.Input((6, 4)), layers.Dense(8, activation="tanh"), layers.Flatten(), head()])


def recurrent_net() -> keras.Model:
    return keras.Sequential([keras.Input((6, 4)), layers.SimpleRNN(5), head()])


def shared_net() -> keras.Model:
    inputs, twice = keras.Input((6, 4)), layers.Dense(4, activation="tanh")
    return keras.Model(inputs, head()(layers.Flatten()(twice(twice(inputs)))))


class Tied(layers.Layer):
    """Reads the kernel of another layer in float32, whatever that layer computes in."""

    def __init__(self, other: layers.Dense):
        super().__init__(dtype="float32")
        self.other = other

    def call(self, x):
        return keras.ops.matmul(x, keras.ops.transpose(self.other.kernel))


def tied_net() -> keras.Model:
    inputs, dense = keras.Input((6, 4)), layers.Dense(8, activation="tanh")
    return keras.Model(inputs, head()(layers.Flatten()(Tied(dense)(dense(inputs)))))


def normalized_net() -> keras.Model:
    blocks = [layers.Conv1D(4, 3), layers.BatchNormalization(), layers.LayerNormalization(), layers.Flatten()]
    return keras.Sequential([keras.Input((6, 4)), *blocks, head()])


def embedded_net() -> keras.Model:
    parts = [layers.Embedding(9, 4), layers.Embedding(9, 4)]
    inputs = keras.Input((6, 4))
    ids = keras.ops.cast(keras.ops.abs(inputs[..., 0]), "int32")
    return keras.Model(inputs, head()(layers.Flatten()(parts[0](ids) + parts[1](ids + 1))))


def head() -> layers.Dense:
    return layers.Dense(1, dtype="float32")


def parallel_of(build: Callable[[], keras.Model], gpus: int) -> keras.Model:
    keras.utils.set_random_seed(3)
    parallel = multi_gpu_model(build(), gpus=gpus)
    parallel.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")
    return parallel


def rows() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.normal(size=(14, 6, 4)).astype("float32"), random.normal(size=(14, 1)).astype("float32")


NETS = {f.__name__: f for f in (dense_net, recurrent_net, shared_net, tied_net, normalized_net, embedded_net)}


@pytest.fixture
def sums_in_their_order():
    """TensorFlow's optimizer may change the order of the terms of a sum, in each graph in another way."""
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})
    yield
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": True})  # as it is by default


@pytest.mark.usefixtures("sums_in_their_order")
@pytest.mark.parametrize("net", some(NETS, ["tied_net", "embedded_net"]))
def test_no_number_changes_when_weights_travel_in_the_type_of_computation(net, monkeypatch):
    def trained() -> list[np.ndarray]:
        parallel = parallel_of(NETS[net], 3)
        parallel.fit(*rows(), batch_size=5, epochs=2, verbose=0, shuffle=False)
        return parallel.template.get_weights()

    narrow = trained()
    monkeypatch.setattr(ReplicaScope, "types", lambda self, variable: STORED)
    for weight, plain in zip(narrow, trained(), strict=True):
        np.testing.assert_array_equal(weight, plain)


def types_by_name(build: Callable[[], keras.Model]) -> dict[str, Types]:
    parallel = parallel_of(build, 2)
    parallel.train_on_batch(*rows())
    travelled = parallel._spread.types
    return {weight.path: travelled[id(weight)][0] for weight in parallel.template.trainable_variables}


@pytest.mark.quick
def test_a_weight_that_is_read_once_travels_both_ways_in_the_type_of_computation():
    assert set(types_by_name(dense_net).values()) == {BOTH_WAYS, STORED}  # the head computes in float32
    assert list(types_by_name(dense_net).values()).count(STORED) == 2


@pytest.mark.parametrize("build", [recurrent_net, shared_net], ids=lambda f: f.__name__)
def test_gradients_of_a_weight_that_is_read_often_are_summed_in_the_stored_type(build):
    assert set(types_by_name(build).values()) == {SENT_ONLY, STORED}


def test_a_weight_that_is_also_read_in_full_travels_in_full():
    types = types_by_name(tied_net)
    assert [types[name] for name in types if name.endswith("kernel")] == [STORED, STORED]
    assert BOTH_WAYS in types.values()  # the bias


def test_what_layers_do_not_cast_travels_as_it_is_stored():
    types = types_by_name(normalized_net)
    assert {name.rsplit("/")[-1] for name in types if types[name] == BOTH_WAYS} >= {"kernel", "bias"}
    assert STORED in {types[name] for name in types if name.endswith("gamma")}


def test_the_executed_step_moves_weights_and_gradients_in_float16():
    parallel = parallel_of(dense_net, 2)
    run = executed(lambda: parallel.train_on_batch(*rows()))
    owners = {locate(weight) for weight in parallel.template.layers[0].weights}
    assert run.transfers_of[tf.float16] == 2 * len(owners)  # a bucket to the other replica, and its gradient back


def test_rows_of_a_large_table_and_their_gradients_travel_in_float16():
    def build() -> keras.Model:
        table = layers.Embedding(20_000, 32)
        return keras.Sequential([keras.Input((6,), dtype="int32"), table, layers.GlobalAveragePooling1D(), head()])

    parallel = parallel_of(build, 2)
    ids, y = np.arange(84).reshape(14, 6), np.ones((14, 1))
    run = executed(lambda: parallel.train_on_batch(ids, y))
    assert run.transfers_of[tf.float16] == 2  # rows to the replica that is not beside the table, and back
