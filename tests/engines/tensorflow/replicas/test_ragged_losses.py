"""Losses that layers add for ragged inputs are those of one device: of all values, however many each slice has."""

import keras
import pytest
import tensorflow as tf
from cases import soak
from equality import Chain, assert_same_training, mean_squared, random_ids, random_rows
from keras import layers, ops

LENGTHS = [3, 1, 2, 0, 0, 0, 1] * 3 + [2]  # on 3 devices: slices with other longest rows, or without any value
X = tf.RaggedTensor.from_row_lengths(random_ids(sum(LENGTHS), below=4), LENGTHS)
Y = tf.constant(random_rows(len(LENGTHS), 2))


def sum_of_squares(x):
    return 0.1 * ops.sum(ops.square(x))


def mean_of_squares(x):
    return ops.mean(ops.square(x))


class Embeds(layers.Layer):
    """Two numbers for each value."""

    def build(self, shape):
        self.table = self.add_weight(shape=(4, 2), name="table")

    def compute_output_spec(self, x):
        return keras.KerasTensor((None, None, 2), ragged=True)

    def call(self, x):
        return tf.ragged.map_flat_values(lambda ids: tf.gather(self.table, ids), x)


class Adds(layers.Layer):
    """Adds a loss of the values that it is given, ragged or padded, and of a weight of its own."""

    def __init__(self, loss):
        super().__init__()
        self.loss = loss

    def build(self, shape):
        self.scale = self.add_weight(shape=(2,), initializer="ones", name="scale")

    def compute_output_spec(self, x):
        return keras.KerasTensor(x.shape, ragged=x.ragged)

    def call(self, x):
        scaled = tf.ragged.map_flat_values(lambda values: values * self.scale, x)
        self.add_loss(self.loss(scaled.flat_values if isinstance(scaled, tf.RaggedTensor) else scaled))
        return scaled


class Pads(layers.Layer):
    """As wide as the longest row."""

    def call(self, x):
        return x.to_tensor()


class Sums(layers.Layer):
    """One vector per row."""

    def compute_output_spec(self, x):
        return keras.KerasTensor((None, 2))

    def call(self, x):
        return tf.reduce_sum(x, axis=1)


class TakesApart(layers.Layer):
    """Gives values, and where rows begin among them."""

    def call(self, x):
        return x.flat_values, x.row_splits


class AddsOfParts(layers.Layer):
    """Adds losses of what an inner layer took apart."""

    def __init__(self):
        super().__init__()
        self.inner = TakesApart()

    def call(self, x):
        values, splits = self.inner(x)
        together = tf.RaggedTensor.from_row_splits(values, splits, validate=False)
        self.add_loss(sum_of_squares(values))
        self.add_loss(mean_of_squares(tf.reduce_sum(together, axis=1)))
        return together


def chain(*make):
    def build():
        model = Chain(*(part() for part in make), Sums(), layers.Dense(2))
        model(X[:3])
        return model

    return build


def functional():
    x = keras.Input((None,), ragged=True, dtype="int32")
    return keras.Model(x, layers.Dense(2)(Sums()(Adds(mean_of_squares)(Adds(sum_of_squares)(Embeds()(x))))))


both = (lambda: Adds(sum_of_squares), lambda: Adds(mean_of_squares))
MODELS = {
    "ragged": chain(Embeds, *both),
    "padded by a layer before": chain(Embeds, Pads, *both),
    "padded, and computed with": chain(Embeds, Pads, lambda: layers.Dense(2, use_bias=False), *both),
    "taken apart by an inner layer": chain(Embeds, AddsOfParts),
    "functional": functional,
}


TRACED = ["padded by a layer before", "padded, and computed with", "functional"]


@pytest.mark.parametrize(
    ("model", "gpus", "run_eagerly"),
    [
        *((model, 3, model not in TRACED) for model in MODELS if model != "padded by a layer before"),
        soak("padded by a layer before", 3, False),
        *(soak(model, 3, model in TRACED) for model in MODELS),
        *[soak("ragged", 2, False), soak("ragged", 2, True)],
    ],
)
def test_sums_and_means_over_ragged_values_are_those_of_one_device(model, gpus, run_eagerly):
    def compiled():
        return {**mean_squared(), "run_eagerly": run_eagerly}

    assert_same_training(MODELS[model], X, Y, compile=compiled, batch_size=7, gpus=gpus, only_fit=True)


class Splits(layers.Layer):
    """Ids of the words of a text, as many as the longest one has."""

    def call(self, x):
        return tf.strings.to_hash_bucket_fast(tf.strings.split(x[:, 0]).to_tensor(), 4)


class First(layers.Layer):
    """The first word of each text, whatever the others are padded with."""

    def call(self, x):
        return x[:, 0]


@pytest.mark.parametrize("gpus", [soak(2), 3])
def test_so_are_those_of_texts_that_the_model_splits(gpus):
    texts = tf.constant([[" ".join("abcd"[: 1 + row % 3])] for row in range(22)])

    def build():
        model = Chain(Splits(), layers.Embedding(4, 2), *(part() for part in both), First(), layers.Dense(2))
        model(texts)
        return model

    assert_same_training(build, texts, Y, compile=mean_squared, batch_size=7, gpus=gpus, only_fit=True)
