"""Results that no loss uses: their gradient is none at all, as on one device, and not one of zeros."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from equality import assert_same_training, random_rows
from keras import layers, ops

from multigpu import multi_gpu_model, on_device
from multigpu.engines.tensorflow.replicas.trace import trace

ROWS = 13
X, Y = random_rows(ROWS, 6), random_rows(ROWS, 1)
X[4] = 0  # padding: a Dense layer without a bias makes zeros of it


@tf.custom_gradient
def with_gradient_of_its_own(x):
    """Half of x, with a gradient that is not that of its result."""
    return 0.5 * x, tf.ones_like


def of_boxes(x):
    """An op that TensorFlow has no gradient for."""
    return tf.linalg.lu(tf.reshape(x[:, :4], (-1, 2, 2)) + tf.eye(2))[0]


WATCHED = {
    "cosine": lambda x: x / ops.norm(x, axis=-1, keepdims=True),
    "log": lambda x: ops.log(ops.relu(x)),
    "root": lambda x: ops.sqrt(ops.abs(x)),
    "custom gradient": with_gradient_of_its_own,
    "no gradient": of_boxes,
}


class Watched(layers.Layer):
    """Gives what is only watched, or keeps it in an attribute."""

    def __init__(self, watch, keeps):
        super().__init__()
        self.watch, self.keeps = watch, keeps

    def call(self, x):
        self.seen = self.watch(x)
        return x if self.keeps else self.seen


def build(watch, keeps=False, parts=False, kind=keras.Model):
    x = keras.Input((6,))
    with on_device("CPU:0") if parts else contextlib.nullcontext():
        hidden = layers.Dense(5, use_bias=False)(x)
    with on_device("CPU:1") if parts else contextlib.nullcontext():
        watched = Watched(watch, keeps)(hidden)
        output = layers.Dense(1)(watched if keeps else hidden)
    return kind(x, output if keeps else [output, watched])


class OwnStep(keras.Model):
    """Trains on its first output."""

    def train_step(self, data):
        x, (y, _) = data
        with tf.GradientTape() as tape:
            loss = ops.mean((self(x, training=True)[0] - y) ** 2)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


def compiled(**arguments):
    return lambda: {"optimizer": keras.optimizers.SGD(0.1), "loss": "mse", **arguments}


@pytest.mark.parametrize("watch", WATCHED.values(), ids=WATCHED)
@pytest.mark.parametrize("kind", [keras.Model, OwnStep])
def test_an_output_without_a_loss_has_no_gradient(watch, kind):
    y = [Y, np.zeros((ROWS, 5), "float32")]
    assert_same_training(
        lambda: build(watch, kind=kind), X, y, compile=compiled(loss=["mse", None]), only_fit=True, epochs=2
    )


@pytest.mark.parametrize("watch", WATCHED.values(), ids=WATCHED)
def test_an_attribute_that_nobody_reads_has_none(watch):
    assert_same_training(lambda: build(watch, keeps=True), X, Y, compile=compiled(), only_fit=True, epochs=2)


@pytest.mark.parametrize("how", [{"parts": True}, {}], ids=["in parts", "compiled by XLA"])
def test_nor_in_parts_or_where_xla_compiles(how):
    losses = compiled(loss=["mse", None], jit_compile=not how)
    y, gpus = [Y, np.zeros((ROWS, 5), "float32")], [["CPU:0", "CPU:1"], ["CPU:2", "CPU:3"]] if how else 3
    assert_same_training(
        lambda: build(WATCHED["cosine"], **how), X, y, compile=losses, gpus=gpus, only_fit=True, epochs=2
    )


@pytest.mark.parametrize("watch", WATCHED.values(), ids=WATCHED)
@pytest.mark.parametrize("within", [lambda step: step, tf.function], ids=["op by op", "in a function"])
def test_nor_in_a_loop_of_ones_own(watch, within):
    found = []
    for gpus in (None, 3):
        keras.utils.set_random_seed(0)
        model = build(watch)
        called = multi_gpu_model(model, gpus) if gpus else model

        @within
        def gradients(called=called, model=model):
            with tf.GradientTape() as tape:
                loss = ops.mean((called(X)[0] - Y) ** 2)
            return tape.gradient(loss, model.trainable_variables)

        found.append(gradients())
    for actual, expected in zip(*found, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_replicas_are_traced_once_where_gradients_of_zeros_are_zero(monkeypatch):
    """As of a softmax that a loss on its logits does not use; and once more otherwise, for all replicas."""
    traces = []
    monkeypatch.setattr(
        "multigpu.engines.tensorflow.replicas.replica_run.trace", lambda *given: traces.append(1) or trace(*given)
    )
    for watch, expected in ((lambda x: ops.softmax(ops.tanh(x) * 2), 0), (WATCHED["cosine"], 1)):
        model = multi_gpu_model(build(watch), gpus=3)
        model.compile("sgd", ["mse", None], jit_compile=False)
        model.fit(X, [Y, Y], verbose=0)
        assert len(traces) == expected


def found(build, value, within=tf.function):
    """The value, and the gradients by each variable, of a plain model and of its twin in parallel."""
    results = []
    for gpus in (None, 3):
        keras.utils.set_random_seed(1)
        model = build()
        model(X)
        called = multi_gpu_model(model, gpus) if gpus else model
        keras.utils.set_random_seed(2)

        @within
        def step(called=called, model=model):
            with tf.GradientTape() as tape:
                result = value(called)
            gradients = tape.gradient(result, model.trainable_variables)
            return [
                result,
                *(tf.constant(np.nan) if each is None else tf.convert_to_tensor(each) for each in gradients),
            ]

        results.append(step())
    return results


def assert_same_gradients(build, value, within=tf.function):
    for actual, expected in zip(*found(build, value, within), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


class Draws(keras.Model):
    """Draws from a generator that belongs to no layer, and gives what a loss may leave out."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(1)

    def call(self, x):
        y = self.dense(x * keras.random.normal(ops.shape(x)))
        return y, ops.exp(y)


def test_where_replicas_run_once_more_they_draw_the_same_noise():
    assert_same_gradients(Draws, lambda called: ops.mean(called(X, training=True)[0] ** 2))
    x = keras.Input((6,))
    assert_same_training(
        lambda: keras.Model(x, Draws()(x)), X, [Y, Y], compile=compiled(loss=["mse", None]), only_fit=True, epochs=2
    )


def test_so_they_do_for_gradients_of_gradients():
    def slope(called):
        x = tf.constant(X)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = ops.sum(called(x, training=True)[0] ** 2)
        return ops.mean(tape.gradient(y, x) ** 2)

    assert_same_gradients(Draws, slope)


class Ragged(keras.Model):
    """Gives rows, and a ragged tensor."""

    def __init__(self):
        super().__init__()
        self.rows, self.ragged = layers.Dense(1), layers.Dense(2)

    def call(self, x):
        rows = tf.cast(tf.shape(x)[0], tf.int64)
        return self.rows(x), tf.RaggedTensor.from_uniform_row_length(self.ragged(x), 1, nrows=rows)


class Rounds(keras.Model):
    """Gives rows behind a step, which has no gradient, and what is stepped."""

    def __init__(self):
        super().__init__()
        self.rows, self.mask = layers.Dense(2), layers.Dense(2)

    def call(self, x):
        mask = ops.sigmoid(self.mask(x))
        return self.rows(x) * tf.round(mask), mask


class OfAll(keras.Model):
    """Gives rows, and lookups in a large table that no row reaches."""

    def __init__(self):
        super().__init__()
        self.rows, self.table = layers.Dense(1), layers.Embedding(3000, 100)

    def call(self, x):
        return self.rows(x), self.table(tf.range(10))


@pytest.mark.parametrize(("build", "output"), [(Ragged, 0), (Rounds, 0), (OfAll, 0), (OfAll, 1)])
@pytest.mark.parametrize("within", [lambda step: step, tf.function], ids=["op by op", "in a function"])
def test_weights_that_lead_to_no_used_output_have_no_gradient(build, output, within):
    """And those that do have one."""
    assert_same_gradients(build, lambda called: ops.mean(called(X, training=True)[output] ** 2), within)


class AddsLoss(layers.Layer):
    """Adds a loss, or keeps a number, that is infinite."""

    def __init__(self, keeps):
        super().__init__()
        self.keeps = keeps

    def call(self, x):
        value = ops.log(ops.sum((0 * x) ** 2))
        if self.keeps:
            self.last = value
        else:
            self.add_loss(value)
        return x


@pytest.mark.parametrize("keeps", [False, True])
def test_an_added_loss_that_a_loop_leaves_out_has_none(keeps):
    def build():
        return keras.Sequential([keras.Input((6,)), layers.Dense(3), AddsLoss(keeps), layers.Dense(1)])

    assert_same_gradients(build, lambda called: ops.mean(called(X, training=True) ** 2), within=lambda step: step)


def test_with_noise_that_a_second_run_would_draw_anew_there_is_no_second_run():
    """The output is linear in the kernel: its slope belongs to the noise of its own forward pass."""

    class Draws(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(1, use_bias=False)

        def call(self, x):
            y = self.dense(x * tf.random.normal(tf.shape(x)))
            return y, ops.exp(y)

    model = Draws()
    model(X)
    parallel = multi_gpu_model(model, gpus=3)
    tf.random.set_seed(None)  # with one, both runs of the first step would begin alike

    @tf.function
    def difference():
        with tf.GradientTape() as tape:
            y = ops.sum(parallel(X, training=True)[0])
        return y - ops.sum(tape.gradient(y, model.dense.kernel.value) * model.dense.kernel)

    for _ in range(3):
        assert abs(difference()) < 1e-4


HEADS = {
    "gelu": lambda x: layers.Dense(2, "gelu")(x),
    "silu": lambda x: layers.Dense(2, "silu")(x),
    "softmax": lambda x: layers.Dense(2, "softmax")(x),
    "normalized": lambda x: layers.LayerNormalization()(layers.BatchNormalization()(layers.Dense(2)(x))),
    "recurrent": lambda x: layers.GRU(3)(layers.Reshape((4, 2))(x)),
    "regularized": lambda x: layers.Dense(2, activity_regularizer="l2")(x),
    "of convolutions": lambda x: layers.MaxPool1D(2)(layers.Conv1D(3, 2)(layers.Reshape((4, 2))(x))),
}


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_direct_calls_stay_functions_where_gradients_of_zeros_are_zero(head):
    x = keras.Input((6,))
    hidden = layers.Dense(8, "relu")(x)
    parallel = multi_gpu_model(keras.Model(x, [layers.Dense(1)(hidden), head(hidden)]), gpus=3)
    with tf.GradientTape():
        parallel(X, training=True)
        parallel(X, training=True)
    assert not any(shown.is_cut for shown in parallel._spread._as_function._shown.values())
