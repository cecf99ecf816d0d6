"""Numbers of one device: every kind of layer, loss, weight and optimizer, with batches of any number of rows."""

import keras
import numpy as np
import pytest
from cases import some
from keras import layers, ops
from twins import assert_same_training, numbers

from multigpu import multi_gpu_model

ROWS = 13  # in batches of 6: 6, 6 and 1


def sgd(**more):
    return lambda: {"optimizer": keras.optimizers.SGD(0.1, momentum=0.9), "loss": "mse", **more}


def adam():
    return {"optimizer": keras.optimizers.Adam(0.01), "loss": "mse", "metrics": ["mae"]}


def dense():
    return keras.Sequential([keras.Input((5,)), layers.Dense(64, "tanh"), layers.Dense(64, "relu"), layers.Dense(3)])


@pytest.mark.parametrize("gpus", some([2, 3, 6, 8], [3, 8]))
@pytest.mark.parametrize("batch_size", some([1, 6, 7, 8, 13], [1, 6, 13]))
def test_batches_of_any_size(gpus, batch_size):
    assert_same_training(dense, numbers(ROWS, 5), numbers(ROWS, 3), gpus=gpus, batch_size=batch_size, compile=adam)


class MixesRows(layers.Layer):
    """What a row gives depends on all rows of the batch, on their order and on a cut."""

    def call(self, x):
        x = x - ops.mean(x, axis=0) + 0.1 * ops.flip(x, axis=0)
        alike = 0.1 * ops.tanh(ops.matmul(x, ops.transpose(x)))
        return ops.concatenate([x[1:], x[:1]]) + 0.1 * ops.sort(x, axis=0) + ops.matmul(alike, x)


class AddsLoss(layers.Layer):
    def call(self, x):
        self.add_loss(0.1 * ops.logsumexp(ops.sum(x, axis=0)))
        return x


class Counts(layers.Layer):
    """Keeps a sum and a count of the rows it has seen."""

    def build(self, shape):
        self.total = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False)
        self.rows = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False)

    def call(self, x):
        self.total.assign(self.total + ops.sum(x, axis=0))
        self.rows.assign(self.rows + ops.shape(x)[0])
        return x + 0.01 * self.total


def over(*middle):
    return lambda: keras.Sequential([keras.Input((5,)), layers.Dense(8), *[make() for make in middle], layers.Dense(3)])


DENSE = {
    "batch normalization": over(layers.BatchNormalization),
    "dropout": over(lambda: layers.Dropout(0.5)),
    "noise": over(lambda: layers.GaussianNoise(0.3), lambda: layers.AlphaDropout(0.2)),
    "row mixing": over(MixesRows),
    "added loss": over(AddsLoss, lambda: layers.ActivityRegularization(0.01)),
    "state": over(Counts),
    "spectral normalization": over(lambda: layers.SpectralNormalization(layers.Dense(8))),
    "layer and unit normalization": over(layers.LayerNormalization, layers.UnitNormalization),
    "random shuffles": over(lambda: layers.Lambda(lambda x: keras.random.shuffle(x, seed=3))),
}


@pytest.mark.parametrize("kind", DENSE)
@pytest.mark.parametrize("rows", [1, 6])
def test_layers(kind, rows):
    assert_same_training(DENSE[kind], numbers(ROWS, 5), numbers(ROWS, 3), compile=sgd(), batch_size=rows)


def test_dropout_is_the_same_bit_for_bit():
    def dropped(gpus):
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input((40,)), layers.Dropout(0.5)])
        model = multi_gpu_model(model, gpus) if gpus else model
        return np.asarray(model(np.ones((7, 40), "float32"), training=True))

    np.testing.assert_array_equal(dropped(8), dropped(None))


def conv():
    inputs = keras.Input((9, 9, 3))
    x = layers.Conv2D(16, 3, activation="relu", padding="same")(inputs)
    x = layers.BatchNormalization()(x)
    x = layers.MaxPooling2D()(layers.SeparableConv2D(24, 3)(x))
    x = layers.Conv2DTranspose(8, 3)(layers.Conv2D(16, 3, groups=2)(x))
    return keras.Model(inputs, layers.Dense(3)(layers.GlobalAveragePooling2D()(x)))


def recurrent():
    inputs = keras.Input((7,), dtype="int32")
    x = layers.Embedding(40, 64, mask_zero=True)(inputs)
    x = layers.Bidirectional(layers.LSTM(8, return_sequences=True))(x)
    return keras.Model(inputs, layers.Dense(3)(layers.GRU(6)(x)))


def transformer():
    inputs = keras.Input((7,), dtype="int32")
    x = layers.Embedding(40, 16, mask_zero=True)(inputs)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 8, dropout=0.1)(x, x, use_causal_mask=True))
    x = layers.LayerNormalization()(x + layers.Dense(16)(layers.Dense(128, "gelu")(x)))
    return keras.Model(inputs, layers.Dense(3)(layers.GlobalAveragePooling1D()(x)))


IDS = np.random.default_rng(2).integers(0, 40, (ROWS, 7))


def test_a_conv_net():
    assert_same_training(conv, numbers(ROWS, 9, 9, 3), numbers(ROWS, 3), compile=sgd())


@pytest.mark.parametrize("build", [recurrent, transformer])
def test_sequences_with_masks(build):
    assert_same_training(build, IDS, numbers(ROWS, 3), compile=sgd())


def test_stateful_recurrent_layers():
    def build():
        inputs = keras.Input(batch_shape=(6, 7, 4))
        return keras.Model(inputs, layers.Dense(3)(layers.GRU(5, stateful=True)(inputs)))

    assert_same_training(build, numbers(12, 7, 4), numbers(12, 3), compile=sgd())


def two_outputs():
    left, right = keras.Input((5,), name="left"), keras.Input((4,), name="right")
    shared = layers.Dense(6, "tanh")
    x = layers.add([shared(layers.Dense(5)(left)), shared(layers.Dense(5)(right))])
    outputs = {"number": layers.Dense(3, name="number")(x), "kind": layers.Dense(4, "softmax", name="kind")(x)}
    return keras.Model({"left": left, "right": right}, outputs)


def test_two_inputs_and_outputs_with_loss_weights_and_weighted_metrics():
    def compile():
        return {
            "optimizer": keras.optimizers.SGD(0.1),
            "loss": {"number": "huber", "kind": "sparse_categorical_crossentropy"},
            "loss_weights": {"number": 0.3, "kind": 2.0},
            "metrics": {"kind": ["accuracy"]},
            "weighted_metrics": {"number": [keras.metrics.RootMeanSquaredError()]},
        }

    x = {"left": numbers(ROWS, 5), "right": numbers(ROWS, 4)}
    y = {"number": numbers(ROWS, 3), "kind": IDS[:, 0] % 4}
    weight = {"number": np.linspace(0, 2, ROWS), "kind": np.linspace(1, 0, ROWS)}
    assert_same_training(two_outputs, x, y, compile=compile, sample_weight=weight)


def classes():
    return keras.Sequential([keras.Input((5,)), layers.Dense(8, "relu"), layers.Dense(4, "softmax")])


@pytest.mark.parametrize(
    "fit",
    [
        {"class_weight": {0: 1.0, 1: 3.0, 2: 0.1, 3: 0.0}},
        {"sample_weight": np.linspace(0, 2, ROWS)},
        {"validation_split": 0.3},
        {"validation_data": (numbers(5, 5), np.arange(5) % 4), "validation_batch_size": 3},
    ],
    ids=lambda fit: next(iter(fit)),
)
def test_arguments_of_fit(fit):
    compile = sgd(loss="sparse_categorical_crossentropy", metrics=["accuracy"], weighted_metrics=["accuracy"])
    assert_same_training(classes, numbers(ROWS, 5), IDS[:, 0] % 4, compile=compile, **fit)


OPTIMIZERS = {
    "clipnorm": lambda: keras.optimizers.SGD(0.1, clipnorm=0.1),
    "global_clipnorm": lambda: keras.optimizers.SGD(0.1, global_clipnorm=0.1),
    "clipvalue": lambda: keras.optimizers.Adam(0.01, clipvalue=0.01),
    "averages": lambda: keras.optimizers.SGD(0.1, use_ema=True, ema_overwrite_frequency=2),
    "averages, at the end": lambda: keras.optimizers.SGD(0.1, use_ema=True),
    "accumulation": lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2),
    "AdamW": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1, amsgrad=True),
    "Adafactor": lambda: keras.optimizers.Adafactor(0.01),
    "RMSprop": lambda: keras.optimizers.RMSprop(0.01, centered=True),
    "schedule": lambda: keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.9)),
    "loss scaling": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), dynamic_growth_steps=2),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_optimizers(kind):
    compile = lambda: {"optimizer": OPTIMIZERS[kind](), "loss": "mse"}  # noqa: E731
    assert_same_training(dense, numbers(ROWS, 5), numbers(ROWS, 3), compile=compile)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(policy):
    def build():
        made = [layers.Dense(64, "tanh", dtype=policy), layers.Dense(64, dtype=policy), layers.Dense(3)]
        return keras.Sequential([keras.Input((5,)), *made])

    few_bits = {"rtol": 2e-2, "atol": 2e-2}
    assert_same_training(build, numbers(ROWS, 5), numbers(ROWS, 3), compile=sgd(), tolerance=few_bits)


@pytest.mark.parametrize("how", [{"run_eagerly": True}, {"jit_compile": False}, {"steps_per_execution": 2}], ids=str)
@pytest.mark.parametrize("build", [dense, over(MixesRows, lambda: layers.Dropout(0.5))])
def test_how_steps_run(how, build):
    assert_same_training(build, numbers(ROWS, 5), numbers(ROWS, 3), compile=sgd(**how), epochs=1)


@pytest.mark.parametrize("build", [dense, conv])
def test_cpu_relocation(build):
    x = numbers(ROWS, *build().input_shape[1:])
    assert_same_training(build, x, numbers(ROWS, 3), compile=adam, cpu_relocation=True, cpu_merge=False)


def test_sparse_inputs():
    from scipy import sparse

    x = sparse.random(ROWS, 5, density=0.5, random_state=1, dtype="float32").tocsr()
    assert_same_training(dense, x, numbers(ROWS, 3), compile=sgd())
