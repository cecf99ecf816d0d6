"""A function that gives batches is called on the main thread alone, and trains as a Python generator does."""

import itertools
import re
import threading

import keras
import numpy as np
import pytest

import multigpu
from multigpu.r.main_thread_generator import call


def model_of_one_layer():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


class Source:
    """A function that returns the next batch, and notes which threads call it."""

    def __init__(self, last=None, seed=0):
        self.rng, self.threads, self.calls, self.last = np.random.default_rng(seed), set(), 0, last

    def __call__(self):
        self.threads.add(threading.current_thread())
        self.calls += 1
        if self.last is not None and self.calls > self.last:
            return None
        x = np.asfortranarray(self.rng.normal(size=(6, 4)))
        return [x, x[:, :1]]

    def as_generator(self):
        while True:
            x, y = self()
            yield x.astype("float32"), y.astype("float32")


def assert_on_main_thread(source):
    assert source.threads == {threading.main_thread()}


@pytest.mark.parametrize("steps_per_execution", [1, 2])
def test_fit_from_a_function_equals_fit_from_a_generator(steps_per_execution):
    fed, plain, source = model_of_one_layer(), model_of_one_layer(), Source()
    for model in (fed, plain):
        model.compile("sgd", "mse", steps_per_execution=steps_per_execution)
    arguments = {"steps_per_epoch": 4, "epochs": 3, "verbose": 0, "shuffle": False}
    history = call("fit", fed, source, **arguments).history
    assert history == plain.fit(Source().as_generator(), **arguments).history
    assert_on_main_thread(source)
    assert source.calls == 12  # not one batch too many


def test_validation_from_a_function_equals_that_of_a_generator():
    fed, plain, validation = model_of_one_layer(), model_of_one_layer(), Source(seed=2)
    arguments = {"steps_per_epoch": 2, "validation_steps": 3, "epochs": 1, "verbose": 0, "shuffle": False}
    history = call("fit", fed, Source(), validation, **arguments).history
    reference = plain.fit(Source().as_generator(), validation_data=Source(seed=2).as_generator(), **arguments)
    assert history == reference.history
    assert_on_main_thread(validation)


def test_every_epoch_validates_on_the_next_batches():
    validation = Source(seed=2)
    call("fit", model_of_one_layer(), Source(), validation, steps_per_epoch=2, validation_steps=3, epochs=4, verbose=0)
    assert validation.calls == 12
    assert_on_main_thread(validation)


def test_arrays_validate_a_fit_from_a_function():
    history = call(
        "fit",
        model_of_one_layer(),
        Source(),
        (np.ones((5, 4)), np.ones((5, 1))),
        steps_per_epoch=2,
        epochs=2,
        verbose=0,
    )
    assert len(history.history["val_loss"]) == 2


def test_evaluate_and_predict_from_a_function_are_those_of_the_arrays():
    model, source = model_of_one_layer(), Source()
    x = Source()()[0]
    assert call("evaluate", model, Source(), steps=1, verbose=0) == model.evaluate(x, x[:, :1], verbose=0)
    predicted = call("predict", model, lambda: [source()[0]], steps=3, verbose=0)
    assert predicted.shape == (18, 1)
    np.testing.assert_array_equal(predicted[:6], model.predict(x, verbose=0))
    assert_on_main_thread(source)


@pytest.mark.quick
def test_a_parallel_model_is_fed():
    parallel, source = multigpu.multi_gpu_model(model_of_one_layer(), gpus=4), Source()
    history = call("fit", parallel, source, steps_per_epoch=3, epochs=2, verbose=0).history
    plain = call("fit", model_of_one_layer(), Source(), steps_per_epoch=3, epochs=2, verbose=0).history
    np.testing.assert_allclose(history["loss"], plain["loss"], rtol=1e-5)  # sums of slices round in another order
    assert_on_main_thread(source)


@pytest.mark.parametrize("kind", ["numbers", "a column of numbers", "one-hot"])
@pytest.mark.parametrize("gpus", [None, 3])
def test_classes_from_a_function_are_weighted_as_those_of_arrays(kind, gpus):
    rng = np.random.default_rng(0)
    x, classes = rng.normal(size=(20, 4)), rng.integers(0, 3, 20)
    y = {"numbers": classes, "a column of numbers": classes[:, None], "one-hot": np.eye(3)[classes]}[kind]
    batches = iter([[x[:10], y[:10]], [x[10:], y[10:]]] * 2)

    def model():
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
        parallel = multigpu.multi_gpu_model(model, gpus=gpus) if gpus else model
        parallel.compile("sgd", ("" if kind == "one-hot" else "sparse_") + "categorical_crossentropy")
        return parallel

    arguments = {"epochs": 2, "verbose": 0, "class_weight": {0: 0.1, 2: 9.0}}
    history = call("fit", model(), lambda: next(batches), steps_per_epoch=2, **arguments).history
    expected = model().fit(x, y, batch_size=10, shuffle=False, **arguments).history
    np.testing.assert_allclose(history["loss"], expected["loss"], rtol=1e-6)


def test_a_function_that_ends_ends_training_with_keras_own_warning():
    source = Source(last=3)
    with pytest.warns(UserWarning, match="ran out of data"):
        call("fit", model_of_one_layer(), source, steps_per_epoch=5, epochs=1, verbose=0)
    assert source.calls == 4


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize(("steps", "epochs"), [(None, 1), (3, 2), (2, 3)])
def test_when_there_are_no_more_batches_training_stops_and_an_epoch_without_any_has_no_values(steps, epochs):
    validation = {"validation_data": (np.ones((4, 4)), np.ones((4, 1)))}
    arguments = {"steps_per_epoch": steps, "epochs": 5, "verbose": 0, **validation}
    history = call("fit", model_of_one_layer(), Source(last=4), **arguments).history
    without = steps == 2  # the third epoch
    assert np.isnan(history["loss"]).tolist() == [False] * (epochs - without) + [True] * without
    assert np.isfinite(history["val_loss"]).tolist() == [True] * epochs


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize("steps_per_execution", [1, 2])
@pytest.mark.parametrize("batches", [1, 2, 3])
def test_a_function_may_begin_again_for_each_epoch(batches, steps_per_execution):
    model, expected, source = model_of_one_layer(), model_of_one_layer(), Source()
    model.compile("sgd", "mse", steps_per_execution=steps_per_execution)
    epoch = [source() for _ in range(batches)]
    again = itertools.cycle([*epoch, None])
    history = call("fit", model, lambda: next(again), epochs=3, verbose=0).history
    x = np.concatenate([x for x, _ in epoch])
    plain = expected.fit(x, x[:, :1], batch_size=6, epochs=3, shuffle=False, verbose=0).history
    np.testing.assert_allclose(history["loss"], plain["loss"], rtol=1e-5)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # as Keras says of its own generators
@pytest.mark.parametrize("batches", [1, 2, 5])
@pytest.mark.parametrize("steps_per_execution", [1, 2])
def test_without_a_number_of_steps_all_batches_are_taken(batches, steps_per_execution):
    model, source = model_of_one_layer(), Source(last=batches)
    model.compile("sgd", "mse", steps_per_execution=steps_per_execution)
    copy = Source()
    x = np.concatenate([copy()[0] for _ in range(batches)])
    expected = model.evaluate(x, x[:, :1], verbose=0)
    np.testing.assert_allclose(call("evaluate", model, source, verbose=0), expected, rtol=1e-6)
    assert source.calls > batches


def test_batches_may_differ_in_rows_and_in_length():
    lengths = iter([3, 5, 7, 4])
    model = keras.Sequential([keras.Input((None, 2)), keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")

    def source():
        length = next(lengths)
        return [np.ones((length, length, 2)), np.ones((length, 1))]

    assert len(call("fit", model, source, steps_per_epoch=4, verbose=0).history["loss"]) == 1


def test_batches_may_be_texts():
    texts = keras.Input((1,), dtype="string")
    words = keras.layers.StringLookup(vocabulary=["a", "b"])(texts)
    model = keras.Model(texts, keras.layers.Dense(1)(keras.layers.Flatten()(keras.layers.Embedding(3, 2)(words))))
    model.compile("sgd", "mse")
    batch = [np.array([["a"], ["b"], ["c"]], object), np.ones((3, 1))]
    assert len(call("fit", model, lambda: batch, steps_per_epoch=2, verbose=0).history["loss"]) == 1


def test_an_error_of_the_function_reaches_the_caller_as_it_is():
    def source():
        raise KeyError("no file")

    with pytest.raises(KeyError, match="no file"):
        call("fit", model_of_one_layer(), source, steps_per_epoch=2, verbose=0)


@pytest.mark.parametrize(
    ("source", "arguments", "message"),
    [
        (
            lambda: None,
            {"steps_per_epoch": 2},
            "Expected a generator of batches. Received: one that returned no batch. It must return a list of x and y "
            "for each step of the training.",
        ),
        (
            lambda: np.ones(3),
            {"steps_per_epoch": 2},
            "Expected a generator to return a list of x, y and perhaps weights. Received: ndarray. Return "
            "`list(x, y)` in R, `(x, y)` in Python.",
        ),
        (
            lambda: [1, 2, 3, 4],
            {"steps_per_epoch": 2},
            "Expected a generator to return a list of x, y and perhaps weights. Received: list of length 4. Return "
            "`list(x, y)` in R, `(x, y)` in Python.",
        ),
        (
            lambda: [np.ones((2, 4)), np.ones(2), np.ones(2)],
            {"steps_per_epoch": 2, "class_weight": {0: 2.0}},
            "Expected batches of x and the classes of one output, for `class_weight`. Received: a list of length 3. "
            "Return the weights of rows with each batch, in place of `class_weight`.",
        ),
        (
            lambda: [np.ones((2, 4)), [np.ones(2), np.ones(2)]],
            {"steps_per_epoch": 2, "class_weight": {0: 2.0}},
            "Expected batches of x and the classes of one output, for `class_weight`. Received: several outputs, or "
            "none. Return the weights of rows with each batch, in place of `class_weight`.",
        ),
    ],
    ids=["empty", "array", "four parts", "two weights", "weights of no classes"],
)
def test_what_is_no_generator_of_batches_is_refused(source, arguments, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call("fit", model_of_one_layer(), source, **arguments)
