"""What a call may give beside rows; arguments of any rank; and outputs that slices cannot agree on."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from equality import ONE_CALL
from keras import layers

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


def test_tensors_without_rows_and_weights_are_still_refused():
    for beside in (tf.constant(2.0), keras.Variable([1.0, 2.0])):
        with pytest.raises(ValueError, match="Expected every output of the template to have a batch axis"):
            multi_gpu_model(Beside(beside), gpus=3)(X)


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
