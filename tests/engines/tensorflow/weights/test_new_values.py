"""Variables whose gradient is their new value: the largest of all slices, and of none that stands by."""

import keras
import numpy as np
import pytest
from keras import layers

from multigpu import multi_gpu_model, on_device


class LargestSeen(layers.Layer):
    """Keeps the largest input by the gradient of a variable, as Keras keeps those of float8."""

    def build(self, shape):
        self.largest = self.add_weight(shape=(), initializer="zeros", overwrite_with_gradient=True)

    def call(self, x):
        @keras.ops.custom_gradient
        def kept(x, largest):
            def gradient(*args, upstream=None):
                return upstream if upstream is not None else args[0], keras.ops.max(keras.ops.abs(x))

            return x, gradient

        return kept(x, keras.ops.convert_to_tensor(self.largest))


def float8(dense):
    """Without biases, which Keras rounds to bfloat16, and so the gradient of each slice."""
    model = keras.Sequential([keras.Input((4,)), dense, layers.Dense(2, use_bias=False)])
    for layer in model.layers:
        layer.quantize("float8")
    return model


def largest_seen():
    return keras.Sequential([keras.Input((4,)), layers.Dense(8), LargestSeen(), layers.Dense(2)])


TEMPLATES = {
    "float8": lambda: float8(layers.Dense(8, activation="tanh", use_bias=False)),
    "einsum": lambda: float8(layers.EinsumDense("ab,bc->ac", 8, activation="tanh")),
    "own": largest_seen,
}


def made(of):
    keras.utils.set_random_seed(0)
    return TEMPLATES[of]()


@pytest.mark.parametrize(("of", "num_rows", "eager"), [("float8", 7, False), ("einsum", 2, False), ("own", 7, True)])
def test_the_largest_new_value_of_all_slices_is_kept(of, num_rows, eager):
    random = np.random.default_rng(0)
    x, y = random.normal(size=(num_rows, 4)), random.normal(size=(num_rows, 2))
    one = made(of)
    template = made(of)
    parallel = multi_gpu_model(template, gpus=3)
    for model in (one, parallel):
        model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=eager)
    for _ in range(3):
        np.testing.assert_allclose(parallel.train_on_batch(x, y), one.train_on_batch(x, y), rtol=1e-5)
    seen = [v for v in one.trainable_variables if v.overwrite_with_gradient]
    assert seen
    for expected, given in zip(one.variables, template.variables, strict=True):
        np.testing.assert_allclose(given, expected, rtol=1e-4, atol=1e-6, err_msg=expected.path)


def test_slices_that_share_a_device_are_refused():
    inputs = keras.Input((4,))
    with on_device("CPU:1"):
        x = LargestSeen()(layers.Dense(8)(inputs))
    with on_device("CPU:2"):
        outputs = layers.Dense(2)(x)
    model = multi_gpu_model(keras.Model(inputs, outputs), gpus=[["CPU:1", "CPU:2"]] * 2)
    model.compile("sgd", "mse")
    model.predict(np.ones((4, 4)), verbose=0)
    with pytest.raises(ValueError, match="Expected one worker, and one slice for each device, because the template"):
        model.fit(np.ones((4, 4)), np.ones((4, 2)), verbose=0)


@pytest.mark.filterwarnings("ignore:Layer InputLayer does not have a `quantize` method:UserWarning")
@pytest.mark.parametrize("by", ["template", "parallel", "other"])
def test_models_that_predicted_before_predict_with_quantized_weights(by):
    template = keras.Sequential([keras.Input((4,)), layers.Dense(8, activation="tanh"), layers.Dense(2)])
    models = {"template": template, **{name: multi_gpu_model(template, gpus=2) for name in ("parallel", "other")}}
    x = np.random.default_rng(0).normal(size=(6, 4)).astype("float32")
    before = {name: model.predict(x, verbose=0) for name, model in models.items()}
    models[by].quantize("int4")
    for name, model in models.items():
        after = model.predict(x, verbose=0)
        assert np.abs(after - before[name]).max() > 1e-3
        np.testing.assert_allclose(after, template(x), rtol=1e-5, atol=1e-6)
