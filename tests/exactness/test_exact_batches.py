"""Batches of every size, on every number of devices, have the numbers of one device."""

import keras
import numpy as np
import pytest
from cases import soak
from equality import assert_same_training, dense_model, mean_squared, measured, random_rows
from keras import ops

from multigpu import multi_gpu_model, synchronize_batch_norm

SIZES = {
    "even": (72, 24),
    "uneven last one, of 17 rows": (65, 24),
    "last one of one row": (49, 24),
    "one row": (3, 1),
}


@pytest.mark.parametrize(
    ("size", "gpus"),
    [
        *[("even", 3), ("uneven last one, of 17 rows", 8), ("last one of one row", 3), ("one row", 8)],
        *[soak("even", 8), soak("uneven last one, of 17 rows", 3), soak("last one of one row", 8), soak("one row", 3)],
    ],
)
def test_batches(size, gpus):
    rows, batch_size = SIZES[size]
    x, y = random_rows(rows, 3), random_rows(rows, 2)
    ways = {"compile": measured, "gpus": gpus, "only_fit": "one row" not in size}
    assert_same_training(dense_model, x, y, batch_size=batch_size, **ways)


@pytest.mark.parametrize("gpus", [2, soak(4), 8])
def test_batches_of_one_row_less_than_there_are_devices(gpus):
    rows = 3 * (gpus - 1)
    x, y = random_rows(rows, 3), random_rows(rows, 2)
    assert_same_training(dense_model, x, y, compile=mean_squared, gpus=gpus, batch_size=gpus - 1, only_fit=True)


@pytest.mark.parametrize(("dtype", "order"), [soak("float64", "C"), soak("float32", "F"), ("float64", "F")])
def test_arrays_as_r_sends_them(dtype, order):
    """R keeps numbers in float64, columns first."""
    x, y = (np.asarray(rows, dtype, order=order) for rows in (random_rows(65, 3), random_rows(65, 2)))
    assert x.flags.f_contiguous == (order == "F")
    assert_same_training(dense_model, x, y, compile=mean_squared, batch_size=24, as_arrays=True)


@pytest.mark.quick
@pytest.mark.parametrize("gpus", [3, 8])
def test_batch_normalization_of_one_row_is_finite(gpus):
    """A replica that stands by works on a copy of a row, and leaves no trace in the statistics."""
    template = keras.Sequential([keras.Input((3,)), keras.layers.BatchNormalization(momentum=0.9)])
    parallel = multi_gpu_model(template, gpus=gpus)
    parallel.compile("sgd", "mse")
    x = random_rows(1, 3)
    assert np.isfinite(parallel.train_on_batch(x, x))
    np.testing.assert_allclose(template.layers[0].moving_mean.numpy(), 0.1 * x[0], rtol=1e-4)
    np.testing.assert_allclose(template.layers[0].moving_variance.numpy(), np.full(3, 0.9), rtol=1e-4)


class GradientOfLengthOne(keras.layers.Layer):
    """The identity, with the gradient of each row divided by its length: NaN for one of zeros."""

    def call(self, x):
        @ops.custom_gradient
        def identity(x):
            def gradient(*args, upstream=None):
                of_rows = args[-1] if upstream is None else upstream
                return of_rows / ops.norm(of_rows, axis=-1, keepdims=True)

            return x + 0.0, gradient

        return identity(x)


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("rows", [2, soak(3)])
def test_an_idle_replica_adds_no_gradient_of_a_user(rows, order):
    def build():
        normalization = keras.layers.BatchNormalization()
        inner = {"before": [normalization, GradientOfLengthOne()], "after": [GradientOfLengthOne(), normalization]}
        layers = [keras.layers.Dense(4), *inner[order], keras.layers.Dense(2)]
        return synchronize_batch_norm(keras.Sequential([keras.Input((3,)), *layers]))

    x, y = random_rows(14 + rows, 3), random_rows(14 + rows, 2)
    assert_same_training(build, x, y, compile=mean_squared, gpus=4, batch_size=7, only_fit=True)


# What goes wrong under MirroredStrategy -------------------------------------------------------------------------------

X = np.array([[1], [1], [3], [3]], "float32")  # the gradient is twice the mean of squares: 10, of three rows 22/3


def weight_after(batches: list[np.ndarray], gpus: int | None, **clipping: float) -> float:
    """The weight of `y = weight * x`, which starts at 1, after steps of SGD with learning rate 1 towards 0."""
    template = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    model = multi_gpu_model(template, gpus=gpus) if gpus else template
    model.compile(keras.optimizers.SGD(1.0, **clipping), "mse")
    model.fit(((x, 0 * x) for x in batches), steps_per_epoch=len(batches), shuffle=False, verbose=0)
    return template.get_weights()[0].item()


@pytest.mark.parametrize("gpus", [None, 2])
@pytest.mark.parametrize(
    ("batches", "clipping", "weight"),
    [
        pytest.param([X], {}, -9, id="even batch"),  # MirroredStrategy: -9
        pytest.param([X[:3]], {}, 1 - 22 / 3, id="3 rows on 2 replicas"),  # -9
        pytest.param([X[:1]], {}, -1, id="1 row on 2 replicas"),  # 0
        pytest.param([X], {"clipnorm": 0.5}, 0.5, id="clipnorm"),  # 0
        pytest.param([X[:3], X], {}, (1 - 22 / 3) * -9, id="first batch uneven"),  # InvalidArgumentError
    ],
)
def test_what_mirrored_strategy_gets_wrong(batches, clipping, weight, gpus):
    assert weight_after(batches, gpus, **clipping) == pytest.approx(weight, rel=1e-4)


class CountsCalls(keras.layers.Layer):
    """Counts its calls in a float."""

    def build(self, input_shape):
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x):
        self.calls.assign_add(1.0)
        return x


def test_an_empty_batch_changes_state_as_on_one_device():
    def build():
        layers = [CountsCalls(), keras.layers.BatchNormalization(), keras.layers.Dense(2)]
        return synchronize_batch_norm(keras.Sequential([keras.Input((3,)), *layers]))

    plain, template = twins = build(), build()
    template.set_weights(plain.get_weights())
    for model in (plain, multi_gpu_model(template, gpus=3)):
        assert model(random_rows(0, 3), training=True).shape == (0, 2)
    for expected, actual in zip(*(model.get_weights() for model in twins), strict=True):
        np.testing.assert_array_equal(actual, expected)
