"""Plain models and functions of one's own compute with divided weights as if these were on one device."""

import jax
import keras
import numpy as np
import pytest
from equality import random_rows
from keras import layers, ops

import multigpu

X, Y = random_rows(8, 10, 8), random_rows(8, 8)


def conv_net(depthwise=False):
    """XLA divides its convolutions wrongly on four and eight devices, if nothing prevents it."""
    inputs = keras.Input((10, 8))
    x = layers.Conv1D(32, 3, padding="same", activation="relu")(inputs)
    second = layers.DepthwiseConv1D(3, padding="same") if depthwise else layers.Conv1D(32, 2, padding="causal")
    return keras.Model(inputs, layers.Dense(8)(layers.Flatten()(second(x))))


def itself(template, parallel):
    return template


def of_its_layers(template, parallel):
    return keras.Model(template.inputs, layers.Rescaling(2.0)(template.outputs[0]))


def after_a_fit(template, parallel):
    parallel.compile(keras.optimizers.SGD(0.0), "mse")
    parallel.fit(X, Y, verbose=0)
    return template


@pytest.mark.parametrize("gpus", [4, 8])
@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("plain", [itself, of_its_layers, after_a_fit])
def test_a_plain_model_trains_as_on_one_device(gpus, depthwise, plain):
    def train(gpus):
        keras.utils.set_random_seed(0)
        template = conv_net(depthwise)
        model = plain(template, multigpu.multi_gpu_model(template, gpus) if gpus else template)
        model.compile(keras.optimizers.SGD(0.3), "mse")
        losses = model.fit(X, Y, batch_size=8, epochs=3, verbose=0, shuffle=False).history["loss"]
        return [*losses, *template.get_weights(), model.evaluate(X, Y, verbose=0), model.predict(X, verbose=0)]

    for actual, expected in zip(train(gpus), train(None), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def stateless(pass_batch):
    def loss_of(model, weights, x):
        args, kwargs = pass_batch(x)
        return ops.mean(ops.square(model.stateless_call(weights, [], *args, training=True, **kwargs)[0] - Y))

    return loss_of


def in_a_scope(model, weights, x):
    variables = getattr(model, "template", model).trainable_variables
    with keras.StatelessScope(state_mapping=list(zip(variables, weights, strict=True))):
        return ops.mean(ops.square(model(x, training=True) - Y))


def directly(model, weights, x):
    return ops.mean(ops.square(model(x) - Y))


LOSSES = {
    "an argument": stateless(lambda x: ((x,), {})),
    "a constant": stateless(lambda x: ((X,), {})),
    "a keyword": stateless(lambda x: ((), {"inputs": x})),
    "a scope": in_a_scope,
    "a scope, of a constant": lambda model, weights, x: in_a_scope(model, weights, X),
    "a call": directly,
}


@pytest.mark.parametrize("jit", [jax.jit, lambda function: function])
@pytest.mark.parametrize("called", ["template", "parallel"])
@pytest.mark.parametrize("name", LOSSES)
def test_gradients_of_a_function_of_ones_own(jit, called, name):
    def gradients(gpus):
        keras.utils.set_random_seed(0)
        template = conv_net()
        parallel = multigpu.multi_gpu_model(template, gpus) if gpus else template
        model, weights = parallel if called == "parallel" else template, [v.value for v in template.trainable_variables]
        step = jit(jax.value_and_grad(lambda weights, x: LOSSES[name](model, weights, x), argnums=(0, 1)))
        return jax.tree.leaves(step(weights, X))

    for actual, expected in zip(gradients(8), gradients(None), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)


def test_outside_of_such_functions_weights_stay_divided():
    template = conv_net()
    multigpu.multi_gpu_model(template, 4)
    kernel = template.layers[-1].kernel
    assert not kernel.value.sharding.is_fully_replicated
    jax.jit(lambda: template(X))()
    assert not kernel.value.sharding.is_fully_replicated
    template.predict(X, verbose=0)
    assert len(kernel.value.sharding.device_set) == 1
