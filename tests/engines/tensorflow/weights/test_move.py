"""Weights move whatever else lives in the process: models that are not finished, or have optimizers of any kind."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from equality import dense_net, random_rows
from keras import layers

from multigpu import bring_home, multi_gpu_model
from multigpu.engines.tensorflow.weights.place_locate import locate

X, Y = random_rows(7, 5), random_rows(7, 3, seed=1)


def moves_and_trains(template):
    """Weights move to other devices and back."""
    parallel = multi_gpu_model(template, gpus=3)
    parallel.compile("sgd", "mse")
    parallel.fit(X, np.zeros((7, *parallel.output_shape[1:])), verbose=0)
    bring_home(template)
    assert {locate(weight) for weight in template.weights} == {"CPU:0"}


class Waits(keras.Model):
    inner = None

    @property
    def variables(self):
        return self.inner.variables

    weights = variables


class Unknown(keras.Model):
    variables = property(lambda self: None)


@pytest.mark.parametrize("kind", [Waits, Unknown])
def test_a_model_that_waits_for_its_parts(kind):
    waits = kind()
    moves_and_trains(dense_net())
    assert waits is not None


def test_a_model_that_is_made_in_a_model_before_keras_makes_that():
    class Outer(keras.Model):
        def __init__(self, template):
            merged = multi_gpu_model(template, gpus=3)(template.inputs[0])
            super().__init__(inputs=template.inputs, outputs=merged)

    template = dense_net()
    outer = Outer(template)
    np.testing.assert_allclose(outer.predict(X, verbose=0), template.predict(X, verbose=0), rtol=1e-5)


class Holds(keras.Model):
    """Holds a template, and anything as its optimizer."""

    def __init__(self, template, optimizer):
        super().__init__()
        self.template, self.optimizer = template, optimizer


@pytest.mark.parametrize("made", [dict, list, str, object])
def test_a_model_with_anything_as_its_optimizer(made):
    template = dense_net()
    holds = Holds(template, made())
    moves_and_trains(template)
    assert holds is not None


@pytest.mark.parametrize("of", [lambda own: {"own": own}, lambda own: [own], lambda own: own])
def test_slots_follow_the_weights_also_of_optimizers_in_a_dictionary_or_list(of):
    template = keras.Sequential([keras.Input((5,)), layers.Dense(3)])
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    optimizer.build(template.trainable_variables)
    holds = Holds(template, of(optimizer))
    parallel = multi_gpu_model(template, gpus=3)
    homes = [locate(weight) for weight in template.weights]
    assert set(homes) != {"CPU:0"}
    assert [locate(slot) for slot in optimizer.variables[2:]] == homes
    bring_home(parallel)
    assert {locate(slot) for slot in optimizer.variables} == {"CPU:0"}
    assert holds is not None


def raises_in(make):
    with pytest.raises((AttributeError, NameError, TypeError, ValueError)) as raised:
        make(tf.data.Dataset.from_tensor_slices(X))
    return raised


@pytest.mark.parametrize(
    "make",
    [
        lambda rows: rows.map(lambda row: missing),  # noqa: F821  # the error of this case: a name that is not there
        lambda rows: rows.filter(lambda row: 1 / "a"),
        lambda rows: rows.flat_map(lambda row: row),
        lambda rows: rows.batch("five"),
    ],
)
def test_a_pipeline_whose_making_failed_and_whose_error_is_kept(make):
    kept = raises_in(make)
    moves_and_trains(dense_net())
    assert kept.value is not None
