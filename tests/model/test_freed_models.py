"""A parallel model goes when nobody holds it any more, and with it what TensorFlow has kept of it."""

import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import some
from equality import dense_model
from tensorflow.python.framework import ops
from training_cases import X, Y, compiled, layers_that_add_losses, masked_sequences
from trainings import GROUPED, SLICED, TRAININGS

import multigpu
from multigpu.engines.tensorflow.private_api.gradients import custom_gradient

KINDS = {**TRAININGS, **SLICED}


def registered():
    return {name for name in ops.gradient_registry.list() if name.startswith("CustomGradient")}


def used(build, x, y, compile, epochs=1, gpus=2, only_fit=False, batch_size=8, **fit):
    """A weak reference to a template that was trained, and evaluated unless it is `only_fit`, on two devices."""
    template = build()
    parallel = multigpu.multi_gpu_model(template, gpus=gpus)
    parallel.compile(**compile())
    parallel.fit(x, y, epochs=epochs, batch_size=batch_size, verbose=0, **fit)
    if not only_fit:
        parallel.evaluate(x, y, batch_size=8, verbose=0)
        parallel.predict(x, batch_size=8, verbose=0)
    parallel.predict_on_batch(x)
    return weakref.ref(template)


def assert_freed(template, before=None):
    keras.utils.clear_session(free_memory=False)  # lets go of names, not of models
    gc.collect()
    assert template() is None
    assert before is None or registered() <= before


OF_EACH_WAY = [
    *("clipped, with a large table", "synchronized statistics", "several steps in one", "eagerly"),
    *("state of layers", "losses behind masks", "functions that give one number", "verbs of the class's own"),
]


@pytest.mark.parametrize("kind", some(KINDS, OF_EACH_WAY))
def test_a_model_that_was_trained_is_freed(kind):
    before = registered()
    assert_freed(used(**KINDS[kind]), before)


def test_a_model_in_groups_is_freed():
    before = registered()
    assert_freed(used(**GROUPED["a model in parts"], gpus=[["CPU:1", "CPU:2"]] * 2), before)


def test_a_model_that_xla_has_compiled_is_freed():
    before = registered()
    assert_freed(used(dense_model, X[:24], Y[:24], compiled(jit_compile=True)), before)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_model_is_freed_though_tensorflow_keeps_the_gradient_of_its_activation(jit_compile):
    def build():
        return keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, "silu"), keras.layers.Dense(2)])

    assert_freed(used(build, X[:24], Y[:24], compiled(jit_compile=jit_compile)))


def test_a_model_that_was_trained_in_a_loop_of_ones_own_is_freed():
    before = registered()

    def trained():
        template = layers_that_add_losses()
        parallel = multigpu.multi_gpu_model(template, gpus=2)

        @tf.function
        def gradients(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((parallel(x, training=True) - y) ** 2)
            return tape.gradient(loss, template.trainable_variables)

        assert all(np.any(gradient) for gradient in gradients(X, Y))
        return weakref.ref(template)

    assert_freed(trained(), before)


def test_a_function_of_a_verb_can_still_be_differentiated():
    """A trace outlives the verb that made it, whose tapes are gone: the replica runs anew."""
    template = masked_sequences()
    parallel = multigpu.multi_gpu_model(template, gpus=2)
    forward = tf.function(lambda x: parallel(x, training=True))

    class Forward(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            forward(tf.ones((8, 6), "int32"))

    parallel.compile("sgd", "mse")
    x = np.ones((8, 6), "int32")
    parallel.fit(x, np.zeros((8, 6, 2)), verbose=0, callbacks=[Forward()])

    def gradients_of(call):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(call(x) ** 2)
        return tape.gradient(loss, template.trainable_variables)

    assert forward.experimental_get_tracing_count() == 1
    for actual, expected in zip(gradients_of(forward), gradients_of(tf.function(template)), strict=True):
        np.testing.assert_allclose(tf.convert_to_tensor(actual), tf.convert_to_tensor(expected), rtol=1e-5, atol=1e-7)
    assert forward.experimental_get_tracing_count() == 1


def test_what_tensorflow_keeps_of_a_gradient_goes_with_its_graph():
    """Tells when TensorFlow changes where it keeps gradients."""
    gc.collect()  # those of other tests
    before = registered()

    @custom_gradient
    def doubled(x):
        return 2.0 * x, lambda upstream: 5.0 * upstream

    function = tf.function(lambda x: doubled(x))
    with tf.GradientTape() as tape:
        x = tf.constant(1.0)
        tape.watch(x)
        y = function(x)
    assert float(tape.gradient(y, x)) == 5.0
    assert len(registered() - before) == 1
    del function, tape, y
    gc.collect()
    assert registered() == before
