"""Losses of every kind have the value and the gradients of one device, also on uneven slices."""

import importlib

import keras
import numpy as np
import pytest
from cases import soak
from equality import assert_same_training, dense_model, mean_squared, random_ids, random_rows

ROWS = 18  # with batches of 8: two steps on uneven slices, and one of 2 rows, less than there are devices
layers = keras.layers
BACKEND = importlib.import_module(keras.backend.backend())


def with_loss(loss):
    """Arguments of `compile` for a loss."""
    return lambda: {"optimizer": keras.optimizers.SGD(0.1), "loss": loss, "weighted_metrics": ["mae"]}


# Losses of the output -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "gpus"),
    [
        soak("mae", 2),
        (keras.losses.Huber(0.1), 3),
        soak(keras.losses.CosineSimilarity(), 4),
        (keras.losses.MeanSquaredError(reduction="sum"), 8),
    ],
)
def test_built_in_loss(loss, gpus):
    ways = {"compile": with_loss(loss), "gpus": gpus, "only_fit": gpus != 8}
    assert_same_training(dense_model, random_rows(ROWS, 3), random_rows(ROWS, 2), **ways)


def quartic(y_true, y_pred):
    return keras.ops.mean((y_true - y_pred) ** 4, axis=-1)


def error_per_spread(y_true, y_pred):
    """A loss of the batch as a whole: no mean over slices gives it."""
    return keras.ops.mean(keras.ops.abs(y_true - y_pred)) / keras.ops.std(y_pred)


def ranking(y_true, y_pred):
    """Compares every row with every other one."""
    wanted = keras.ops.sign(y_true[:, None] - y_true[None])
    return keras.ops.mean(keras.ops.softplus(-wanted * (y_pred[:, None] - y_pred[None])))


def error_of_the_last_row(y_true, y_pred):
    """Takes one row of the batch: what TensorFlow gives for a gradient of the outputs is a row, too."""
    last = [keras.ops.shape(y_true)[0] - 1]
    return keras.ops.mean(keras.ops.abs(keras.ops.take(y_true, last, axis=0) - keras.ops.take(y_pred, last, axis=0)))


OWN = [
    soak(quartic, 2),
    soak(error_per_spread, 3),
    (error_per_spread, 8),
    (ranking, 4),
    (error_of_the_last_row, 3),
]


@pytest.mark.parametrize(("loss", "gpus"), OWN)
def test_own_loss(loss, gpus):
    x, y = random_rows(ROWS, 3), random_rows(ROWS, 2)
    assert_same_training(dense_model, x, y, compile=with_loss(loss), gpus=gpus, only_fit=True)


@pytest.mark.parametrize("gpus", [3, soak(8)])
def test_loss_of_a_masked_output(gpus):
    def build():
        masking = layers.Masking()
        return keras.Sequential([keras.Input((4, 2)), masking, layers.Dense(3, activation="tanh"), layers.Dense(1)])

    x = random_rows(ROWS, 4, 2)
    x[random_ids(ROWS, 4, below=2) == 0] = 0  # about half of the time steps, unevenly over the rows
    assert_same_training(build, x, random_rows(ROWS, 4, 1), compile=with_loss("mse"), gpus=gpus)


class OwnOutput(keras.Model):
    """Ends in the function of TensorFlow or JAX rather than in that of Keras."""

    def __init__(self, units, activation):
        super().__init__()
        self.dense, self.activation = layers.Dense(units), getattr(BACKEND.nn, activation)

    def call(self, x):
        return self.activation(self.dense(x))


def ending_in(activation, units, own):
    if own:
        model = OwnOutput(units, activation)
        model(np.zeros((1, 3)))
        return model
    return keras.Sequential([keras.Input((3,)), layers.Dense(units, activation=activation)])


SURE = {"softmax": (2, "sparse_categorical_crossentropy"), "sigmoid": (1, "binary_crossentropy")}


@pytest.mark.parametrize(
    ("activation", "own", "run_eagerly"),
    [  # each pair of two of the three: an orthogonal array of strength 2
        *[("softmax", False, False), ("softmax", True, True), ("sigmoid", False, True), ("sigmoid", True, False)],
        *[soak("softmax", False, True), soak("softmax", True, False)],
        *[soak("sigmoid", False, False), soak("sigmoid", True, True)],
    ],
)
def test_crossentropy_of_probabilities_that_round_to_0_or_1(activation, own, run_eagerly):
    """Keras takes it of the logits, which are not rounded; of the probabilities, their gradient would be 0."""
    units, loss = SURE[activation]

    def compile():
        optimizer = keras.optimizers.SGD(0.1)
        return {"optimizer": optimizer, "loss": loss, "weighted_metrics": [loss], "run_eagerly": run_eagerly}

    x = 60 * random_rows(ROWS, 3)
    y = random_ids(ROWS, 1, below=2)
    assert_same_training(lambda: ending_in(activation, units, own), x, y, compile=compile, only_fit=True)


class Endpoint(layers.Layer):
    """Adds the crossentropy of probabilities that it is given."""

    def call(self, given):
        y_true, y_pred = given
        self.add_loss(keras.ops.mean(keras.losses.sparse_categorical_crossentropy(y_true, y_pred)))
        return y_pred


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_a_layer_that_adds_a_crossentropy_takes_the_logits_of_its_input(run_eagerly):
    def build():
        x, y = keras.Input((3,)), keras.Input((1,), dtype="int32")
        return keras.Model([x, y], Endpoint()([y, layers.Dense(2, activation="softmax")(x)]))

    def compile():
        return {"optimizer": keras.optimizers.SGD(0.1), "run_eagerly": run_eagerly}

    x = [60 * random_rows(ROWS, 3), random_ids(ROWS, 1, below=2)]
    assert_same_training(build, x, None, compile=compile, only_fit=True)


# Losses of layers and weights -----------------------------------------------------------------------------------------


class AddsLoss(layers.Layer):
    """Passes its input on and asks for it to be small."""

    def call(self, x):
        self.add_loss(0.3 * keras.ops.mean(keras.ops.square(x)))
        return x


@pytest.mark.parametrize("gpus", [soak(3), 8])
def test_add_loss(gpus):
    def build():
        return keras.Sequential([keras.Input((3,)), layers.Dense(4), AddsLoss(), layers.Dense(2), AddsLoss()])

    assert_same_training(build, random_rows(ROWS, 3), random_rows(ROWS, 2), compile=mean_squared, gpus=gpus)


@pytest.mark.quick
def test_add_loss_alone():
    def build():
        return keras.Sequential([keras.Input((3,)), layers.Dense(2), AddsLoss()])

    def compile():
        return {"optimizer": keras.optimizers.SGD(0.1)}

    assert_same_training(build, random_rows(ROWS, 3), None, compile=compile)


def test_weight_regularizers_count_once():
    def build():
        hidden = layers.Dense(4, kernel_regularizer=keras.regularizers.L1(0.1), bias_regularizer="l2")
        output = layers.Dense(2, kernel_regularizer=keras.regularizers.L1L2(0.05, 0.1))
        return keras.Sequential([keras.Input((3,)), hidden, output])

    assert_same_training(build, random_rows(ROWS, 3), random_rows(ROWS, 2), compile=mean_squared, only_fit=True)


def test_activity_regularizers():
    def build():
        hidden = layers.Dense(4, activity_regularizer=keras.regularizers.L2(0.1))
        return keras.Sequential([keras.Input((3,)), hidden, layers.ActivityRegularization(l1=0.05), layers.Dense(2)])

    assert_same_training(build, random_rows(ROWS, 3), random_rows(ROWS, 2), compile=mean_squared, only_fit=True)


def test_regularizers_of_a_layer_that_is_called_twice():
    def build():
        shared = layers.Dense(3, kernel_regularizer="l2", activity_regularizer="l1")
        inputs = keras.Input((3,))
        return keras.Model(inputs, layers.Dense(2)(shared(shared(inputs))))

    assert_same_training(build, random_rows(ROWS, 3), random_rows(ROWS, 2), compile=mean_squared, only_fit=True)


# Weights of rows ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpus", [3, soak(8)])
def test_sample_weight(gpus):
    weight = np.linspace(0, 2, ROWS, dtype="float32")
    assert_same_training(
        dense_model,
        random_rows(ROWS, 3),
        random_rows(ROWS, 2),
        compile=with_loss("mse"),
        gpus=gpus,
        sample_weight=weight,
    )


def test_sample_weight_per_time_step_of_a_masked_output():
    def build():
        return keras.Sequential([keras.Input((4, 2)), layers.Masking(), layers.Dense(1)])

    x = random_rows(ROWS, 4, 2)
    x[random_ids(ROWS, 4, below=3) == 0] = 0
    weight = np.abs(random_rows(ROWS, 4, seed=1))
    ways = {"compile": with_loss("mse"), "sample_weight": weight, "only_fit": True}
    assert_same_training(build, x, random_rows(ROWS, 4, 1), **ways)


def test_class_weight():
    def build():
        return keras.Sequential([keras.Input((3,)), layers.Dense(3, activation="softmax")])

    def compile():
        return {"optimizer": keras.optimizers.SGD(0.1), "loss": "sparse_categorical_crossentropy"}

    weights = {0: 0.2, 1: 1.0, 2: 3.0}
    y = random_ids(ROWS, below=3)
    assert_same_training(build, random_rows(ROWS, 3), y, compile=compile, class_weight=weights, only_fit=True)


def test_sample_weight_per_output():
    def build():
        inputs = keras.Input((3,))
        return keras.Model(inputs, {"size": layers.Dense(1)(inputs), "place": layers.Dense(2)(inputs)})

    def compile():
        return {"optimizer": keras.optimizers.SGD(0.1), "loss": {"size": "mae", "place": "mse"}}

    y = {"size": random_rows(ROWS, 1), "place": random_rows(ROWS, 2)}
    weight = {"size": np.linspace(0, 1, ROWS), "place": np.linspace(3, 1, ROWS)}
    assert_same_training(build, random_rows(ROWS, 3), y, compile=compile, sample_weight=weight)
