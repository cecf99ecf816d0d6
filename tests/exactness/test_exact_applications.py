"""Models of `keras.applications` train on three devices as on one, once their BatchNormalizations are synchronized."""

import keras
import numpy as np
import pytest

import multigpu

APPLICATIONS = {
    "ResNet50": lambda: keras.applications.ResNet50(weights=None, input_shape=(32, 32, 3), classes=3),
    "EfficientNetB0": lambda: keras.applications.EfficientNetB0(weights=None, input_shape=(32, 32, 3), classes=3),
    "MobileNetV3Small": lambda: keras.applications.MobileNetV3Small(weights=None, input_shape=(32, 32, 3), classes=3),
}


@pytest.fixture
def doubles():
    """Statistics of few values in many layers magnify a rounding a million times: of doubles, nothing is seen of it."""
    before = keras.config.floatx()
    keras.config.set_floatx("float64")
    yield
    keras.config.set_floatx(before)


def trained(build, parallel):
    keras.utils.set_random_seed(1)
    model = build()
    before = model.get_weights()
    trains = multigpu.multi_gpu_model(multigpu.synchronize_batch_norm(model), gpus=3) if parallel else model
    trains.compile(keras.optimizers.SGD(0.05), "sparse_categorical_crossentropy", jit_compile=False)
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0, 255, (16, 32, 32, 3)), rng.integers(0, 3, 16)
    losses = [float(trains.train_on_batch(x[at], y[at])) for at in (slice(0, 8), slice(8, 16))]
    return losses, before, model.get_weights()


@pytest.mark.soak
@pytest.mark.parametrize("name", APPLICATIONS)
def test_a_model_of_keras_applications_trains_as_on_one_device(name, doubles):
    losses, before, weights = trained(APPLICATIONS[name], parallel=True)
    expected, _, of_one = trained(APPLICATIONS[name], parallel=False)
    np.testing.assert_allclose(losses, expected, rtol=1e-9)
    for start, ours, theirs in zip(before, weights, of_one, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9 + 1e-6 * np.abs(theirs - start).max())
