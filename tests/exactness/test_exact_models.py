"""Models of every kind, trained in parallel, have the numbers of one device."""

import keras
import numpy as np
import pytest
from cases import soak
from equality import (
    COUNTS,
    assert_same_training,
    dense_model,
    mean_squared,
    measured,
    random_ids,
    random_rows,
)
from masked_ids import PADDINGS

ROWS = 18  # with batches of 8: two steps on uneven slices, and one of 2 rows, less than there are devices
layers = keras.layers


@pytest.mark.parametrize("gpus", COUNTS)
def test_dense(gpus):
    assert_same_training(dense_model, random_rows(ROWS, 3), random_rows(ROWS, 2), compile=measured, gpus=gpus)


def test_convolutions():
    def build():
        return keras.Sequential(
            [
                keras.Input((6, 6, 2)),
                layers.Conv2D(3, 3, activation="tanh"),
                layers.SeparableConv2D(4, 2),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(3, activation="softmax"),
            ]
        )

    def compile():
        loss = "sparse_categorical_crossentropy"
        return {"optimizer": keras.optimizers.SGD(0.1), "loss": loss, "metrics": ["accuracy"]}

    assert_same_training(build, random_rows(ROWS, 6, 6, 2), random_ids(ROWS, below=3), compile=compile, only_fit=True)


# Several inputs and outputs -------------------------------------------------------------------------------------------


def two_towers() -> tuple[dict, dict]:
    """Inputs and outputs, by name, of a network that mixes two inputs and gives two outputs."""
    left, right = keras.Input((3,), name="left"), keras.Input((2,), name="right")
    mixed = layers.Concatenate()([layers.Dense(4, activation="tanh")(left), right])
    size = layers.Dense(1, name="size")(mixed)
    kind = layers.Dense(3, activation="softmax", name="kind")(mixed)
    return {"left": left, "right": right}, {"size": size, "kind": kind}


def losses_by_name() -> dict:
    return {
        "optimizer": keras.optimizers.SGD(0.1),
        "loss": {"size": "mse", "kind": "sparse_categorical_crossentropy"},
        "loss_weights": {"size": 0.3, "kind": 2.0},
        "metrics": {"size": ["mae", keras.metrics.RootMeanSquaredError()], "kind": ["accuracy"]},
    }


def named_inputs() -> dict[str, np.ndarray]:
    return {"left": random_rows(ROWS, 3), "right": random_rows(ROWS, 2, seed=1)}


def named_targets() -> dict[str, np.ndarray]:
    return {"size": random_rows(ROWS, 1, seed=2), "kind": random_ids(ROWS, 1, below=3)}


@pytest.mark.parametrize("gpus", [3, soak(8)])
def test_inputs_and_outputs_in_dicts(gpus):
    def build():
        return keras.Model(*two_towers())

    assert_same_training(build, named_inputs(), named_targets(), compile=losses_by_name, gpus=gpus)


def test_inputs_and_outputs_in_lists():
    def build():
        inputs, outputs = two_towers()
        return keras.Model(list(inputs.values()), list(outputs.values()))

    def compile():
        loss = ["mse", "sparse_categorical_crossentropy"]
        metrics = [["mae"], ["accuracy"]]
        return {"optimizer": "sgd", "loss": loss, "loss_weights": [0.3, 2.0], "metrics": metrics}

    x, y = list(named_inputs().values()), list(named_targets().values())
    assert_same_training(build, x, y, compile=compile, only_fit=True)


def test_list_outputs_with_losses_and_metrics_by_output_name():
    def build():
        inputs, outputs = two_towers()
        return keras.Model(inputs, list(outputs.values()))

    y = list(named_targets().values())
    assert_same_training(build, named_inputs(), y, compile=losses_by_name, only_fit=True)


def test_int_and_float_inputs():
    x = {"number": random_ids(ROWS, 1, below=5), "size": 10 * random_rows(ROWS, 2) + 7}

    def build():
        number, size = keras.Input((1,), dtype="int32", name="number"), keras.Input((2,), name="size")
        normalization = layers.Normalization()
        normalization.adapt(x["size"])
        features = [layers.Flatten()(layers.Embedding(5, 2)(number)), normalization(size)]
        return keras.Model({"number": number, "size": size}, layers.Dense(2)(layers.Concatenate()(features)))

    assert_same_training(build, x, random_rows(ROWS, 2), compile=mean_squared, only_fit=True)


# Models in models -----------------------------------------------------------------------------------------------------


def test_siamese_model_calls_one_nested_model_twice():
    def build():
        encoder = dense_model()
        left, right = keras.Input((3,)), keras.Input((3,))
        distance = layers.Subtract()([encoder(left), encoder(right)])
        return keras.Model([left, right], layers.Dense(1)(distance))

    x = [random_rows(ROWS, 3), random_rows(ROWS, 3, seed=1)]
    assert_same_training(build, x, random_rows(ROWS, 1), compile=mean_squared, only_fit=True)


def test_nested_models():
    def build():
        inner = keras.Sequential([keras.Input((2,)), dense_and_tanh(), dense_and_tanh()])
        image = keras.Input((3,))
        return keras.Model(image, layers.Dense(1)(inner(dense_model()(image))))

    assert_same_training(build, random_rows(ROWS, 3), random_rows(ROWS, 1), compile=mean_squared, only_fit=True)


def dense_and_tanh() -> keras.Model:
    return keras.Sequential([keras.Input((2,)), layers.Dense(2, activation="tanh")])


class Subclassed(keras.Model):
    """A model that is Python code: a residual block, a branch on `training`, outputs in a dict."""

    def __init__(self):
        super().__init__()
        self.inner = layers.Dense(3, activation="tanh")
        self.outer = layers.Dense(1)

    def call(self, x, training=False):
        output = self.outer(x + self.inner(x))
        return {"output": 1.5 * output if training else output}


@pytest.mark.quick
def test_subclassed_model():
    def build():
        model = Subclassed()
        model(np.zeros((1, 3), "float32"))
        return model

    assert_same_training(build, random_rows(ROWS, 3), {"output": random_rows(ROWS, 1)}, compile=mean_squared)


# Sequences ------------------------------------------------------------------------------------------------------------


MASKED = {
    "LSTM": layers.LSTM,
    "both ways": lambda units, **arguments: layers.Bidirectional(layers.GRU(units // 2, **arguments)),
}


@pytest.mark.parametrize(
    ("kind", "padding", "gpus"),
    [
        *[("both ways", "zeros anywhere", 3), soak("LSTM", "zeros anywhere", 8), soak("both ways", "right-padded", 3)],
        *[soak("LSTM", "zeros anywhere", 3), soak("LSTM", "right-padded", 3)],
    ],
)
def test_the_loss_sees_the_mask_of_an_embedding(kind, padding, gpus):
    ids, cudnn = PADDINGS[padding]

    def build():
        masked = layers.Embedding(6, 3, mask_zero=True)
        recurrent = MASKED[kind](4, return_sequences=True, **cudnn)
        return keras.Sequential([keras.Input((5,), dtype="int32"), masked, recurrent, layers.Dense(2)])

    x = ids(ROWS, 5, below=6)
    assert 0 < np.mean(x == 0) < 1
    assert_same_training(build, x, random_rows(ROWS, 5, 2), compile=mean_squared, gpus=gpus, only_fit=True)


def test_only_right_padded_ids_are_those_that_cudnn_takes():
    def taken(ids):
        counts = (ids != 0).astype("int32")
        return counts[:, 0].all() and (np.diff(counts) <= 0).all()

    found = {name: bool(taken(padding.ids(ROWS, 5, below=6))) for name, padding in PADDINGS.items()}
    assert found == {"zeros anywhere": False, "right-padded": True}


def test_recurrent_network_with_its_initial_state_as_an_input():
    def build():
        steps, state = keras.Input((5, 2), name="steps"), keras.Input((4,), name="state")
        sequence, last = layers.GRU(4, return_sequences=True, return_state=True)(steps, initial_state=state)
        return keras.Model({"steps": steps, "state": state}, [layers.Dense(1)(sequence), last])

    x = {"steps": random_rows(ROWS, 5, 2), "state": random_rows(ROWS, 4, seed=1)}
    y = [random_rows(ROWS, 5, 1), random_rows(ROWS, 4)]

    def compile():
        return {"optimizer": "sgd", "loss": ["mse", "mse"]}

    assert_same_training(build, x, y, compile=compile, only_fit=True)


@pytest.mark.soak  # masked ones are above
def test_bidirectional_recurrent_network():
    def build():
        return keras.Sequential([keras.Input((5, 2)), layers.Bidirectional(layers.SimpleRNN(2)), layers.Dense(1)])

    assert_same_training(build, random_rows(ROWS, 5, 2), random_rows(ROWS, 1), compile=mean_squared)


def test_attention():
    def build():
        words = keras.Input((5,), dtype="int32")
        embedded = layers.Embedding(6, 4, mask_zero=True)(words)
        attended = layers.MultiHeadAttention(num_heads=2, key_dim=3)(embedded, embedded)
        hidden = layers.LayerNormalization()(layers.Add()([embedded, attended]))
        return keras.Model(words, layers.Dense(1)(layers.GlobalAveragePooling1D()(hidden)))

    x = random_ids(ROWS, 5, below=6)
    x[:, 0] = 1  # one word that counts in every row
    assert_same_training(build, x, random_rows(ROWS, 1), compile=mean_squared, only_fit=True)


# State that a forward pass changes ------------------------------------------------------------------------------------


def test_spectral_normalization():
    def build():
        return keras.Sequential([keras.Input((3,)), layers.SpectralNormalization(layers.Dense(4)), layers.Dense(2)])

    assert_same_training(build, random_rows(ROWS, 3), random_rows(ROWS, 2), compile=mean_squared, only_fit=True)


class Counting(layers.Layer):
    """Passes its input on and counts its training calls."""

    def __init__(self):
        super().__init__()
        self.num_calls = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False)

    def call(self, x, training=False):
        if training:
            self.num_calls.assign_add(1)
        return x


def test_a_layer_counts_its_calls_as_on_one_device():
    def build():
        return keras.Sequential([keras.Input((3,)), Counting(), layers.Dense(2)])

    template = assert_same_training(build, random_rows(ROWS, 3), random_rows(ROWS, 2), compile=mean_squared)
    assert int(template.layers[0].num_calls.numpy()) == 3


# The yardstick itself -------------------------------------------------------------------------------------------------


def test_twins_with_other_weights_are_told_apart():
    biases = iter([0.0, 1e-3])

    def build():
        start = keras.initializers.Constant(next(biases))
        return keras.Sequential([keras.Input((3,)), layers.Dense(2, bias_initializer=start)])

    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_same_training(build, random_rows(ROWS, 3), random_rows(ROWS, 2), compile=mean_squared, gpus=2)
