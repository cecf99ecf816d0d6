"""Losses that layers add are those of one device, whatever they make of the rows of a batch."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from added_losses import (
    Adds,
    behind_a_large_table,
    behind_masks,
    behind_synchronized_statistics,
    in_a_branch,
    in_a_model_inside,
    in_a_shared_layer,
    in_the_template,
    masked_mean,
    of_activity_regularizers,
    of_inner_layers_without_rows,
    spread_of_rows,
    sum_of_squares,
)
from cases import soak, some
from equality import ONE_CALL, assert_same_training, mean_squared, on_one_device, random_ids, random_rows
from keras import ops

from multigpu import multi_gpu_model

X, Y = random_rows(18, 3), random_rows(18, 2, seed=1)
IDS = np.where(np.arange(6) < np.arange(18)[:, None] % 6 + 1, random_ids(18, 6, below=8) + 1, 0)  # uneven masks

LOSSES = {
    "mean over rows": lambda x, w: ops.mean(ops.square(x)),
    "sum over rows": sum_of_squares,
    "sum over columns, mean over rows": lambda x, w: ops.mean(ops.sum(ops.square(x), axis=-1)),
    "sum divided by rows": lambda x, w: ops.sum(ops.abs(x)) / ops.cast(ops.shape(x)[0], "float32"),
    "root of a mean": lambda x, w: ops.sqrt(ops.mean(ops.square(x))),
    "one value per row": lambda x, w: 0.1 * ops.sum(ops.square(x), axis=-1),
    "rows compared": spread_of_rows,
    "of weights only": lambda x, w: ops.sum(ops.square(w)),
    "mean with noise": lambda x, w: ops.mean(ops.square(x)) + ops.mean(keras.random.normal(ops.shape(x))),
    "sum with noise": lambda x, w: ops.sum(ops.square(x) * (0.01 + keras.random.normal(ops.shape(x)))),
}


@pytest.mark.parametrize("kinds", [[*LOSSES][:5], [*LOSSES][5:]], ids=["first", "second"])
def test_added_losses_are_those_of_one_device(kinds):
    def network():
        x = inputs = keras.Input((3,))
        for kind in kinds:
            x = Adds(LOSSES[kind])(keras.layers.Dense(4, activation="tanh")(x))
        return keras.Model(inputs, keras.layers.Dense(2)(x))

    # 18 rows in batches of 8: the last has 2, so that one of 3 replicas stands by
    assert_same_training(network, X, Y, compile=mean_squared, only_fit=True)


# Places in which a loss is added --------------------------------------------------------------------------------------

PLACES = {
    behind_synchronized_statistics: X,
    behind_masks: IDS,
    behind_a_large_table: IDS,
    in_a_shared_layer: [X, X[::-1].copy()],
    of_inner_layers_without_rows: X,
    in_a_branch: X,
    of_activity_regularizers: X,
    in_the_template: X,
    in_a_model_inside: X,
}


@pytest.mark.parametrize("build", some(PLACES, [place for place in PLACES if place is not behind_masks]))
def test_losses_are_exact_wherever_they_are_added(build):
    only_fit = build not in (in_the_template, behind_masks)
    assert_same_training(build, PLACES[build], Y, compile=mean_squared, only_fit=only_fit)


@pytest.mark.parametrize(
    ("build", "way"),
    [
        (behind_masks, {"run_eagerly": True}),
        soak(of_inner_layers_without_rows, {"run_eagerly": True}),
        (in_the_template, {"run_eagerly": True}),
        soak(in_a_shared_layer, {"jit_compile": True}),
        (in_the_template, {"jit_compile": True}),
        (behind_synchronized_statistics, {"steps_per_execution": 2}),
    ],
)
def test_losses_are_exact_in_every_way_of_running(build, way):
    ways = {"compile": lambda: {**mean_squared(), **way}, "gpus": 2, "only_fit": True}
    assert_same_training(build, PLACES[build], Y, **ways)


def test_losses_are_exact_in_mixed_precision():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        rough = {"rtol": 0.02, "atol": 0.01}  # of bfloat16, which sums over 2 devices may round otherwise
        ways = {"compile": mean_squared, "gpus": 2, "only_fit": True, "tolerance": rough}
        assert_same_training(in_a_shared_layer, PLACES[in_a_shared_layer], Y, **ways)
    finally:
        keras.config.set_dtype_policy("float32")


def of_words():
    words = keras.Input((1,), dtype="string")
    ids = keras.layers.StringLookup(vocabulary=["a", "b", "c"])(words)
    x = keras.layers.Flatten()(keras.layers.Embedding(4, 3)(ids))
    return keras.Model(words, keras.layers.Dense(2)(Adds(spread_of_rows)(Adds(sum_of_squares)(x))))


def test_losses_of_text_are_exact():
    words = tf.constant(np.array(["a", "b", "c", "d"])[random_ids(18, 1, below=4)])
    assert_same_training(of_words, words, tf.constant(Y), compile=mean_squared, gpus=3)


def of_sparse_rows():
    rows = keras.Input((3,), sparse=True)
    return keras.Model(rows, keras.layers.Dense(2)(Adds(sum_of_squares)(keras.layers.Dense(4)(rows))))


@pytest.mark.quick
def test_losses_of_sparse_inputs_are_exact():
    def batches():
        return tf.data.Dataset.from_tensor_slices((X, Y)).batch(8).map(lambda x, y: (tf.sparse.from_dense(x), y))

    losses = []
    for gpus in (None, 3):
        keras.utils.set_random_seed(0)
        model = of_sparse_rows()
        model = multi_gpu_model(model, gpus=gpus) if gpus else on_one_device(model)
        model.compile(**mean_squared())
        losses.append(model.fit(batches(), epochs=2, shuffle=False, verbose=0).history["loss"])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


class Counted(keras.layers.Layer):
    """Counts its calls."""

    calls = 0
    supports_masking = True

    def call(self, x):
        self.calls += 1
        return ops.copy(x)


@pytest.mark.parametrize(
    ("is_masked", "run_eagerly", "calls"),
    [(False, False, 1), (True, False, 1), (False, True, 4)],  # one trace; or two slices, and trials with 2 and 3 rows
)
def test_what_lies_before_an_added_loss_is_not_computed_again_for_the_global_batch(is_masked, run_eagerly, calls):
    x = IDS if is_masked else X
    inputs = keras.Input(x.shape[1:], dtype=str(x.dtype))
    before = Counted()
    given = before(keras.layers.Embedding(9, 4, mask_zero=True)(inputs) if is_masked else inputs)
    parallel = multi_gpu_model(keras.Model(inputs, Adds(masked_mean if is_masked else sum_of_squares)(given)), gpus=2)
    parallel.compile("sgd", run_eagerly=run_eagerly)
    parallel.train_on_batch(x[:8])
    before.calls = 0
    parallel.train_on_batch(x[:8] if run_eagerly else x[:9])  # traced, it is called for another number of rows
    assert before.calls == calls


class CallsOtherLayers(keras.layers.Layer):
    """Calls the first of two layers once, and then the second."""

    def __init__(self):
        super().__init__()
        self.both = [keras.layers.Dense(3), keras.layers.Dense(3)]
        self.calls = 0

    def build(self, shape):
        for layer in self.both:
            layer.build(shape)

    def call(self, x):
        self.calls += 1
        x = self.both[self.calls % 2](x)
        self.add_loss(ops.mean(ops.square(x)))
        return x


def test_a_layer_that_calls_other_layers_each_time_is_refused_by_name():
    inputs = keras.Input((3,))
    layer = CallsOtherLayers()
    parallel = multi_gpu_model(keras.Model(inputs, layer(inputs)), gpus=2)
    parallel.compile(**mean_squared())
    with pytest.raises(ValueError, match=r"Expected .* the same layers each time.* Received: 'dense"):
        parallel.fit(X, X, verbose=0)


class ChoosesByRows(keras.layers.Layer):
    """Calls one of two layers, as the numbers of its rows are."""

    def __init__(self):
        super().__init__()
        self.either = [keras.layers.Dense(3, name="below"), keras.layers.Dense(3, name="above")]

    def build(self, shape):
        for layer in self.either:
            layer.build(shape)

    def compute_output_shape(self, shape):
        return shape

    def call(self, x):
        return self.either[int(float(ops.sum(x)) > 0)](x)


def test_a_layer_that_calls_other_layers_for_each_slice_is_refused_by_name():
    inputs = keras.Input((3,))
    parallel = multi_gpu_model(keras.Model(inputs, Adds(sum_of_squares)(ChoosesByRows()(inputs))), gpus=2)
    parallel.compile(**mean_squared(), run_eagerly=True)
    rows = np.repeat(np.array([[1.0], [-1.0]], "float32"), [3, 3], axis=0) * np.ones((1, 3), "float32")
    with pytest.raises(ValueError, match=r"Expected .* the same layers each time.* Received: 'below'"):
        parallel.train_on_batch(rows, rows)


class Part(keras.layers.Layer):
    """Adds losses itself, and by its layers."""

    def __init__(self):
        super().__init__()
        self.inner = keras.layers.Dense(3, activity_regularizer=keras.regularizers.L1(0.1), kernel_regularizer="l2")
        self.regularized = keras.layers.ActivityRegularization(l2=0.3)

    def build(self, shape):
        self.inner.build(shape)

    def call(self, x):
        y = self.inner(x)
        self.add_loss(ops.max(y))
        self.add_loss(ops.mean(y))
        return self.regularized(y)


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_losses_are_in_the_order_of_one_device_where_a_part_is_called_twice(run_eagerly):
    inputs, part = keras.Input((3,)), Part()
    template = keras.Model(inputs, Adds(LOSSES["sum over rows"])(part(part(inputs))))
    parallel = multi_gpu_model(template, gpus=3)
    parallel.compile(run_eagerly=run_eagerly)
    template(X)
    expected = list(map(float, template.losses))
    parallel(X)
    assert len(expected) == 10
    np.testing.assert_allclose(list(map(float, parallel.losses)), expected, **ONE_CALL)


def test_what_only_predicts_adds_losses_too():
    template = in_the_template()
    parallel = multi_gpu_model(template, gpus=3)
    outputs = parallel(X)
    np.testing.assert_allclose(outputs, template(X), **ONE_CALL)


# Losses that depend on noise -----------------------------------------------------------------------------------------


class Noisy(keras.layers.Layer):
    """Adds noise and a loss of it, from a generator that others have as well, and keeps the largest."""

    def __init__(self, generator):
        super().__init__()
        self.generator = generator
        self.largest = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x):
        noise = keras.random.normal(ops.shape(x), seed=self.generator)
        self.largest.assign(ops.maximum(self.largest, ops.max(noise * x)))
        self.add_loss(0.1 * ops.sum(ops.sin(noise * x)))
        return x + 0.1 * noise


class Around(Noisy):
    """Draws before and after a layer that draws, from the same generator."""

    def __init__(self, generator):
        super().__init__(generator)
        self.inner = Noisy(generator)

    def call(self, x):
        inner = self.inner(x + keras.random.uniform(ops.shape(x), seed=self.generator))
        return super().call(super().call(inner))


class NoisyModel(keras.Model):
    """Draws itself, around layers that draw."""

    def __init__(self):
        super().__init__()
        self.generator = generator = keras.random.SeedGenerator(3)
        self.first, self.dropout, self.last = keras.layers.Dense(4), keras.layers.Dropout(0.5), keras.layers.Dense(2)
        self.twice, self.of_all, self.around = Noisy(generator), Noisy(None), Around(generator)

    def call(self, x):
        x = self.of_all(self.twice(self.dropout(self.first(x), training=True)))
        x = self.of_all(self.twice(self.around(x)))
        self.add_loss(ops.mean(ops.square(x * keras.random.normal(ops.shape(x), seed=self.generator))))
        return self.last(x + 0.1 * keras.random.normal(ops.shape(x), seed=self.generator))


def noisy():
    model = NoisyModel()
    model(X)
    return model


@pytest.mark.parametrize("way", [{}, {"run_eagerly": True}, {"steps_per_execution": 2}], ids=str)
def test_a_loss_of_noise_is_of_the_noise_of_one_device_whoever_draws_from_the_same_generator(way):
    assert_same_training(noisy, X, Y, compile=lambda: {**mean_squared(), **way})


class Slope(keras.layers.Layer):
    """Adds a loss of the slope of what it contains, as models that know physics do."""

    def __init__(self, unconnected):
        super().__init__()
        self.unconnected = unconnected
        self.inner = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(2)])

    def call(self, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = self.inner(x)
        slope = tape.gradient(y, x, unconnected_gradients=self.unconnected)
        self.add_loss(ops.mean((slope[:, :1] - 1.0) ** 2))
        return y


@pytest.mark.parametrize("unconnected", ["none", "zero"])
@pytest.mark.parametrize("nested", [False, True])
def test_a_layer_may_add_a_loss_of_a_gradient(unconnected, nested):
    def build():
        x = keras.Input((3,))
        layer = Slope(unconnected)
        return keras.Sequential([x, layer]) if nested else keras.Model(x, layer(keras.layers.Dense(3)(x)))

    assert_same_training(build, X, Y, compile=mean_squared)
