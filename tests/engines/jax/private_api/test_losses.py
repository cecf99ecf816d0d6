"""Added losses are counted once, whatever `id` Python gives them."""

import added_losses
import jax
import keras
import numpy as np
import pytest
from equality import random_rows
from keras import layers

import multigpu

X, Y = random_rows(10, 3), random_rows(10, 2)


class Stale(set):
    """The `id`s of losses of a layer, with all of earlier calls, among which are all others until they are cleared."""

    cleared = False

    def __contains__(self, number):
        return not self.cleared or super().__contains__(number)

    def clear(self):
        super().clear()
        self.cleared = True


def with_stale_ids(model):
    for layer in model._flatten_layers():
        vars(layer)["_loss_ids"] = Stale()  # Keras would make a set of its own of it


@pytest.mark.parametrize("eagerly", [False, True])
def test_the_losses_of_a_step_are_its_own(eagerly):
    model = added_losses.of_inner_layers_without_rows()
    model.compile(keras.optimizers.SGD(0.0), "mse", run_eagerly=eagerly)
    parallel = multigpu.multi_gpu_model(model, 3)
    with_stale_ids(model)
    evaluated = parallel.evaluate(X, Y, verbose=0)
    with_stale_ids(model)
    fitted = parallel.fit(X, Y, batch_size=10, verbose=0).history["loss"][0]
    predicted = model(X)
    added = [np.asarray(loss) for loss in model.losses]
    assert len(added) == 2
    expected = np.mean((predicted - Y) ** 2) + sum(added)
    np.testing.assert_allclose([evaluated, fitted], expected, rtol=1e-5)


def test_the_losses_of_a_stateless_call_are_its_own():
    model = added_losses.of_inner_layers_without_rows()
    parallel = multigpu.multi_gpu_model(model, 3)
    weights = [[v.value for v in variables] for variables in (model.trainable_variables, model.non_trainable_variables)]
    with_stale_ids(model)
    *_, losses = jax.jit(lambda x: parallel.stateless_call(*weights, x, return_losses=True))(X)
    model(X)
    np.testing.assert_allclose(losses, [np.asarray(loss) for loss in model.losses], rtol=1e-5)


class CallsAnInnerModel(layers.Layer):
    """Calls a model twice, once as it is and once without its state."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def call(self, x):
        y = self.model(x)
        outputs, _ = self.model.stateless_call([v.value for v in self.model.trainable_variables], [], x)
        return y + outputs


def test_a_stateless_call_within_another_leaves_its_losses():
    inner = keras.Sequential([keras.Input((3,)), layers.Dense(2, activity_regularizer="l2")])
    inputs = keras.Input((3,))
    model = keras.Model(inputs, CallsAnInnerModel(inner)(inputs))
    model.compile("sgd", "mse")
    expected = model.evaluate(X, Y, verbose=0)
    assert multigpu.multi_gpu_model(model, 2).evaluate(X, Y, verbose=0) == pytest.approx(expected)
    assert expected > np.mean((model.predict(X, verbose=0) - Y) ** 2) + 1e-4
