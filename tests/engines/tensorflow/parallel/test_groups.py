"""Replicas of a template with parts, each on a group of devices, have the numbers of one device."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import soak
from equality import FLOAT32, on_one_device, random_ids, random_rows
from keras import layers
from part_models import LAYOUTS, MODELS, Halves, X, Y, assert_same_in_groups, nowhere, sgd, two_parts

import multigpu
from multigpu.engines.tensorflow.weights.place_locate import locate

either_layout = pytest.mark.parametrize("layout", ["two groups", soak("four slices")])


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        pytest.param("two parts", "two groups", marks=pytest.mark.quick),
        *[soak("two parts", "four slices"), ("masks, loops and operations", "four slices")],
        *[("shared weights", "two groups"), ("there and back", "four slices"), ("a table", "four slices")],
        *[("losses and state of the batch", "two groups"), ("a model of one's own", "two groups")],
        *[soak("masks, loops and operations", "two groups"), soak("shared weights", "four slices")],
        *[soak("there and back", "two groups"), soak("a table", "two groups")],
        *[soak("losses and state of the batch", "four slices"), soak("a model of one's own", "four slices")],
    ],
)
def test_groups_train_as_one_device(name, layout):
    build, x, parts = MODELS[name]
    only_fit = name not in ("two parts", "losses and state of the batch", "a model of one's own")
    assert_same_in_groups(build, x, [LAYOUTS[layout](parts)], only_fit=only_fit)


class CentredHalves(Halves):
    def call(self, x):
        return super().call(tf.cond(tf.size(x) > 0, lambda: x - tf.reduce_mean(x, 0), lambda: x))


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_the_first_batch_is_checked_too(run_eagerly):
    template = CentredHalves(multigpu.on_device)
    template(X[:2])
    parallel = multigpu.multi_gpu_model(template, gpus=LAYOUTS["two groups"](2))
    parallel.compile(**sgd(), run_eagerly=run_eagerly)
    with pytest.raises(ValueError, match="With rows 0 to 3 and 4 to 7 of the first batch in separate slices"):
        parallel.fit(X[:8], Y[:8], batch_size=8, verbose=0)


@either_layout
def test_run_eagerly_too(layout):
    ids, eagerly = random_ids(17, 6, below=9), {"run_eagerly": True}
    assert_same_in_groups(masked_tower_apart, ids, [LAYOUTS[layout](2)], lambda: {**sgd(), **eagerly}, only_fit=True)


def masked_tower_apart(on):
    ids = keras.Input((6,), dtype="int32")
    with on("GPU:0"):
        x = layers.Embedding(9, 4, mask_zero=True)(ids)
    with on("GPU:1"):
        return keras.Model(ids, layers.Dense(2)(layers.SimpleRNN(4)(x)))


@pytest.mark.parametrize("layout", [soak("two groups"), "four slices"])
def test_mixed_precision_too(layout):
    keras.config.set_dtype_policy("mixed_float16")
    try:  # a float16 has 11 bits
        rough = {"rtol": 4e-3, "atol": 4e-4}
        assert_same_in_groups(two_parts, X, [LAYOUTS[layout](2)], tolerance=rough, only_fit=True)
    finally:
        keras.config.set_dtype_policy("float32")


def two_outputs(on):
    """Of two outputs, the second has no finite derivative: a gradient of zero that went through it would be NaN."""
    x = keras.Input((3,))
    with on("GPU:0"):
        h = layers.Dense(4, activation="relu")(x)
    with on("GPU:1"):
        y = layers.Dense(2, name="y")(h)
        root = keras.ops.sqrt(h * 0)
    return keras.Model(x, {"y": y, "root": root})


@either_layout
def test_an_output_without_a_loss_gets_no_gradient(layout):
    losses = {"optimizer": "sgd", "loss": {"y": "mse", "root": None}}
    assert_same_in_groups(two_outputs, X, [LAYOUTS[layout](2)], lambda: losses, y={"y": Y}, only_fit=True)


class Penalised(Halves):
    """Trained with the gradient of its gradient, in a step of its own."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                inner.watch(x)
                y_pred = self(x, training=True)
                norm = tf.reduce_sum(y_pred**2)
            slope = inner.gradient(norm, x)
            loss = self.compute_loss(x, y, y_pred) + tf.reduce_mean(slope**2)
        self.optimizer.apply_gradients(
            zip(outer.gradient(loss, self.trainable_variables), self.trainable_variables, strict=True)
        )
        return {"loss": loss}


def penalised(on):
    model = Penalised(on)
    model(random_rows(2, 3))
    return model


@either_layout
def test_a_gradient_of_a_gradient(layout):
    sgd = {"optimizer": "sgd", "loss": "mse"}
    assert_same_in_groups(penalised, X, [LAYOUTS[layout](2)], lambda: sgd, only_fit=True)


def test_several_steps_in_one():
    several = {"steps_per_execution": 2}
    assert_same_in_groups(two_parts, X, [LAYOUTS["four slices"](2)], lambda: {**sgd(), **several}, only_fit=True)


def test_a_loop_of_ones_own_and_single_batches():
    numbers = []
    for gpus in (None, LAYOUTS["two groups"](2)):
        keras.utils.set_random_seed(0)
        model = two_parts(multigpu.on_device if gpus else nowhere)
        model = multigpu.multi_gpu_model(model, gpus=gpus) if gpus else on_one_device(model)
        model.compile(**sgd(), metrics=["mae"])
        loss = model.train_on_batch(X[:7], Y[:7])
        with tf.GradientTape() as tape:
            value = tf.reduce_mean((model(X[:7], training=True) - Y[:7]) ** 2)
        gradients = tape.gradient(value, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        with tf.GradientTape() as tape:
            at_rest = tf.reduce_mean((model(X[:7]) - Y[:7]) ** 2)  # not training, and differentiated all the same
        gradients = [*gradients, *tape.gradient(at_rest, model.trainable_variables)]
        numbers.append([*loss, value, at_rest, *gradients, *model.get_weights(), model.predict_on_batch(X[:1])])
    for plain, grouped in zip(*numbers, strict=True):
        np.testing.assert_allclose(grouped, plain, **FLOAT32)


@pytest.mark.parametrize("flags", [{"cpu_merge": False}, {"cpu_relocation": True}])
def test_the_flags_of_multi_gpu_model(flags):
    numbers = []
    layout = "four slices" if "cpu_merge" in flags else "two groups"
    for gpus in (None, LAYOUTS[layout](2)):
        keras.utils.set_random_seed(0)
        template = two_parts(multigpu.on_device if gpus else nowhere)
        model = multigpu.multi_gpu_model(template, gpus=gpus, **flags) if gpus else on_one_device(template)
        model.compile(**sgd())
        losses = model.fit(X, Y, batch_size=8, shuffle=False, verbose=0).history["loss"]
        numbers.append([*losses, *template.get_weights()])
        if flags.get("cpu_relocation") and gpus:
            assert {locate(variable) for variable in template.variables} == {"CPU:0"}
    for plain, grouped in zip(*numbers, strict=True):
        np.testing.assert_allclose(grouped, plain, **FLOAT32)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_noise_is_that_of_one_device(layout):
    def predicted(gpus):
        keras.utils.set_random_seed(3)
        x = keras.Input((50,))
        with multigpu.on_device("GPU:0"):
            h = layers.Dropout(0.5)(x)
        with multigpu.on_device("GPU:1"):
            y = layers.GaussianNoise(0.5)(h)
        model = keras.Model(x, y)
        model = multigpu.multi_gpu_model(model, gpus=gpus) if gpus else model
        return [np.asarray(model(np.ones((rows, 50), "float32"), training=True)) for rows in (7, 3, 1)]

    for noise, expected in zip(predicted(LAYOUTS[layout](2)), predicted(None), strict=True):
        np.testing.assert_array_equal(noise, expected)
