"""What is no variable of Keras: trained as on one device, and refused by name where replicas would change it."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from multigpu import multi_gpu_model, on_device

X = np.random.default_rng(0).normal(size=(7, 4)).astype("float32")
ONE_CALL = {"rtol": 1e-5, "atol": 1e-6}


class MovingMean(layers.Layer):
    def __init__(self):
        super().__init__(name="one")
        self.held = tf.Variable(tf.zeros(4), trainable=False)

    def call(self, x):
        self.held.assign(0.9 * self.held + 0.1 * tf.reduce_mean(x, 0))
        return x - self.held


class CountsInABranch(layers.Layer):
    def __init__(self):
        super().__init__(name="one")
        self.held = {"calls": tf.Variable(0, trainable=False)}

    def call(self, x):
        return x + tf.cond(tf.size(x) > 0, lambda: tf.cast(self.held["calls"].assign_add(1), x.dtype) * 0, lambda: 0.0)


class CountsInAFunction(layers.Layer):
    def __init__(self):
        super().__init__(name="one")
        self.held = [tf.Variable(0, trainable=False)]

    @tf.function
    def count(self):
        return self.held[0].assign_add(1)

    def call(self, x):
        self.count()
        return x * 2


class CountsInPython(layers.Layer):
    """Cannot be traced."""

    def __init__(self):
        super().__init__(name="one")
        self.held = (tf.Variable(0.0, trainable=False),)

    def call(self, x):
        if not tf.executing_eagerly():
            raise TypeError("numbers alone")
        self.held[0].assign_add(float(tf.reduce_sum(x)))
        return x * 2

    def compute_output_shape(self, shape):
        return shape


class Remembers(layers.Layer):
    def __init__(self):
        super().__init__(name="one")
        self.held = tf.queue.FIFOQueue(90, ["float32"], [[4]])

    def call(self, x):
        self.held.enqueue_many([x])
        return x * 2


class CountsIds(layers.Layer):
    def __init__(self):
        super().__init__(name="one")
        self.held = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0)

    def call(self, x):
        ids = tf.cast(x[:, 0], tf.int64)
        self.held.insert(ids, self.held.lookup(ids) + 1)
        return x * 2


class Draws(layers.Layer):
    def __init__(self):
        super().__init__(name="one")
        self.held = tf.random.Generator.from_seed(1)

    def call(self, x):
        return x + self.held.normal(tf.shape(x))


def model(layer):
    keras.utils.set_random_seed(0)
    template = keras.Sequential([keras.Input((4,)), layer, layers.Dense(2)])
    template.compile(keras.optimizers.SGD(0.1), "mse")
    return template


KINDS = [MovingMean, CountsInABranch, CountsInAFunction, Remembers, CountsIds, Draws]
WAYS = [*((kind, eagerly) for kind in KINDS for eagerly in (False, True)), (CountsInPython, True)]


@pytest.mark.parametrize(("kind", "run_eagerly"), WAYS)
def test_what_replicas_would_change_is_refused_by_name_before_they_do(kind, run_eagerly):
    template = model(kind())
    parallel = multi_gpu_model(template, gpus=3)
    parallel.run_eagerly = run_eagerly
    before = template.get_weights()
    with pytest.raises(Exception, match=r"'held' of layer 'one'.*add_weight"):
        parallel.train_on_batch(X, X[:, :2])
    for now, then in zip(template.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    held = template.layers[0].held
    if kind is MovingMean:
        np.testing.assert_array_equal(held, np.zeros(4))
    if kind is CountsInPython:
        assert float(held[0]) == 0
    if kind is Remembers:
        assert held.size() == 0


def test_a_layer_on_one_device_changes_what_it_does_there():
    one, other = model(MovingMean()), MovingMean()
    inputs = keras.Input((4,))
    with on_device("CPU:1"):
        placed = other(inputs)
    placed = keras.Model(inputs, placed)
    for each in (one, placed):
        each(X)
    np.testing.assert_allclose(other.held, one.layers[0].held, **ONE_CALL)


def scaled():
    """A layer that scales by a variable of TensorFlow's, and takes rows of another."""

    class Scales(layers.Layer):
        def __init__(self):
            super().__init__()
            self.scale, self.table = tf.Variable(np.linspace(0.5, 2, 4, dtype="float32")), tf.Variable(tf.ones([9, 4]))

        def call(self, x):
            return x * self.scale + tf.gather(self.table, tf.cast(tf.abs(x[:, 0]) * 3, tf.int32))

    layer = Scales()
    return layer, [layer.scale, layer.table]


def of_a_lambda():
    """A Lambda with a variable of Keras that no model has, and one of TensorFlow."""
    offset, scale = keras.Variable(np.ones(4), dtype="float32"), tf.Variable(2.0)
    return layers.Lambda(lambda x: (x + offset) * scale), [offset.value, scale]


@pytest.mark.parametrize("way", ["in a function", "op by op", "run eagerly"])
@pytest.mark.parametrize("make", [scaled, of_a_lambda])
def test_a_variable_that_keras_does_not_know_has_the_gradient_of_one_device(make, way):
    def gradients(gpus):
        layer, variables = make()
        template = model(layer)
        spread = multi_gpu_model(template, gpus) if gpus else template
        spread.run_eagerly = way == "run eagerly"

        def step(x):
            with tf.GradientTape() as outer:
                with tf.GradientTape() as inner:
                    inner.watch(x)
                    y = spread(x, training=True)
                slope = inner.gradient(y, x)
                loss = tf.reduce_sum(y**2) + tf.reduce_sum(slope**2)
            found = outer.gradient(loss, [*variables, *template.trainable_variables])
            return [tf.convert_to_tensor(gradient) for gradient in found]

        return (tf.function(step, autograph=False) if way == "in a function" else step)(tf.constant(X))

    for given, expected in zip(gradients(3), gradients(None), strict=True):
        np.testing.assert_allclose(given, expected, **ONE_CALL)


@pytest.mark.parametrize("synchronized", [False, True])
def test_so_it_has_in_groups(synchronized):
    def gradients(groups):
        keras.utils.set_random_seed(0)
        layer, variables = scaled()
        inputs = keras.Input((4,))
        with on_device("GPU:0") if groups else contextlib.nullcontext():
            hidden = layers.Dense(4)(inputs)
        with on_device("GPU:1") if groups else contextlib.nullcontext():
            hidden = layers.BatchNormalization(synchronized=synchronized, trainable=synchronized)(layer(hidden))
        template = keras.Model(inputs, layers.Dense(2)(hidden))
        spread = multi_gpu_model(template, gpus=groups) if groups else template
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(spread(tf.constant(X), training=True) ** 2)
        found = tape.gradient(loss, [*variables, *template.trainable_variables])
        return [tf.convert_to_tensor(gradient) for gradient in found]

    for given, expected in zip(gradients([["CPU:1", "CPU:2"], ["CPU:3", "CPU:4"]]), gradients(None), strict=True):
        np.testing.assert_allclose(given, expected, rtol=1e-4, atol=1e-4)


def test_a_function_with_a_trace_of_its_own_reads_and_trains_the_weights_of_now():
    class Calls(layers.Layer):
        def build(self, shape):
            self.dense = layers.Dense(3)
            self.dense.build(shape)
            spec = tf.TensorSpec([None, 4])
            self.trace = tf.function(lambda x: self.dense(x)).get_concrete_function(spec)

        def call(self, x):
            return self.trace(x)

    def numbers(gpus):
        template = model(Calls())
        template.compile(keras.optimizers.Adam(0.1), "mse")
        spread = multi_gpu_model(template, gpus) if gpus else template
        template.set_weights([weight + 0.5 for weight in template.get_weights()])
        losses = [spread.train_on_batch(X, X[:, :2]) for _ in range(3)]
        return [*losses, spread.predict(X, verbose=0), *template.get_weights()]

    for given, expected in zip(numbers(3), numbers(None), strict=True):
        np.testing.assert_allclose(given, expected, rtol=1e-4, atol=1e-5)


def optimized_input(model):
    """A variable as the input, which a loop optimizes, as DeepDream does."""
    image, losses = tf.Variable(X), []
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(image) ** 2)
        image.assign_sub(tape.gradient(loss, image))
        losses.append(loss)
    return [*losses, image, model.predict_on_batch(image)]


@pytest.mark.parametrize("eagerly", [False, True])
def test_a_variable_may_be_the_input_and_has_the_gradient_of_one_device(eagerly):
    template = keras.Sequential([keras.Input((4,)), layers.Dense(8, "tanh"), layers.Dense(1)])
    parallel = multi_gpu_model(template, gpus=3)
    parallel.compile(run_eagerly=eagerly)
    for one, several in zip(optimized_input(template), optimized_input(parallel), strict=True):
        np.testing.assert_allclose(several, one, **ONE_CALL)
