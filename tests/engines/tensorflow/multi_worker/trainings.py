"""Trainings whose numbers must be the same on several workers as on one device: those of all engines, and more."""

import traceback

import keras
import tensorflow as tf
import training_cases
from added_losses import Adds
from equality import Numbers, train
from keras import ops
from training_cases import IDS, OPTIMIZERS, WEIGHTS, X, Y, compiled, training

from multigpu import on_device


class Once(keras.layers.Layer):
    """Looks rows up by their places, and by each of the ids once."""

    def build(self, shape):
        self.places, self.table = (self.add_weight(shape=(n, 4)) for n in (6, 70_000))

    def call(self, ids):
        different, number = tf.unique(tf.reshape(ids, [-1]))
        rows = tf.reshape(tf.gather(tf.gather(self.table, different), number), [-1, 6, 4])
        of_places = ops.take(self.places, tf.range(tf.shape(ids)[1]), axis=0) + ops.take(self.places, ids % 6, axis=0)
        return rows + of_places


def places_and_different_ids() -> keras.Model:
    inputs = keras.Input((6,), dtype="int32")
    return keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Flatten()(Once()(inputs))))


class Encoding(keras.layers.Layer):
    """Numbers of a weight alone, which no row reaches."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(2, 2))

    def compute_output_shape(self, shape):
        return (1, 2)

    def call(self, x):
        return ops.sum(self.kernel, axis=0, keepdims=True)


def encoded() -> keras.Model:
    inputs = keras.Input((3,))
    encoding = Encoding()(inputs)
    return keras.Model(inputs, [keras.layers.Dense(2)(inputs) * encoding, encoding])


class Views(keras.layers.Layer):
    """Joins two views of a row along the first axis, in row order: two rows of the output for each row."""

    def call(self, x):
        return ops.reshape(ops.stack([x, 2 * x], axis=1), (-1, x.shape[1]))


def two_views() -> keras.Model:
    inputs = keras.Input((3,))
    return keras.Model(inputs, keras.layers.Dense(2)(Views()(inputs)))


def between_views(y, y_pred):
    first, second = ops.unstack(ops.reshape(y_pred, (-1, 2, 2)), axis=1)
    return ops.mean(ops.square(first - y) + ops.square(second - first), axis=-1)


def synchronized_statistics() -> keras.Model:
    inputs = keras.Input((3,))
    x = keras.layers.Dense(4)(inputs)
    x = keras.layers.BatchNormalization(synchronized=True)(x)
    return keras.Model(inputs, keras.layers.Dense(2)(x))


def classes() -> keras.Model:
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(3, "softmax")])


class CountsRows(keras.layers.Layer):
    """Updates metrics in its call."""

    def __init__(self):
        super().__init__()
        self.rows, self.mean = keras.metrics.Sum(name="rows"), keras.metrics.Mean(name="mean")

    def call(self, x):
        self.rows.update_state(ops.ones_like(x[:, 0]))
        self.mean.update_state(x[:, 0])
        return x


def metrics_of_layers() -> keras.Model:
    return keras.Sequential([keras.Input((3,)), CountsRows(), keras.layers.Dense(2)])


class LogsMore(keras.Sequential):
    """Tells a number that is no metric beside the metrics."""

    def train_step(self, data):
        return {**super().train_step(data), "rate": self.optimizer.learning_rate}


def more_logs() -> keras.Model:
    return LogsMore([keras.Input((3,)), keras.layers.Dense(2)])


class Largest(keras.metrics.Metric):
    """A state that is no sum over rows."""

    def __init__(self):
        super().__init__()
        self.largest = self.add_weight(initializer="zeros")

    def update_state(self, y, predicted, sample_weight=None):
        self.largest.assign(ops.maximum(self.largest, ops.max(ops.abs(y - predicted))))

    def result(self):
        return self.largest


class MeanOfLargest(keras.metrics.Mean):
    """A mean over steps of one number that depends on all rows."""

    def update_state(self, y, predicted, sample_weight=None):
        return super().update_state(ops.max(ops.abs(y - predicted)))


def statistics_of_slices() -> keras.Model:
    inputs = keras.Input((3,))
    x = keras.layers.BatchNormalization()(keras.layers.Dense(4)(inputs))
    return keras.Model(inputs, keras.layers.Dense(2)(x))


TRAININGS = {
    **training_cases.TRAININGS,
    "positions, and ids that come once": training(
        places_and_different_ids, IDS, compile=compiled(optimizer=lambda: keras.optimizers.Adam(0.1)), only_fit=True
    ),
    "an output that no row reaches": training(encoded, X, [Y, Y], compiled(loss=["mse", "mse"]), only_fit=True),
    "op by op, an output that no row reaches, as long as the rows of a worker": training(
        encoded, X[:5], [Y[:5]] * 2, compiled(loss=["mse", "mse"], run_eagerly=True), only_fit=True, batch_size=2
    ),
    "two rows of the output for each row": training(two_views, compile=compiled(lambda: between_views), only_fit=True),
    "op by op, two rows of the output for each row": training(
        two_views, X[:5], Y[:5], compiled(lambda: between_views, run_eagerly=True), only_fit=True, batch_size=2
    ),
    "a class that does not count": training(
        classes, X, Y[:, :1] > 0, compiled(lambda: keras.losses.SparseCategoricalCrossentropy(ignore_class=1))
    ),
    "a loss that is not reduced": training(
        compile=compiled(lambda: keras.losses.MeanSquaredError(reduction=None)), sample_weight=WEIGHTS, only_fit=True
    ),
    "metrics of one's own classes": training(compile=compiled(metrics=lambda: [Largest(), MeanOfLargest()])),
    "metrics of layers": training(metrics_of_layers),
    "a log beside the metrics": training(more_logs, compile=compiled(metrics=["mae"]), only_fit=True),
    "synchronized statistics": training(synchronized_statistics, only_fit=True),
}
ROWS = 8  # of a batch: where workers and devices divide them, slices are the same on one worker and on several
SLICED = {"statistics of slices": training(statistics_of_slices, X[:24], Y[:24], batch_size=ROWS)}


def in_parts() -> keras.Model:
    """Two parts, with statistics of all slices of all workers."""
    inputs = keras.Input((3,))
    with on_device("CPU:0"):
        x = keras.layers.BatchNormalization(synchronized=True)(keras.layers.Dense(4)(inputs))
        x = Adds(lambda x, w: 0.01 * ops.sum(ops.square(x)))(x)
    with on_device("CPU:1"):
        x = keras.layers.BatchNormalization(synchronized=True)(keras.layers.Dense(3, activation="tanh")(x))
    return keras.Model(inputs, keras.layers.Dense(2)(x))


GROUPED = {"a model in parts": training(in_parts, compile=compiled(), only_fit=True)}


def train_all(names: list[str], gpus: int | None) -> dict[str, Numbers | str]:
    """The numbers of several trainings, or an error; with `gpus` on so many devices of each worker."""
    return {name: _train(name, gpus) for name in names}


def _train(name: str, gpus: int | None) -> Numbers | str:
    try:
        devices = [["CPU:0", "CPU:1"]] * 2 if gpus and name in GROUPED else gpus
        given = {**TRAININGS, **OPTIMIZERS, **SLICED, **GROUPED}[name]
        return train(**given, gpus=devices, as_arrays=True)[1]  # which workers deal among them
    except Exception:
        return traceback.format_exc()  # so that the other trainings are tested
