"""What a call may give beside rows; arguments of any rank; and outputs that slices cannot agree on."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import soak
from equality import ONE_CALL, assert_same, assert_same_training, make_twins
from keras import layers, ops
from part_models import LAYOUTS, assert_same_in_groups

from multigpu import multi_gpu_model

X = np.random.default_rng(0).normal(size=(7, 4)).astype("float32")
RAGGED = tf.ragged.constant([[1, 2], [3], [4, 5, 6], [7], [8, 1, 2, 3], [1], [2, 3]], dtype=tf.int32)


class Beside(keras.Model):
    """Gives rows, and whatever it was made with beside them."""

    def __init__(self, beside):
        super().__init__()
        self.beside, self.top = beside, layers.Dense(2, kernel_initializer="ones")
        self(X)

    def call(self, x):
        return {"rows": self.top(x), "beside": self.beside}


BESIDE = [3, 0.5, True, "text", b"bytes", np.float32(2), (None, {"a": 1, "b": ["c"]})]


@pytest.mark.parametrize("beside", [None, *BESIDE], ids=repr)
def test_what_is_the_same_for_all_rows_is_given_as_it_is(beside):
    parallel = multi_gpu_model(Beside(beside), gpus=3)
    outputs = parallel(X)
    assert outputs["beside"] == beside
    assert keras.tree.map_structure(type, outputs["beside"]) == keras.tree.map_structure(type, beside)
    np.testing.assert_allclose(outputs["rows"], parallel.template(X)["rows"], **ONE_CALL)


def test_own_steps_have_it_too():
    class Chosen(Beside):
        def train_step(self, data):
            outputs = self(data[0], training=True)
            return {"loss": tf.reduce_mean(outputs["rows"]) * (2.0 if outputs["beside"] == "double" else 1.0)}

    one, two = Chosen("double"), multi_gpu_model(Chosen("double"), gpus=3)
    losses = []
    for model in (one, two):
        model.compile()
        losses += model.fit(X, X, batch_size=7, verbose=0).history["loss"]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


def test_op_by_op_none_is_given_and_what_may_be_of_a_slice_is_refused():
    class Counted(Beside):
        def call(self, x):
            return {"rows": self.top(x), "beside": len(x) if tf.executing_eagerly() else self.beside}

    parallel = multi_gpu_model(Beside(None), gpus=3)
    parallel.compile(run_eagerly=True)
    assert parallel(X)["beside"] is None
    counted = multi_gpu_model(Counted(7), gpus=3)
    counted.compile(run_eagerly=True)
    with pytest.raises(ValueError, match=r"Received: output 'beside', which is 3\. Compile without `run_eagerly`"):
        counted(X)


def test_weights_are_still_refused():
    with pytest.raises(ValueError, match="Expected every output of the template to have a batch axis"):
        multi_gpu_model(Beside(keras.Variable([1.0, 2.0])), gpus=3)(X)


class Encoding(layers.Layer):
    """Numbers of weights alone, which no row reaches: as many as rows are in no slice, in one, and in all of them."""

    def __init__(self, shape):
        super().__init__()
        self.shape, self.table, self.dense = shape, layers.Embedding(5, 4), layers.Dense(3)

    def build(self, shape):
        self.table.build(None)
        self.dense.build((None, 4))

    def compute_output_shape(self, shape):
        return self.shape

    def call(self, x):
        numbers = self.dense(self.table(ops.arange(5)))
        return ops.sum(numbers) if self.shape == () else ops.reshape(numbers[: np.prod(self.shape) // 3], self.shape)


def encoded(shape=(1, 5, 3)):
    x = keras.Input((4,))
    encoding = Encoding(shape)(x)
    return keras.Model(x, [layers.Dense(2, name="rows")(x + ops.sum(encoding)), encoding])


def far_from_one(_, y):
    return ops.mean(ops.square(y - 1.0), axis=-1)


ROWS, Y = np.concatenate([X, X, X[:3]]), np.random.default_rng(1).normal(size=(17, 2)).astype("float32")
TRAINED = {
    "without a loss": lambda: {"loss": ["mse", None]},
    "with one": lambda: {"loss": ["mse", far_from_one]},
    "op by op": lambda: {"loss": ["mse", far_from_one], "run_eagerly": True},
    "by XLA": lambda: {"loss": ["mse", far_from_one], "jit_compile": True},
}


@pytest.mark.parametrize(
    ("how", "shape", "gpus"),
    [
        pytest.param("without a loss", (1, 5, 3), 3, marks=pytest.mark.quick),
        *[("with one", (1, 5, 3), 8), ("with one", (3, 3), 3), ("by XLA", (1, 5, 3), 3)],
        *[("op by op", (1, 5, 3), 3), ("op by op", (3, 3), 3)],
        *[soak(how, shape, gpus) for how in TRAINED for shape in ((1, 5, 3), (1, 3)) for gpus in (2, 8)],
    ],
)
def test_an_output_that_no_row_reaches_is_trained_and_given_as_on_one_device(how, shape, gpus):
    def compile():
        return {"optimizer": keras.optimizers.Adam(0.05), **TRAINED[how]()}

    # batches of 8, 8 and 1
    assert_same_training(lambda: encoded(shape), ROWS, [Y, Y], compile=compile, gpus=gpus, as_arrays=True)


@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize("shape", [(1, 5, 3), (3, 3), (5, 3), ()])
def test_it_has_its_own_shape_whatever_the_number_of_rows(shape, run_eagerly):
    one, parallel = make_twins(lambda: encoded(shape))
    parallel.compile(run_eagerly=run_eagerly)
    for rows in (1, 3, 9, 15):
        assert_same(parallel(ROWS[:rows]), one(ROWS[:rows]))


def test_its_gradient_counts_once_in_a_loop_of_ones_own():
    twins = make_twins(encoded)
    found = []
    for model in twins:
        with tf.GradientTape(persistent=True) as tape:
            outputs = model(ROWS)
            losses = [tf.reduce_sum(outputs[1] ** 2), tf.reduce_sum(outputs[0] ** 2), tf.reduce_sum(outputs[0])]
            losses.append(losses[0] * losses[1])
        weights = [weight.value for weight in model.trainable_variables]
        gradients = [x for loss in losses for x in tape.gradient(loss, weights)]
        found.append([np.nan if x is None else tf.convert_to_tensor(x) for x in gradients])
    assert_same(found[1], found[0])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_part_may_give_it(layout):
    def build(on):
        x = keras.Input((4,))
        with on("GPU:0"):
            encoding = Encoding((1, 5, 3))(x)
        with on("GPU:1"):
            return keras.Model(x, [layers.Dense(2, name="rows")(x), encoding])

    def compile():
        return {"optimizer": keras.optimizers.Adam(0.05), **TRAINED["with one"]()}

    assert_same_in_groups(build, ROWS, [LAYOUTS[layout](2)], compile, y=[Y, Y], as_arrays=True)


class Draws(layers.Layer):
    """Gives what it has counted, and noise, neither of them of any row."""

    def build(self, shape):
        self.seen = self.add_weight(shape=(1,), initializer="zeros", trainable=False)
        self.seed = keras.random.SeedGenerator(3)

    def call(self, x):
        self.seen.assign_add(ops.ones(1))
        return x, ops.copy(self.seen), keras.random.normal((2, 3), seed=self.seed)


def test_counters_and_noise_of_no_row_are_those_of_one_device():
    def build():
        x = keras.Input((4,))
        return keras.Model(x, Draws()(x))

    one, parallel = make_twins(build)
    for rows in (7, 2):
        assert_same(parallel(X[:rows]), one(X[:rows]))


class Reaches(keras.Model):
    """Gives a number that rows reach, if only by their number."""

    def __init__(self, of_rows):
        super().__init__()
        self.of_rows, self.top = of_rows, layers.Dense(2)
        self(X)

    def call(self, x):
        return {"rows": self.top(x), "beside": self.of_rows(x)}


@pytest.mark.parametrize("of_rows", [lambda x: tf.shape(x)[:1], lambda x: x[0], lambda x: tf.size(x)])
def test_what_the_rows_of_a_slice_reach_is_refused(of_rows):
    with pytest.raises(ValueError, match="batch axis"):
        multi_gpu_model(Reaches(of_rows), gpus=3)(X)


class OfAnyRank(keras.Model):
    def __init__(self):
        super().__init__()
        self.top = layers.Dense(3)
        self(X)

    def call(self, x, factor=None):
        return self.top(x) * (1.0 if factor is None else factor)


def test_an_argument_may_have_another_rank_in_a_later_call():
    template = OfAnyRank()
    parallel = multi_gpu_model(template, gpus=3)
    longer = np.stack([X] * 5, axis=1)
    calls = [(X, None), (longer, None), (X, tf.constant(2.0)), (X, tf.ones((7, 1)) * 3), (longer, None), (X, None)]
    for x, factor in calls:
        np.testing.assert_allclose(parallel(x, factor=factor), template(x, factor=factor), **ONE_CALL)
    traces = parallel._spread._as_function._function.experimental_get_tracing_count()
    assert traces == 4  # none anew for what had been there


class Doubled(keras.Model):
    """Takes what it knows nothing of, as Keras' function of steps has it after batches of two ranks."""

    def __init__(self):
        super().__init__()
        self.factor = self.add_weight(shape=(), initializer="ones")
        self(X)

    def call(self, x):
        return 2 * self.factor * x


def test_predict_takes_batches_of_another_rank_where_one_device_does():
    parallel = multi_gpu_model(Doubled(), gpus=3)
    for x in (X, np.stack([X] * 5, axis=1), X):
        np.testing.assert_allclose(parallel.predict(x, verbose=0), 2 * x, **ONE_CALL)


class Tagger(keras.Model):
    def __init__(self, as_given=False, length=None):
        super().__init__()
        self.as_given, self.length = as_given, length
        self.embed, self.top = layers.Embedding(9, 4), layers.Dense(2)
        self(RAGGED)

    def call(self, x):
        outputs = self.top(self.embed(x.to_tensor(shape=(None, self.length))))
        return tf.RaggedTensor.from_tensor(outputs, x.row_lengths()) if self.as_given else outputs


class Mask(keras.Model):
    def call(self, lengths):
        return tf.sequence_mask(lengths)


def texts():
    x = keras.Input((1,), dtype="string")
    numbers = layers.TextVectorization(vocabulary=["a", "b", "c"])(x)
    return keras.Model(x, layers.Embedding(9, 4)(numbers))


def mask():
    model = Mask()
    model(np.arange(7))
    return model


WORDS = np.array([["a b"], ["c"], ["a b c d"], ["a"], ["b"], ["c a"], ["a"]])


@pytest.mark.parametrize(
    ("build", "x"), [(Tagger, RAGGED), (texts, tf.constant(WORDS)), (mask, np.array([1, 2, 1, 2, 3, 6, 4]))]
)
@pytest.mark.parametrize("run_eagerly", [False, True])
def test_outputs_as_long_as_the_longest_row_of_a_slice_are_refused_with_what_to_do(build, x, run_eagerly):
    parallel = multi_gpu_model(build(), gpus=3)
    parallel.compile(run_eagerly=run_eagerly)
    with pytest.raises(ValueError, match="Expected outputs with the same shape in all slices") as refused:
        parallel(x)
    assert "Give all rows one length, as `x.to_tensor(shape=(None, 20))`" in str(refused.value)


def test_what_to_do_works():
    for template in (Tagger(length=6), Tagger(as_given=True)):
        expected, given = template(RAGGED), multi_gpu_model(template, gpus=3)(RAGGED)
        assert type(given) is type(expected)
        ours, theirs = (getattr(x, "flat_values", x) for x in (given, expected))
        np.testing.assert_allclose(ours, theirs, **ONE_CALL)


class Reshaped(layers.Layer):
    def __init__(self, shape, **kwargs):
        super().__init__(**kwargs)
        self.shape = shape

    def call(self, x):
        return keras.ops.reshape(x, self.shape)


class Grouped(keras.Model):
    """Its first layer makes four groups of the rows of a batch, its second one fails for those of a slice."""

    def __init__(self, *shapes):
        super().__init__()
        self.parts = [
            layers.Dense(4),
            *(Reshaped(shape, name=name) for shape, name in zip(shapes, "abc", strict=False)),
        ]
        self(np.ones((12, 4), "float32"))

    def call(self, x):
        for part in self.parts:
            x = part(x)
        return x


@pytest.mark.parametrize(
    ("shapes", "name", "said"),
    [
        (((4, -1), (12, 4)), "a", "whose output has shape (4, 12) for an input of shape (12, 4)"),
        (((-1, 2), (8, 6), (12, 4)), "b", "whose output has shape (8, 6) for an input of shape (24, 2)"),
    ],
    ids=["at once", "after two rows for each row, which could be merged"],
)
def test_the_layer_is_named_where_the_rows_are_lost_and_not_where_that_fails(shapes, name, said):
    with pytest.raises(ValueError, match=f"layer '{name}'") as refused:
        multi_gpu_model(Grouped(*shapes), gpus=3)(np.ones((12, 4), "float32"))
    assert said in str(refused.value)


class Squeezed(keras.Model):
    """Removes all axes of size 1: the batch axis, too, if a slice has one row. Trains on what its rows add up to."""

    def __init__(self, units):
        super().__init__()
        self.dense = layers.Dense(units, kernel_initializer="ones")
        self(np.zeros((2, 1, 4)))

    def call(self, x):
        return tf.squeeze(self.dense(x))

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.math.cumsum(tf.square(self(data[0], training=True)), axis=-1))
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"loss": loss}


@pytest.mark.parametrize("rows", [3, 4, 5])
@pytest.mark.parametrize("units", [1, 2])
@pytest.mark.parametrize("run_eagerly", [False, True])
def test_slices_of_one_row_without_a_batch_axis_are_refused(rows, units, run_eagerly):
    x = np.random.default_rng(0).normal(size=(5, 1, 4)).astype("float32")
    for first in (rows, 7):  # in the first batch, or in one after a batch that was checked
        parallel = multi_gpu_model(Squeezed(units), gpus=3)
        parallel.compile("sgd", run_eagerly=run_eagerly, jit_compile=False)
        if first == 7:
            parallel.train_on_batch(np.zeros((7, 1, 4)))
        before = parallel.get_weights()
        with pytest.raises(ValueError, match=r"Expected (outputs with|every output of the template to have) a batch"):
            parallel.train_on_batch(x[:rows])
        assert_same(parallel.get_weights(), before)


def test_slices_of_two_rows_have_a_batch_axis_and_one_row_in_all_has_what_one_device_has():
    def compile():
        return {"optimizer": "sgd", "jit_compile": False}

    x = np.random.default_rng(0).normal(size=(18, 1, 4)).astype("float32")
    assert_same_training(lambda: Squeezed(2), x, x, compile=compile, batch_size=6, only_fit=True)
    plain, parallel = make_twins(lambda: Squeezed(2))
    np.testing.assert_allclose(parallel(x[:1]), plain(x[:1]), **ONE_CALL)


def test_one_row_may_have_outputs_of_any_rank():
    class InNumpy(keras.Model):
        def call(self, x):
            return tf.numpy_function(lambda a: 2 * a, [x], tf.float32)

    model = InNumpy()
    model(X)
    parallel = multi_gpu_model(model, gpus=3)
    for rows in (1, 2, 3, 4, 7):
        np.testing.assert_array_equal(parallel(X[:rows]), 2 * X[:rows])
