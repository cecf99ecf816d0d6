"""What JAX does in addition to `tests/exactness`: layers that look across rows, or draw, give what one device gives.

Weights of these models are divided among the devices as those of large models are.
"""

import jax
import keras
import numpy as np
import pytest
from equality import assert_same_training, random_ids, random_rows
from function_layer import FunctionLayer
from keras import layers, ops
from scipy import sparse

from multigpu import multi_gpu_model, synchronize_batch_norm

ROWS = 13  # in batches of 6: 6, 6 and 1


@pytest.fixture(autouse=True)
def divided(monkeypatch):
    monkeypatch.setattr("multigpu.engines.jax.layout.SMALLEST", 2)


def sgd():
    return {"optimizer": keras.optimizers.SGD(0.1, momentum=0.9), "loss": "mse"}


def assert_same(build, x, **options):
    given = {"gpus": 8, "batch_size": 6, "compile": sgd, **options}
    return assert_same_training(build, x, random_rows(len(x), 3, seed=1), **given)


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
    """Gives what depends on a sum over the rows it has seen, and counts them."""

    def build(self, shape):
        self.total = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False)
        self.rows = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False)

    def call(self, x):
        self.total.assign(self.total + ops.sum(x, axis=0))
        self.rows.assign(self.rows + ops.shape(x)[0])
        return x + 0.01 * self.total


def over(*middle):
    return lambda: keras.Sequential([keras.Input((5,)), layers.Dense(8), *[make() for make in middle], layers.Dense(3)])


class LooksUp(layers.Layer):
    """Each row, and one more row of the same table, which is also the last layer's kernel."""

    def __init__(self, one):
        super().__init__()
        self.one = one

    def build(self, shape):
        self.table = self.add_weight(shape=(24, 8))

    def call(self, ids):
        table = ops.convert_to_tensor(self.table)
        x = ops.mean(ops.take(table, ids, axis=0), axis=1) + self.one(table)
        return 0.1 * ops.tanh(x) @ ops.transpose(table)


ONE = {
    "an array of one index": lambda table: ops.take(table, np.zeros((1, 1), "int32"), axis=0)[0],
    "a number": lambda table: ops.take(table, 17, axis=0),
    "an index in brackets": lambda table: table[5],
    "a slice": lambda table: table[5:6],
    "a slice of two": lambda table: ops.sum(table[11:13], axis=0),
    "a segment": lambda table: ops.segment_sum(table[:1] ** 2, np.array([0]), 1),
    "an update of one row": lambda table: ops.sum(ops.slice_update(table, (7, 0), table[:1]) ** 2, axis=0),
    "a scatter of one row": lambda table: ops.sum(ops.scatter_update(table, [[7]], table[:1]) ** 2, axis=0),
}


def looks_up(one):
    return lambda: keras.Sequential([keras.Input((4,), dtype="int32"), LooksUp(ONE[one]), layers.Dense(3)])


@pytest.mark.parametrize("gpus", [3, 8])
@pytest.mark.parametrize("one", ONE)
def test_one_row_of_a_table_beside_others(one, gpus):
    assert_same(looks_up(one), random_ids(ROWS, 4, below=24), gpus=gpus)


@pytest.mark.parametrize("one", ["an array of one index", "a scatter of one row"])
def test_one_row_of_a_table_in_a_loop_of_ones_own(one):
    """Nothing of the gradient passes through multigpu."""
    ids, y = random_ids(9, 4, below=24), random_rows(9, 3)

    def trained(gpus):
        keras.utils.set_random_seed(0)
        template = looks_up(one)()
        model = multi_gpu_model(template, gpus) if gpus else template

        def loss(weights, ids, y):
            return ops.mean((model.stateless_call(weights, [], ids)[0] - y) ** 2)

        @jax.jit
        def step(weights, ids, y):
            return [w - 0.1 * g for w, g in zip(weights, jax.grad(loss)(weights, ids, y), strict=True)]

        weights = [variable.value for variable in template.trainable_variables]
        for rows in (9, 8, 1):
            weights = step(weights, ids[:rows], y[:rows])
        return weights

    for weight, expected in zip(trained(3), trained(None), strict=True):
        np.testing.assert_allclose(weight, expected, rtol=1e-5, atol=1e-6)


DENSE = {
    "batch normalization": over(layers.BatchNormalization),
    "dropout": over(lambda: layers.Dropout(0.5)),
    "noise": over(lambda: layers.GaussianNoise(0.3), lambda: layers.AlphaDropout(0.2)),
    "row mixing": over(MixesRows),
    "added loss of all rows": over(AddsLoss, lambda: layers.ActivityRegularization(0.01)),
    "state that outputs depend on": over(Counts),
    "random shuffles": over(lambda: layers.Lambda(lambda x: keras.random.shuffle(x, seed=3))),
}


@pytest.mark.parametrize("kind", DENSE)
@pytest.mark.parametrize("rows", [1, 6])
def test_layers(kind, rows):
    assert_same(DENSE[kind], random_rows(ROWS, 5), batch_size=rows)


def test_statistics_need_not_be_synchronized():
    """Keras would refuse a layer that says so, in a file too."""
    model = synchronize_batch_norm(DENSE["batch normalization"]())
    assert [layer.synchronized for layer in model.layers[1:2]] == [False]


def test_dropout_is_the_same_bit_for_bit(monkeypatch):
    monkeypatch.setattr("multigpu.engines.jax.layout.SMALLEST", 2048)  # a seed is never divided

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


def test_a_conv_net_with_normalization():
    assert_same(conv, random_rows(ROWS, 9, 9, 3))


def positions(number, frozen=False):
    """Return a maker of a convolution whose flat result 8 devices divide, but none of the axes that it is made from."""

    def build():
        inputs = keras.Input((number, 8))
        x = layers.Conv1D(8, 2, padding="causal")(layers.Dense(8)(inputs))
        return keras.Model(inputs, layers.Dense(3, trainable=not frozen)(layers.Flatten()(x)))

    return build


def images():
    inputs = keras.Input((6, 10, 2))
    x = layers.MaxPooling2D(2, 1)(layers.Conv2D(8, 3, padding="same")(layers.Dense(4)(inputs)))
    return keras.Model(inputs, layers.Dense(3)(layers.Flatten()(x)))


@pytest.mark.parametrize("gpus", [4, 8])
@pytest.mark.parametrize("number", [4, 6, 10])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_convolution_before_a_dense_layer_that_devices_divide(number, gpus, frozen):
    """Here XLA gives wrong gradients, off by as much as they are, if it divides positions as the weights."""
    assert_same(positions(number, frozen), random_rows(ROWS, number, 8), gpus=gpus)


@pytest.mark.parametrize("jit_compile", [True, False])
def test_images_before_a_dense_layer_that_devices_divide(jit_compile):
    assert_same(images, random_rows(ROWS, 6, 10, 2), compile=lambda: {**sgd(), "jit_compile": jit_compile})


MOVES = {
    "sums along an axis": lambda x: 0.3 * ops.cumsum(x, axis=1),
    "rows in another order": lambda x: ops.roll(x, 1, axis=0) + x[::-1],
    "an update at one index": lambda x: x.at[:, np.array([3])].add(x[:, :1]),
    "the largest": lambda x: ops.top_k(ops.transpose(x, (0, 2, 1)), 4)[0],
    "repeated": lambda x: ops.tile(x, (1, 2, 1)),
    "a factorization": lambda x: ops.cholesky(x @ ops.transpose(x, (0, 2, 1)) + ops.eye(10)),
}


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("attention", [False, True])
def test_numbers_move_before_a_dense_layer_that_devices_divide(move, attention):
    """Here XLA gives wrong gradients, or an error, if it divides the axis as the weights."""

    def build():
        inputs = keras.Input((10, 5))
        x = layers.Dense(8, "tanh")(inputs)
        x = layers.MultiHeadAttention(2, 16)(x, x) if attention else x
        return keras.Model(inputs, layers.Dense(3)(layers.Flatten()(layers.Lambda(MOVES[move])(x))))

    def loss(y, outputs):
        return ops.mean(ops.square(ops.mean(y) - outputs))

    assert_same(build, random_rows(9, 10, 5), compile=lambda: {**sgd(), "loss": loss}, batch_size=3)


@pytest.mark.parametrize("gpus", [4, 8])
def test_a_convolution_whose_gradient_comes_from_another_shape(gpus):
    """Here XLA gives a wrong gradient if it divides the channels as the kernel's new value."""

    def build():
        inputs = keras.Input((8, 9, 2))
        x = layers.Flatten()(layers.Conv2D(8, 2, padding="same")(inputs))
        return keras.Model(inputs, layers.Dense(3)(layers.GlobalAveragePooling2D()(layers.Reshape((8, 9, 8))(x))))

    assert_same(build, random_rows(ROWS, 8, 9, 2), gpus=gpus)


def in_groups():
    return keras.Sequential([keras.Input((6, 8)), layers.Conv1D(8, 2, groups=4), layers.Flatten(), layers.Dense(3)])


@pytest.mark.parametrize("rows", [2, 4])
def test_a_grouped_convolution_of_fewer_rows_than_devices(rows):
    """Where several devices have the same rows, XLA counts each of them in the gradient."""
    given = {"compile": lambda: {**sgd(), "jit_compile": False}, "batch_size": rows, "gpus": 8}
    assert_same(in_groups, random_rows(3 * rows, 6, 8), **given)


class Frames(keras.layers.Layer):
    """Makes two images of each row, for a convolution in groups."""

    def __init__(self):
        super().__init__()
        self.conv = layers.SeparableConv1D(8, 2)

    def call(self, x):
        return ops.reshape(self.conv(ops.reshape(x, (-1, 3, 8))), (-1, 32))


@pytest.mark.parametrize(("gpus", "rows"), [(4, 6), (6, 4)])
def test_a_grouped_convolution_of_more_rows_than_the_batch_has(gpus, rows):
    """Here XLA itself gives several devices the same rows."""

    def build():
        return keras.Sequential([keras.Input((6, 8)), Frames(), layers.Dense(3)])

    assert_same(build, random_rows(3 * rows, 6, 8), gpus=gpus, batch_size=rows)


class Columns(keras.layers.Layer):
    """Makes a row of each feature, of every other row of the batch."""

    def call(self, x):
        return ops.reshape(ops.transpose(x[::2]), (24, 2, 2))


def test_a_reshape_of_an_axis_with_uneven_rows():
    """XLA divides four rows on the second axis among six devices, and gives wrong weights if that axis is split."""

    def build():
        inputs = keras.Input((6,), batch_size=8)
        x = layers.Conv1D(4, 2, padding="same")(Columns()(layers.Dense(24)(inputs)))
        return keras.Model(inputs, layers.Dense(3)(layers.Flatten()(x)))

    def loss(y, outputs):
        return ops.mean(ops.square(ops.sin(3 * outputs) - ops.mean(y)))

    given = {"compile": lambda: {**sgd(), "loss": loss}, "batch_size": 8, "gpus": 6, "only_fit": True}
    assert_same(build, random_rows(24, 6), **given)


class FilteredWeight(keras.layers.Layer):
    """Multiplies rows by a weight, from which it takes the mean of some frequencies."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(4, 64, shape[-1]), initializer="he_normal")

    def call(self, x):
        frequencies = jax.numpy.fft.fft(self.kernel.value, axis=-1)
        return x @ jax.numpy.real(jax.numpy.fft.ifft(0.9 * frequencies, axis=-1)).mean(0).T


def test_a_fourier_transform_of_a_weight_and_back():
    """XLA for CPUs refuses it if the first axis of the weight is divided."""

    def build():
        return keras.Sequential([keras.Input((48,)), FilteredWeight(), layers.Dense(3)])

    assert_same(build, random_rows(21, 48), gpus=8, batch_size=7)


@pytest.mark.parametrize("gpus", [4, 8])
@pytest.mark.parametrize("rows", [2, 4, 12, 16])
@pytest.mark.parametrize("build", [positions(6), in_groups], ids=["whole", "in groups"])
def test_a_convolution_in_a_loop_of_ones_own(build, rows, gpus):
    def gradients(parallel):
        keras.utils.set_random_seed(1)
        model = build()
        used = multi_gpu_model(model, gpus) if parallel else model
        x, y = random_rows(rows, 6, 8), random_rows(rows, 3, seed=1)

        def loss(weights, x):
            return ops.mean(ops.square(used.stateless_call(weights, [], x)[0] - y))

        return jax.jit(jax.grad(loss))([v.value for v in used.trainable_variables], x)

    for one, other in zip(gradients(True), gradients(False), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def rows_shifted(x):
    first, rest = ops.split(x, [1], axis=0)
    return ops.pad(first, [[x.shape[0] - 1, 0], [0, 0]]) + ops.pad(rest, [[0, 1], [0, 0]])


def gradient_of_a_roll(x):
    return jax.grad(lambda x: ops.sum(ops.roll(x, 1, axis=0) ** 2 * x))(x)


def rows_cut_off(x):
    def padded(low, high):
        return jax.lax.pad(x, 0.0, [(low, high, 0), (0, 0, 0)])

    all_but_one = 1 - x.shape[0]
    one_first = ops.concatenate([padded(all_but_one, 0), padded(0, -1)])
    return one_first + ops.concatenate([padded(-1, 0), padded(0, all_but_one)])


@pytest.mark.parametrize("smallest", [2, 2048], ids=["divided", "copied"])
@pytest.mark.parametrize(("rows", "gpus"), [(4, 4), (8, 4), (8, 8), (3, 3)])
@pytest.mark.parametrize("move", [rows_shifted, gradient_of_a_roll, rows_cut_off])
def test_rows_move_where_a_batch_has_the_shape_of_a_weight(move, rows, gpus, smallest, monkeypatch):
    monkeypatch.setattr("multigpu.engines.jax.layout.SMALLEST", smallest)

    def build():
        middle = layers.Dense(4), FunctionLayer(move)
        return keras.Sequential([keras.Input((rows,)), *middle, layers.Dense(3)])

    assert_same(build, random_rows(3 * rows, rows), gpus=gpus, batch_size=rows)


def running(x):
    """Each row depends on those before it: c = sigmoid(x)·c + x."""

    def joined(one, other):
        return one[0] * other[0], other[0] * one[1] + other[1]

    return ops.associative_scan(joined, (ops.sigmoid(x), x), axis=0)[1]


def every_other_row(x):
    return ops.repeat(x[::2], 2, axis=0)[: x.shape[0]] + ops.concatenate([x[::3], x[1::3], x[2::3]])


def rows_between_others(x):
    first = x[: (x.shape[0] + 1) // 2]
    return jax.lax.pad(first, 0.0, [(0, 1 - x.shape[0] % 2, 1), (0, 0, 0)]) + x


@pytest.mark.parametrize(("rows", "gpus"), [(5, 3), (16, 3), (17, 8), (4, 4), (2, 8)])
@pytest.mark.parametrize("move", [running, every_other_row, rows_between_others])
def test_rows_at_steps(move, rows, gpus):
    """Here XLA loses rows of a gradient, or ends in an error, if it divides rows that are left out or put between."""

    def build():
        return keras.Sequential([keras.Input((6,)), layers.Dense(16), FunctionLayer(move), layers.Dense(3)])

    assert_same(build, random_rows(3 * rows, 6), gpus=gpus, batch_size=rows)


def with_bits(x):
    bits = jax.numpy.bitwise_or.reduce(ops.cast(x > 0.9, "int32") * 2 ** jax.numpy.arange(x.shape[1]), axis=0)
    return x * (1.0 + ops.cast(bits % 5, x.dtype))


def with_largest_complex_number(x):
    return x + jax.numpy.max(x + 0.5j * x, axis=0).imag


def with_a_reduction_of_its_own(x):
    def root(one, other):
        return ops.sqrt(one * one + other * other)

    x_and_more = jax.lax.stop_gradient(x), jax.lax.stop_gradient(2 * x)
    one = jax.lax.reduce(x_and_more[0], np.float32(0), root, (0,))
    two = jax.lax.reduce(
        x_and_more, (np.float32(0), np.float32(0)), lambda a, b: (root(a[0], b[0]), root(a[1], b[1])), (0,)
    )
    return x / (1e-3 + one) + two[1]


@pytest.mark.parametrize("rows", [16, 13])
@pytest.mark.parametrize("reduced", [with_bits, with_largest_complex_number, with_a_reduction_of_its_own])
def test_reductions_of_rows_that_are_no_collectives(reduced, rows):
    """Here XLA ends in an error if it divides the rows. Op by op, where nothing tells it not to, the error is named."""

    def build():
        return keras.Sequential([keras.Input((6,)), layers.Dense(6), FunctionLayer(reduced), layers.Dense(3)])

    assert_same(build, random_rows(3 * rows, 6), gpus=8, batch_size=rows)
    parallel = multi_gpu_model(build(), 8)
    with pytest.raises(ValueError, match=r"no reduction with a function of its own.*direct call.*Use `fit\(\)`"):
        parallel(random_rows(16, 6))


@pytest.mark.parametrize("rows", [19, 22])
def test_the_last_two_rows_of_a_batch_on_two_devices(rows):
    """Here XLA loses one of the two rows of the gradient."""

    def build():
        ends = FunctionLayer(lambda x: ops.concatenate([x[-2:], x[:-2]]))
        return keras.Sequential([keras.Input((6,)), layers.Dense(4), ends, layers.Dense(3)])

    assert_same(build, random_rows(3 * rows, 6), batch_size=rows)


@pytest.mark.parametrize("first", [2, 11, 17])
def test_two_of_other_rows_in_a_loop_of_ones_own(first):
    """The gradient is made after the call: rows are cut so that XLA cannot lose one of its two rows."""

    def with_two_rows(x):
        others = ops.concatenate([x, ops.sin(x)])[:19]
        return x + 0.3 * ops.sum(others[first : first + 2] ** 2, axis=0)

    model = keras.Sequential([keras.Input((6,)), layers.Dense(6), FunctionLayer(with_two_rows), layers.Dense(3)])
    x, parallel = random_rows(16, 6), multi_gpu_model(model, 8)

    def gradients(used):
        def loss(weights):
            return ops.mean(ops.sin(used.stateless_call(weights, [], x)[0]) ** 2)

        return jax.jit(jax.grad(loss))([variable.value for variable in model.trainable_variables])

    for one, other in zip(gradients(parallel), gradients(model), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


class AlongItsWeights(keras.Model):
    """Trains with its gradient and how this changes along the weights: a derivative forward of one backward."""

    def train_step(self, state, data):
        trainable, non_trainable, of_optimizer, of_metrics = state
        x, y = data

        def gradient(trainable):
            return jax.grad(lambda weights: ops.mean((self.stateless_call(weights, non_trainable, x)[0] - y) ** 2))(
                trainable
            )

        gradients, changes = jax.jvp(gradient, (trainable,), (trainable,))
        both = [ops.tanh(a + 0.1 * b) for a, b in zip(gradients, changes, strict=True)]
        trainable, of_optimizer = self.optimizer.stateless_apply(of_optimizer, both, trainable)
        return {}, (trainable, non_trainable, of_optimizer, of_metrics)


def test_second_derivatives_in_a_step_of_ones_own():
    def build():
        x = keras.Input((8, 1))
        return AlongItsWeights(x, layers.Dense(3)(layers.Flatten()(layers.Conv1D(4, 3, activation="tanh")(x))))

    assert_same(build, random_rows(ROWS, 8, 1))


class RowByRow(keras.Sequential):
    """Trains with the gradient of each row by itself, made smaller, as for differential privacy."""

    def train_step(self, state, data):
        trainable, non_trainable, of_optimizer, of_metrics = state

        def loss(trainable, x, y):
            return ops.mean((self.stateless_call(trainable, non_trainable, x[None])[0] - y) ** 2)

        by_row = jax.vmap(jax.grad(loss), (None, 0, 0))(trainable, *data)
        gradients = [ops.mean(ops.tanh(gradient), axis=0) for gradient in by_row]
        trainable, of_optimizer = self.optimizer.stateless_apply(of_optimizer, gradients, trainable)
        return {}, (trainable, non_trainable, of_optimizer, of_metrics)


@pytest.mark.parametrize("smallest", [2, 2048], ids=["divided", "copied"])
@pytest.mark.parametrize("gpus", [2, 3, 4])
@pytest.mark.parametrize("kind", [layers.Conv1D, layers.SeparableConv1D, layers.Conv1DTranspose])
def test_the_gradient_of_each_row_by_itself(kind, gpus, smallest, monkeypatch):
    monkeypatch.setattr("multigpu.engines.jax.layout.SMALLEST", smallest)

    def build():
        return RowByRow([keras.Input((8, 4)), kind(8, 3, activation="tanh"), layers.Flatten(), layers.Dense(3)])

    assert_same(build, random_rows(25, 8, 4), gpus=gpus, batch_size=12)


def transformer():
    inputs = keras.Input((7,), dtype="int32")
    x = layers.Embedding(40, 64, mask_zero=True)(inputs)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 8, dropout=0.1)(x, x, use_causal_mask=True))
    x = layers.LayerNormalization()(x + layers.Dense(64)(layers.Dense(128, "gelu")(x)))
    return keras.Model(inputs, layers.Dense(3)(layers.GlobalAveragePooling1D()(x)))


def recurrent():
    inputs = keras.Input((7,), dtype="int32")
    x = layers.Embedding(40, 64, mask_zero=True)(inputs)
    x = layers.Bidirectional(layers.LSTM(32, return_sequences=True, dropout=0.2))(x)
    return keras.Model(inputs, layers.Dense(3)(layers.GRU(6)(x)))


@pytest.mark.parametrize("build", [recurrent, transformer])
def test_sequences_with_masks_and_dropout(build):
    assert_same(build, random_ids(ROWS, 7, below=40, seed=2))


def test_stateful_recurrent_layers():
    def build():
        inputs = keras.Input(batch_shape=(4, 7, 4))
        return keras.Model(inputs, layers.Dense(3)(layers.GRU(5, stateful=True)(inputs)))

    assert_same(build, random_rows(12, 7, 4), batch_size=4, only_fit=True)


def dense():
    return keras.Sequential([keras.Input((5,)), layers.Dense(64, "tanh"), layers.Dense(64, "relu"), layers.Dense(3)])


def test_sparse_inputs():
    x = sparse.random(ROWS, 5, density=0.5, random_state=1, dtype="float32").tocsr()
    assert_same_training(dense, x, random_rows(ROWS, 3), gpus=8, batch_size=6, compile=sgd)


@pytest.mark.parametrize("gpus", [3, 8])
def test_averages_of_divided_weights_that_are_taken_in_the_end(gpus):
    def averaged():
        return {"optimizer": keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5), "loss": "mse"}

    assert_same(dense, random_rows(ROWS, 5), compile=averaged, gpus=gpus)


OPTIMIZERS = {
    "Adafactor": lambda: keras.optimizers.Adafactor(0.01),
    "Lamb": lambda: keras.optimizers.Lamb(0.01, epsilon=1e-2),
    "Muon": lambda: keras.optimizers.Muon(0.01, epsilon=1e-2),
    "gradients of three steps": lambda: keras.optimizers.Adam(0.01, epsilon=1e-2, gradient_accumulation_steps=3),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_that_look_across_divided_weights(name):
    assert_same(dense, random_rows(ROWS, 5), compile=lambda: {"optimizer": OPTIMIZERS[name](), "loss": "mse"}, gpus=3)


def test_weights_of_8_bits():
    """Keras does not train them."""

    def used(gpus):
        keras.utils.set_random_seed(1)
        model = dense()
        for layer in model.layers:
            layer.quantize("int8")
        model = multi_gpu_model(model, gpus) if gpus else model
        model.compile(loss="mse")
        x, y = random_rows(ROWS, 5), random_rows(ROWS, 3, seed=1)
        return model.evaluate(x, y, batch_size=6, verbose=0), model.predict(x, batch_size=6, verbose=0)

    for one, other in zip(used(3), used(None), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_bfloat16():
    """A bfloat16 has 8 bits: of sums that are rounded in other places, about 2 ** -7 is the same."""

    def build():
        made = [layers.Dense(64, "tanh", dtype="mixed_bfloat16"), layers.Dense(64, dtype="mixed_bfloat16")]
        return keras.Sequential([keras.Input((5,)), *made, layers.Dense(3)])

    assert_same(build, random_rows(ROWS, 5), tolerance={"rtol": 2e-2, "atol": 2e-2})
