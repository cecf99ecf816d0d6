"""Functions that were traced before weights moved go on with the weights, and never with what was there before."""

import gc

import keras
import numpy as np
import pytest
import tensorflow as tf
from equality import assert_same, assert_same_weights, random_ids, random_rows
from keras import layers

from multigpu import bring_home, multi_gpu_model
from multigpu.engines.tensorflow.weights.place_locate import locate

X, Y = random_ids(8, 6, below=9), random_rows(8, 3)


def build():
    inputs = keras.Input((6,), dtype="int32")
    x = layers.GlobalAveragePooling1D()(layers.Embedding(9, 4, mask_zero=True)(inputs))
    return keras.Model(inputs, layers.Dense(3)(layers.BatchNormalization(synchronized=True)(x)))


def own_step(model, optimizer):
    """A training step as many write it, with an optimizer that no model knows."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(X, training=True) - Y) ** 2)
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return loss


def test_own_steps_traced_before_weights_move_train_them_wherever_they_go():
    one, template = build(), build()
    template.set_weights(one.get_weights())
    optimizers = [keras.optimizers.SGD(0.1, momentum=0.9) for _ in range(2)]
    steps = [tf.function(lambda: own_step(template, optimizers[0]))]

    def spread():
        parallel = multi_gpu_model(template, gpus=3)
        steps.append(tf.function(lambda: own_step(parallel, optimizers[0])))

    moves = [
        lambda: None,
        spread,
        lambda: multi_gpu_model(template, gpus=["CPU:5", "CPU:4"]),
        lambda: bring_home(template, "CPU:2"),
    ]
    for move in moves:
        move()
        for step in steps:
            assert_same([step(), step()], [own_step(one, optimizers[1]) for _ in range(2)])
        assert_same_weights(template, one)


@pytest.mark.quick
def test_functions_within_functions_and_their_gradients_follow_the_weights():
    model = keras.Sequential([keras.Input((3,)), layers.Dense(3, activation="tanh")])
    held, x = model.layers[0].kernel.value, tf.ones((4, 3))
    loop = tf.function(lambda x: tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, model(y)), [0, x])[1])
    branch = tf.function(lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: loop(x), lambda: x))
    concrete = tf.function(model).get_concrete_function(tf.TensorSpec((None, 3)))

    def results():
        with tf.GradientTape() as tape:
            once, thrice = concrete(x), branch(x)
        return once, thrice, *tape.gradient([once, thrice], [weight.value for weight in model.weights])

    def expected():
        with tf.GradientTape() as tape:
            once = model(x)
            thrice = model(model(once))
        return once, thrice, *tape.gradient([once, thrice], [weight.value for weight in model.weights])

    results()
    multi_gpu_model(model, gpus=["CPU:5", "CPU:6"])
    assert "CPU:0" not in {locate(weight) for weight in model.weights}
    model.set_weights([0.5 * np.ones(weight.shape) for weight in model.weights])
    assert_same(results(), expected())
    assert_same(held, 0.5 * np.ones((3, 3)))


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_what_cannot_follow_fails_and_says_so(dtype):
    model = keras.Sequential([keras.Input((2,), dtype=dtype), Offset(dtype=dtype)])
    data = tf.data.Dataset.from_tensor_slices(np.ones((4, 2), dtype)).batch(4).map(lambda x: model.layers[0].add(x))
    next(iter(data))
    with pytest.warns(UserWarning, match="Received: one that reads '.*offset:0'.*make it again now"):
        bring_home(model, "CPU:1")
    with pytest.raises(tf.errors.InvalidArgumentError):
        next(iter(data))


class Offset(layers.Layer):
    """Keeps a vector, of any type."""

    def build(self, shape):
        self.offset = self.add_weight(shape=shape[1:], dtype=self.dtype, trainable=False, name="offset")

    def add(self, x):
        return x ^ self.offset.value if x.dtype == tf.bool else x + self.offset.value

    def call(self, x):
        return self.add(x)


@pytest.mark.parametrize("is_on", [True, False])
def test_no_garbage_is_collected_while_users_of_a_weight_are_searched(monkeypatch, is_on):
    """With a collection, the search ended the process, for EfficientNetB5 under pytest."""
    model, search, seen = keras.Sequential([keras.Input((3,)), layers.Dense(3)]), gc.get_referrers, []
    monkeypatch.setattr(gc, "get_referrers", lambda *handles: seen.append(gc.isenabled()) or search(*handles))
    try:
        if not is_on:
            gc.disable()
        multi_gpu_model(model, gpus=["CPU:5", "CPU:4"])
        assert seen == [False]
        assert gc.isenabled() == is_on
    finally:
        gc.enable()
