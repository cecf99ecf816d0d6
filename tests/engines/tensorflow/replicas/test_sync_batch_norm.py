"""BatchNormalization(synchronized=True) has the statistics of the global batch, so such networks are exact too."""

import concurrent.futures

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import soak
from equality import assert_same_numbers, assert_same_training, random_ids, train

import multigpu

RNG = np.random.default_rng(0)


def images():
    inputs = keras.Input((6, 6, 2))
    x = keras.layers.Conv2D(4, 3)(inputs)
    x = keras.layers.BatchNormalization(synchronized=True)(x)
    x = keras.layers.Conv2D(3, 2)(x)
    x = keras.layers.BatchNormalization(synchronized=True, axis=1, scale=False)(x)
    return keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Flatten()(x)))


def masked_sequences():
    inputs = keras.Input((6,), dtype="int32")
    x = keras.layers.Embedding(9, 4, mask_zero=True)(inputs)
    x = keras.layers.BatchNormalization(synchronized=True)(x)
    return keras.Model(inputs, keras.layers.Dense(2)(keras.layers.GlobalAveragePooling1D()(x)))


def one_layer_called_twice():
    left, right = keras.Input((3,)), keras.Input((3,))
    norm = keras.layers.BatchNormalization(synchronized=True)
    return keras.Model([left, right], keras.layers.Dense(2)(keras.layers.Concatenate()([norm(left), norm(right)])))


class Checks(keras.layers.Layer):
    """Has a side effect, and so has its gradient: `tf.function` has such calls wait for each other."""

    def call(self, x):
        return tf.debugging.check_numerics(x, "of a row")


class LooksUp(keras.layers.Layer):
    """The same, and takes a resource which is no variable."""

    def build(self, shape):
        keys = tf.lookup.KeyValueTensorInitializer(tf.range(9), tf.range(9, dtype="float32"))
        self.table = tf.lookup.StaticHashTable(keys, -1.0)
        self.built = True

    def call(self, x):
        tf.debugging.assert_less(tf.reduce_max(x), 1e9)
        return x + self.table.lookup(tf.cast(4 + x, "int32"))


def with_effects(layer):
    inputs = keras.Input((3,))
    x = layer()(keras.layers.BatchNormalization(synchronized=True)(inputs))
    return keras.Model(inputs, keras.layers.Dense(2)(keras.layers.BatchNormalization(synchronized=True)(x)))


INPUTS = {
    images: RNG.normal(size=(27, 6, 6, 2)).astype("float32"),
    one_layer_called_twice: [RNG.normal(size=(27, 3)).astype("float32") for _ in range(2)],
}
TARGETS = RNG.normal(size=(27, 2)).astype("float32")


def small_steps():
    return {"optimizer": keras.optimizers.SGD(0.05), "loss": "mse"}


def test_masked_sequences_with_synchronized_statistics_train_as_on_one_device():
    ids = random_ids(27, 6, below=9)
    assert_same_training(masked_sequences, ids, TARGETS, compile=small_steps, batch_size=13, only_fit=True)


@pytest.mark.parametrize(("build", "gpus"), [(one_layer_called_twice, 3), (images, 3), soak(images, 8)])
def test_networks_with_synchronized_statistics_train_as_on_one_device(build, gpus):
    # 27 rows in batches of 13: the last batch is one row, so that all replicas but one stand by
    ways = {"compile": small_steps, "gpus": gpus, "batch_size": 13, "epochs": 2, "only_fit": build is images}
    assert_same_training(build, INPUTS[build], TARGETS, **ways)


class RowByRow(keras.layers.Layer):
    """Makes lists of tensors whose ops need the value of a constant, that of an unknown shape."""

    def call(self, x):
        rows = tf.map_fn(tf.tanh, x)
        array = tf.TensorArray(x.dtype, 2, infer_shape=False).write(0, rows).write(1, x)
        return tf.reshape(array.concat(), [2, -1, *x.shape[1:]])[0]

    def compute_output_shape(self, shape):
        return shape


def row_by_row():
    inputs = keras.Input((3,))
    x = keras.layers.BatchNormalization(synchronized=True)(inputs)
    return keras.Model(inputs, keras.layers.Dense(2)(RowByRow()(x)))


def test_lists_of_tensors_behind_synchronized_statistics_train_as_on_one_device():
    assert_same_training(row_by_row, RNG.normal(size=(27, 3)), TARGETS, compile=small_steps, batch_size=13)


def normalized_sequences(synchronized):
    """Both ways in which Keras takes statistics: behind a mask, and with the channels in the middle."""
    masked, whole = keras.Input((6, 4)), keras.Input((6, 4))
    x = keras.layers.BatchNormalization(synchronized=synchronized)(keras.layers.Masking()(masked))
    y = keras.layers.BatchNormalization(synchronized=synchronized, axis=1)(whole)
    pool = keras.layers.GlobalAveragePooling1D()
    return keras.Model([masked, whole], keras.layers.Dense(2)(keras.layers.Concatenate()([pool(x), pool(y)])))


def test_a_large_mean_takes_nothing_of_the_variance():
    x = [1000 + RNG.normal(size=(27, 6, 4)).astype("float32") for _ in range(2)]
    x[0][::2, 4:] = 0
    ways = {"compile": small_steps, "batch_size": 13, "only_fit": True}
    # a layer that is to be synchronized squares before it subtracts on one device of Keras, too
    _, one_device = train(lambda: normalized_sequences(False), x, TARGETS, gpus=None, **ways)
    for gpus in (3, 4):  # a round of three, two of two
        _, parallel = train(lambda: normalized_sequences(True), x, TARGETS, gpus=gpus, **ways)
        # beside 1000, float32 has three digits less after the point
        assert_same_numbers(parallel, one_device, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("layer", [Checks, LooksUp])
def test_replicas_with_side_effects_do_not_wait_for_each_other(layer):
    model = multigpu.multi_gpu_model(with_effects(layer), gpus=3)

    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def gradients(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x, training=True))
        return tape.gradient(loss, model.trainable_variables)

    ops = gradients.get_concrete_function().graph.get_operations()
    calls = [op for op in ops if op.type == "StatefulPartitionedCall"]
    assert len(calls) >= 3
    assert not any(op.control_inputs for op in calls)  # or else what follows would wait for ever
    x = INPUTS[one_layer_called_twice][0]
    assert_same_training(lambda: with_effects(layer), x, TARGETS, compile=small_steps, batch_size=13, only_fit=True)


def of_ids():
    inputs = keras.Input((5,), dtype="int32")
    x = keras.layers.BatchNormalization(synchronized=True)(keras.layers.Embedding(9, 3)(inputs))
    return keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Flatten()(x)))


def test_a_step_that_fails_leaves_no_trace_in_this_model_and_in_others_nor_does_clear_session():
    ids = RNG.integers(0, 9, (27, 5))
    parallel = multigpu.multi_gpu_model(of_ids(), gpus=3)
    parallel.compile("sgd", "mse")
    for _ in range(2):
        with pytest.raises(tf.errors.InvalidArgumentError, match="indices"):
            parallel.train_on_batch(np.full((27, 5), 77), TARGETS)
        assert np.isfinite(parallel.train_on_batch(ids, TARGETS))
    with pytest.raises(tf.errors.InvalidArgumentError, match="indices"):
        parallel.train_on_batch(np.full((27, 5), 77), TARGETS)
    keras.utils.clear_session()
    assert np.isfinite(parallel.train_on_batch(ids, TARGETS))
    assert_same_training(of_ids, ids, TARGETS, compile=small_steps, batch_size=13, only_fit=True)


def test_several_threads_use_one_model_at_the_same_time():
    parallel = multigpu.multi_gpu_model(images(), gpus=3)
    call = tf.function(lambda x: parallel(x, training=True), autograph=False)
    batches = [INPUTS[images] + number for number in range(4)]
    alone = [call(x) for x in batches]
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        together = list(threads.map(call, batches * 5))
    np.testing.assert_allclose(together, alone * 5, rtol=1e-5, atol=1e-6)


def penalized(model, inputs):
    """Gradients of a loss with the length of its gradient by the inputs, as critics of images are held to."""
    inputs = [tf.constant(x) for x in inputs]
    with tf.GradientTape() as outer:
        outer.watch(inputs)
        with tf.GradientTape() as inner:
            inner.watch(inputs)
            y = model(inputs, training=True)
            loss = tf.reduce_mean(y**3)
        of_inputs = inner.gradient(loss, inputs)
        penalty = sum(tf.reduce_mean((tf.norm(x, axis=-1) - 1) ** 2) for x in of_inputs)
        loss += 10 * penalty
    return [penalty, *outer.gradient(loss, [*model.trainable_variables, *inputs])]


@pytest.mark.parametrize("graph", [True, False])
def test_gradients_of_gradients_are_those_of_one_device(graph):
    keras.config.set_floatx("float64")
    try:
        inputs = [RNG.normal(size=(7, 6, 4)) for _ in range(2)]
        inputs[0][::2, 4:] = 0
        one, template = (normalized_sequences(True) for _ in range(2))
        template.set_weights(one.get_weights())
        parallel = multigpu.multi_gpu_model(template, gpus=3)
        function = tf.function if graph else lambda work: work
        expected, given = (
            function(work)() for work in (lambda: penalized(one, inputs), lambda: penalized(parallel, inputs))
        )
    finally:
        keras.config.set_floatx("float32")
    for of_slices, whole in zip(given, expected, strict=True):
        np.testing.assert_allclose(of_slices, whole, rtol=1e-8, atol=1e-10)


def test_a_gradient_written_in_python_is_refused_where_its_gradient_is_taken():
    inputs = keras.Input((3,))
    x = keras.layers.BatchNormalization(synchronized=True)(keras.layers.Dense(3, activation="silu")(inputs))
    parallel = multigpu.multi_gpu_model(keras.Model([inputs], keras.layers.Dense(1)(x)), gpus=2)
    x = tf.constant(RNG.normal(size=(4, 3)), tf.float32)
    with pytest.raises(ValueError, match=r"Expected ops with TensorFlow's own gradients.* as in silu\. Use another"):
        penalized(parallel, [x])


def test_run_eagerly_is_refused_because_it_cannot_sum_over_replicas():
    parallel = multigpu.multi_gpu_model(images(), gpus=2)
    parallel.compile(optimizer="sgd", loss="mse", run_eagerly=True)
    with pytest.raises(ValueError, match=r"Expected `run_eagerly=False` .* Received: run_eagerly=True and the layer"):
        parallel.fit(INPUTS[images], TARGETS, verbose=0)


def test_python_with_a_gradient_is_refused_because_replicas_would_not_run_the_same_trace():
    class CallsPython(keras.layers.Layer):
        def call(self, x):
            return tf.ensure_shape(tf.py_function(lambda rows: 2 * rows, [x], "float32"), x.shape)

    parallel = multigpu.multi_gpu_model(with_effects(CallsPython), gpus=2)
    parallel.compile("sgd", "mse")
    with pytest.raises(ValueError, match=r"Received: a `tf.py_function` and the layer 'batch_normalization\S*'\. Use"):
        parallel.fit(INPUTS[one_layer_called_twice][0], TARGETS, verbose=0)


def test_keras_still_takes_statistics_where_they_are_replaced():
    layer = keras.layers.BatchNormalization(synchronized=True)
    layer.build((None, 3))
    seen = []
    layer.__dict__["_moments"] = lambda x, mask: seen.append(mask) or keras.ops.moments(x, [0])
    layer(np.ones((2, 3), "float32"), training=True)
    assert seen == [None]
