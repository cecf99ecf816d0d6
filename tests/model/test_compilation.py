"""What is in force is what was compiled last, on whichever model of the weights; and what training was traced for."""

import keras
import pytest
import tensorflow as tf
from equality import assert_same, dense_model, random_rows

from multigpu import bring_home, multi_gpu_model

X, Y = random_rows(7, 3), random_rows(7, 2, seed=1)


def make(spread):
    """A model and two that train it: itself, or parallel ones."""
    keras.utils.set_random_seed(0)
    model = dense_model()
    return (model, *(multi_gpu_model(model, gpus=gpus) if spread else model for gpus in (3, ["CPU:6", "CPU:7"])))


@pytest.mark.quick
def test_what_was_compiled_last_is_in_force_on_whichever_model():
    def numbers(spread):
        template, first, second = make(spread)
        template.layers[0].trainable = False
        first.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
        yield first.train_on_batch(X, Y, return_dict=True)
        template.layers[0].trainable = True  # fine-tuning
        template.compile(keras.optimizers.Adam(0.01), "mae", metrics=["mse"], run_eagerly=not spread)
        yield first.train_on_batch(X, Y, return_dict=True)
        yield second.evaluate(X, Y, return_dict=True, verbose=0)
        second.compile(keras.optimizers.SGD(0.3), "huber", run_eagerly=not spread)
        yield first.train_on_batch(X, Y, return_dict=True)
        yield second.train_on_batch(X, Y, return_dict=True)
        yield int(template.optimizer.iterations), first.optimizer is second.optimizer, template.get_weights()

    assert_same(list(numbers(spread=True)), list(numbers(spread=False)))


def test_a_model_that_its_template_compiles_is_compiled():
    template, parallel, _ = make(spread=True)
    assert not parallel.compiled
    template.compile("sgd", "mse")
    assert parallel.compiled
    assert parallel.train_on_batch(X, Y) > 0


@pytest.mark.parametrize("first_is_spread", [True, False])
def test_layers_frozen_without_compile_train_on_where_another_parallel_model_takes_their_weights(first_is_spread):
    def trained(spread):
        keras.utils.set_random_seed(0)
        judge, make = dense_model(), keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
        first = multi_gpu_model(judge, gpus=3) if spread and first_is_spread else judge
        first.compile(keras.optimizers.SGD(0.1), "mse")
        losses = [first.train_on_batch(X, Y)]
        judge.trainable = False
        both = keras.Model(make.inputs, judge(make.outputs[0]))
        both = multi_gpu_model(both, gpus=["CPU:6", "CPU:7"]) if spread else both
        both.compile(keras.optimizers.SGD(0.1), "mse")
        for _ in range(2):
            losses += [first.train_on_batch(X, Y), both.train_on_batch(X[:, :2], Y)]
        bring_home(judge, "CPU:5")
        losses += [first.train_on_batch(X, Y)]
        return losses, judge.get_weights(), make.get_weights()

    assert_same(trained(spread=True), trained(spread=False))


def test_a_step_that_is_one_program_is_refused_with_what_to_write():
    template, parallel, _ = make(spread=True)

    @tf.function
    def call(x):
        return parallel(x)

    @tf.function(jit_compile=True)
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(call(x) ** 2)
        return tape.gradient(loss, parallel.trainable_variables)

    forward = tf.function(lambda x: parallel(x, training=True), jit_compile=True)
    outer = tf.function(lambda x: forward(x) + 1)
    for program in (step, forward, outer):
        with pytest.raises(ValueError, match=r"Received: a call of 'sequential'.*compile the model with `jit_com"):
            program(X)
    parallel.compile("sgd", "mse", jit_compile=True)
    assert_same(call(X), template(X))


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "traced"])
def test_forward_mode_is_refused_with_what_to_write(wrap):
    template, parallel, _ = make(spread=True)
    x = tf.constant(X)

    def along(model):
        with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as forward:
            y = model(x)
        return forward.jvp(y)

    with pytest.raises(ValueError, match=r"Received: a `tf\.autodiff\.ForwardAccumulator`.*or call the template"):
        wrap(along)(parallel)
    assert along(template).shape == (7, 2)
