"""Functions, branches and loops in a template do what they do on one device, and what they assign leaves them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from equality import assert_same, assert_same_training, assert_same_weights, make_twins, mean_squared, random_rows
from keras import ops

import multigpu

X, Y = random_rows(18, 4), random_rows(18, 2, seed=1)


class Counts(keras.layers.Layer):
    """A layer with state of its own and a way to run what changes it."""

    def __init__(self, run, **kwargs):
        super().__init__(**kwargs)
        self.run = run
        self.n = self.add_weight(shape=(), initializer="zeros", trainable=False)
        self.noise = keras.layers.GaussianNoise(0.5, seed=1)
        self.norm = keras.layers.BatchNormalization(center=False, scale=False)

    def build(self, shape):
        self.norm.build(shape)

    def compute_output_shape(self, shape):
        return shape

    def call(self, x, training=None):
        return self.run(self, x, training)

    def step(self, x, training=None):
        """Changes all of its state, and the values by what it was."""
        self.n.assign(self.n + 1.0)
        self.noise(x, training=training)
        self.norm(x, training=training)
        return x * (1.0 + 0.1 * self.n)


def autograph(layer, x, training):
    if tf.shape(x)[0] > 0:  # a branch, by AutoGraph
        for _ in tf.range(2):
            x = layer.step(x, training)
    return x


def nested(layer, x, training):
    def body(i, h):
        return i + 1, ops.cond(i < 2, lambda: layer.step(h, training), lambda: h)

    return tf.while_loop(lambda i, h: i < 4, body, (0, x))[1]


def until_counted(layer, x, training):
    return ops.while_loop(lambda h: layer.n % 3.0 < 2.0, lambda h: (layer.step(h, training),), (x,))[0]


WAYS = {
    "tf.cond": lambda s, x, t: tf.cond(tf.shape(x)[0] > 0, lambda: s.step(x, t), lambda: x * 1.0),
    "the other branch": lambda s, x, t: tf.cond(tf.shape(x)[0] < 0, lambda: s.step(x, t), lambda: x * 1.0),
    "tf.switch_case": lambda s, x, t: tf.switch_case(tf.constant(1), [lambda: x, lambda: s.step(x, t)]),
    "tf.case": lambda s, x, t: tf.case([(tf.shape(x)[0] > 0, lambda: s.step(x, t))], default=lambda: x),
    "fori_loop": lambda s, x, t: ops.fori_loop(0, 3, lambda _, h: s.step(h, t), x),
    "scan": lambda s, x, t: ops.scan(lambda h, _: (s.step(h, t), None), x, length=3)[0],
    "map_fn": lambda s, x, t: x + 0.0 * tf.map_fn(lambda i: tf.reduce_mean(s.step(x, t)), tf.ones(3))[0],
    "branch in a loop": nested,
    "loop that its state ends": until_counted,
    "tf.function": lambda s, x, t: tf.function(s.step)(x, t),
    "AutoGraph": lambda s, x, t: tf.function(autograph)(s, x, t),
}


@pytest.mark.parametrize("ways", [[*WAYS][::2], [*WAYS][1::2]], ids=["even", "odd"])
def test_state_that_is_assigned_in_branches_loops_and_functions_is_that_of_one_device(ways):
    def build():
        x = inputs = keras.Input((4,))
        for way in ways:
            x = Counts(WAYS[way])(x)
        return keras.Model(inputs, keras.layers.Dense(2)(x))

    # 16 rows on 2 devices, of slices that are alike in what BatchNormalization says of its batch: moving means
    assert_same_training(
        build, np.tile(X[:2], (8, 1)), np.tile(Y[:2], (8, 1)), compile=mean_squared, epochs=2, gpus=2, only_fit=True
    )


class Helper(keras.layers.Layer):
    """A layer whose functions are kept with their traces."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(4, activation="tanh")
        self.compiled = tf.function(lambda x: self.dense(x), jit_compile=True)

    def build(self, shape):
        self.dense.build(shape)

    @tf.function(input_signature=[tf.TensorSpec((None, 4)), tf.TensorSpec((), tf.int32)])
    def with_signature(self, x, times):
        for _ in tf.range(times):
            x = self.dense(x)
        return x

    @tf.function
    def call(self, x):
        return self.compiled(self.with_signature(x, 2)) + self.with_signature(x, times=1)

    def compute_output_shape(self, shape):
        return shape


@pytest.mark.parametrize("used_before", [False, True])
def test_functions_that_are_kept_train_and_predict_as_on_one_device_in_every_verb(used_before):
    def build():
        model = keras.Sequential([keras.Input((4,)), Helper(), keras.layers.Dense(2)])
        if used_before:
            model(X)
        model.compile(**mean_squared(), jit_compile=False)
        return model

    one, parallel = make_twins(build, cpu_relocation=True)  # which moves no weight of a function's trace
    for _ in range(2):
        for model in (one, parallel):
            model.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
        assert_same_weights(parallel.template, one)
        assert_same(parallel.evaluate(X, Y, verbose=0), one.evaluate(X, Y, verbose=0))
        assert_same(parallel.predict(X, verbose=0), one.predict(X, verbose=0))
        assert_same(parallel(X[:5]), one(X[:5]))
    assert_same(parallel.template(X), one(X))
    assert_same(parallel.template.predict(X, verbose=0), one.predict(X, verbose=0))


def test_state_in_a_function_that_xla_compiles_by_itself_is_refused_by_name():
    layer = Counts(lambda s, x, t: tf.function(lambda x: s.step(x, t), jit_compile=True)(x), name="counts")
    parallel = multigpu.multi_gpu_model(keras.Sequential([keras.Input((4,)), layer]), gpus=2)
    with pytest.raises(
        ValueError, match=r"Received: '<lambda>', in which 'counts/\w+' is assigned. Leave `jit_compile`"
    ):
        parallel(X)
