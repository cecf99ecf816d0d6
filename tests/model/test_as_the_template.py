"""A parallel model does what its template does, with odd settings, parts and threads."""

import threading

import keras
import numpy as np
import pytest
from equality import assert_same_numbers, assert_same_training, mean_squared, random_rows, train
from keras import layers, ops
from part_models import nowhere

import multigpu
from multigpu import measure, multi_gpu_model
from multigpu.engines.tensorflow.batches import fit_arguments
from multigpu.private_api.default_generator import made_default_generator

X, Y = random_rows(25, 3), random_rows(25, 2, seed=1)


def with_regularizer():
    template = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
    template.activity_regularizer = keras.regularizers.L2(0.5)
    return template


def test_an_activity_regularizer_of_the_template_itself_counts_once():
    assert_same_training(with_regularizer, X, Y, compile=mean_squared)


def normalized():
    parts = [part for _ in range(4) for part in (layers.Dense(6), layers.BatchNormalization())]
    return keras.Sequential([keras.Input((3,)), *parts, layers.Dense(2)])


def test_two_threads_may_use_a_model_first_at_the_same_time():
    """Neither takes the other's replacements for what was before."""
    template = normalized()
    parallel = multi_gpu_model(template, gpus=3)
    methods = [dict(vars(layer)) for layer in template.layers]
    together, errors = threading.Barrier(2), []

    def use(verb):
        together.wait()
        try:
            verb()
        except Exception as error:
            errors.append(error)

    verbs = lambda: parallel.predict(X, verbose=0), lambda: parallel(X, training=True)
    threads = [threading.Thread(target=use, args=(verb,)) for verb in verbs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for layer, before in zip(template.layers, methods, strict=True):
        assert {"call", "_moments"} & vars(layer).keys() == {"call", "_moments"} & before.keys()


def test_a_part_may_be_a_functional_model_whose_layers_add_losses():
    def build(on_device):
        inner = keras.Input((4,))
        part = keras.Model(inner, layers.ActivityRegularization(l2=0.1)(layers.Dense(3)(inner)))
        x = keras.Input((3,))
        with on_device("CPU:1"):
            hidden = layers.Dense(4)(x)
        with on_device("CPU:2"):
            return keras.Model(x, layers.Dense(2)(part(hidden)))

    _, expected = train(lambda: build(nowhere), X, Y, compile=mean_squared, gpus=None)
    _, numbers = train(lambda: build(multigpu.on_device), X, Y, compile=mean_squared, gpus=None)
    assert_same_numbers(numbers, expected)


def test_large_arrays_may_stand_beside_an_input_without_a_value(monkeypatch):
    monkeypatch.setattr(fit_arguments, "LARGE", 1)

    class Optional(layers.Layer):
        def call(self, given):
            return given[1] if given[0] is None else given[0] + given[1]

        def compute_output_shape(self, shape):
            return shape[1]

    inputs = [keras.Input((3,), optional=True), keras.Input((3,))]
    template = keras.Model(inputs, layers.Dense(2)(Optional()(inputs)))
    x = [None, X.astype("float64")]
    expected = template.predict(x, verbose=0)
    parallel = multi_gpu_model(template, gpus=3)
    np.testing.assert_allclose(parallel.predict(x, verbose=0), expected, rtol=1e-5, atol=1e-6)


class Tied(keras.Model):
    """Reads a table above 1 MB in a part that is computed again."""

    def __init__(self):
        super().__init__()
        self.table = layers.Embedding(40_000, 8)
        self.head = keras.remat(lambda h: ops.matmul(h, ops.transpose(self.table.embeddings))[:, :2])

    def call(self, ids):
        return self.head(self.table(ids[:, 0]))


@pytest.mark.parametrize("eagerly", [False, True])
def test_a_part_that_is_computed_again_may_read_a_table(eagerly):
    ids = np.arange(75).reshape(25, 3)

    def build():
        model = Tied()
        model(ids)
        return model

    def compiled():
        return {**mean_squared(), "run_eagerly": eagerly}

    assert_same_training(build, ids, Y, compile=compiled, only_fit=True)


class Noise(layers.Layer):
    """Draws from Keras' default generator."""

    def call(self, x):
        return x + keras.random.normal(ops.shape(x))


class TwoOptimizers(keras.Sequential):
    """Has an optimizer of its own beside that of `compile()`."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.own = keras.optimizers.SGD(0.1, momentum=0.9)

    def train_step(self, data):
        logs = super().train_step(data)
        self.own.apply([0 * weight for weight in self.trainable_variables], self.trainable_variables)
        return logs


def test_measuring_restores_optimizers_of_the_templates_own_and_the_default_noise():
    template = TwoOptimizers([keras.Input((3,)), Noise(), layers.Dense(2)])
    template.own.build(template.trainable_variables)
    parallel = multi_gpu_model(template, gpus=2)
    parallel.compile("sgd", "mse")
    parallel.train_on_batch(X, Y)
    variables = [*template.own.variables, made_default_generator().state]
    before = [variable.numpy() for variable in variables]
    measure(parallel, X, Y, batch_size=8, steps=1, verbose=0)
    for variable, value in zip(variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)
