"""Training from batches that are sent ahead: the numbers of one device, from any data, and by the slices sent.

Slices are for devices with a memory of their own; here CPU devices count as such.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import some
from equality import FLOAT32, assert_same_numbers, dense_model, on_one_device, random_rows, train

from multigpu import multi_gpu_model
from multigpu.engines.tensorflow.batches.prefetch import SlicedBatches
from multigpu.engines.tensorflow.parallel import data_parallel
from multigpu.plan import plan
from multigpu.r.main_thread_generator import MainThreadGenerator

X, Y = random_rows(21, 3), random_rows(21, 2, seed=1)


@pytest.fixture(autouse=True)
def memory_of_their_own(monkeypatch):
    monkeypatch.setattr(plan, "OWN_MEMORY", ("GPU", "CPU"))


@pytest.fixture
def only_sent_ahead(monkeypatch):
    """No input is cut in a step."""

    def split(x, rows):
        raise AssertionError("cut in the step")

    monkeypatch.setattr(data_parallel, "split", split)


def dataset(x=X, y=Y, rows=8, drop_remainder=False):
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(rows, drop_remainder)


class Sequence(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        rows = slice(8 * index, 8 * index + 8)
        return X[rows], Y[rows], np.arange(len(X[rows]))


DATA = {
    "arrays": lambda: ((X, Y), {"batch_size": 8}),
    "shuffled arrays": lambda: ((X, Y), {"batch_size": 8, "shuffle": True}),
    "weighted arrays": lambda: ((X, Y), {"batch_size": 8, "sample_weight": np.arange(21.0)}),
    "a dataset": lambda: ((dataset(),), {}),
    "a dataset of known sizes": lambda: ((dataset(rows=7, drop_remainder=True),), {}),
    "a dataset of unknown length": lambda: ((dataset().filter(lambda x, y: True),), {}),
    "a dataset in steps": lambda: ((dataset().repeat(),), {"steps_per_epoch": 4}),
    "a generator": lambda: ((((X[i : i + 8], Y[i : i + 8]) for i in range(0, 21, 8)),), {"steps_per_epoch": 1}),
    "a PyDataset": lambda: ((Sequence(),), {}),
    "two rows, three devices": lambda: ((X[:7], Y[:7]), {"batch_size": 2}),
}


def trained(kind, gpus):
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(0)
    template = dense_model()
    model = multi_gpu_model(template, gpus=gpus) if gpus else on_one_device(template)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse", metrics=["mae"])
    data, fit = DATA[kind]()
    history = model.fit(*data, epochs=3, verbose=0, **{"shuffle": False, **fit}).history
    # at an end that comes unforeseen, Keras may count one step more, on one device too
    slots = [variable for variable in model.optimizer.variables if variable.shape != ()]
    values = [*template.get_weights(), *map(np.asarray, slots), *map(np.asarray, history.values())]
    return {f"number {n}": value for n, value in enumerate(values)}


ONE_OF_EACH = [
    *("shuffled arrays", "weighted arrays", "a dataset of unknown length", "two rows, three devices"),
]


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # Keras' answer to any unknown length
@pytest.mark.parametrize("kind", some(DATA, ONE_OF_EACH))
def test_training_on_batches_sent_ahead_is_that_on_one_device(kind, only_sent_ahead):
    assert_same_numbers(trained(kind, 3), trained(kind, None), **FLOAT32)


def test_evaluate_and_predict_and_one_trace_for_all_sizes(only_sent_ahead, unchecked):
    traces = []

    class Counted(keras.layers.Layer):
        def call(self, x):
            traces.append(x.shape)
            return x

    def build():
        inputs = {name: keras.Input((3,), name=name) for name in ("b", "a")}
        x = keras.layers.Dense(4)(Counted()(inputs["b"] - inputs["a"]))
        return keras.Model(inputs, {"p": keras.layers.Dense(2, name="p")(x), "q": keras.layers.Dense(1, name="q")(x)})

    def compile():
        return {"optimizer": "sgd", "loss": {"p": "mse", "q": "mae"}}

    x, y = {"b": X, "a": X[::-1].copy()}, {"p": Y, "q": Y[:, :1]}
    of_one = train(build, x, y, compile=compile, gpus=None, epochs=3, as_arrays=True)[1]
    traces.clear()
    of_three = train(build, x, y, compile=compile, gpus=3, epochs=3, as_arrays=True)[1]
    assert_same_numbers(of_three, of_one, **FLOAT32)
    assert len(traces) <= 1 + 3 + 1  # the model; fit, evaluate, predict; the call on one batch


def test_inputs_that_stay_on_the_cpu_are_cut_beside_those_that_are_sent():
    def build():
        ids, numbers = keras.Input((4,), dtype="int32", name="ids"), keras.Input((3,), name="numbers")
        x = keras.layers.Flatten()(keras.layers.Embedding(9, 2)(ids))
        return keras.Model([ids, numbers], keras.layers.Dense(2)(keras.layers.Concatenate()([x, numbers])))

    x = [np.random.default_rng(0).integers(0, 9, (21, 4)).astype("int32"), X]

    def compile():
        return {"optimizer": "sgd", "loss": "mse"}

    one, several = (train(build, x, Y, compile=compile, gpus=gpus, as_arrays=True)[1] for gpus in (None, 3))
    assert_same_numbers(several, one, **FLOAT32)


class Stops(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = batch == 1


def test_an_epoch_that_is_left_leaves_nothing_for_the_next(only_sent_ahead):
    weights = []
    for gpus in (None, 3):
        keras.utils.set_random_seed(0)
        template = dense_model()
        model = multi_gpu_model(template, gpus=gpus) if gpus else template
        model.compile("sgd", "mse")
        model.fit(X, Y, batch_size=4, shuffle=False, verbose=0, callbacks=[Stops()])
        model.fit(X, Y, batch_size=4, shuffle=False, verbose=0)
        weights.append(template.get_weights())
    for one, several in zip(*weights, strict=True):
        np.testing.assert_allclose(several, one, **FLOAT32)


class OwnFunction(keras.Model):
    """Makes the function that trains by itself, and takes its batches apart."""

    def __init__(self):
        super().__init__()
        self._dense = keras.layers.Dense(2)

    def call(self, x):
        return self._dense(x)

    def make_train_function(self, force=False):
        def function(iterator):
            x, y = next(iterator)
            return self.train_step((x, y))

        self.train_function = tf.function(function, reduce_retracing=True)
        return self.train_function


@pytest.mark.parametrize("assigned", [None, "train_function", "make_train_function"])
def test_a_function_of_steps_of_the_users_own_gets_plain_batches(assigned):
    histories = []
    for gpus in (None, 3):
        keras.utils.set_random_seed(0)
        template = dense_model() if assigned else OwnFunction()
        template(X[:1])
        model = multi_gpu_model(template, gpus=gpus) if gpus else template
        model.compile("sgd", "mse")
        if assigned == "train_function":
            model.train_function = tf.function(lambda iterator, m=model: m.train_step((*next(iterator),)))
        if assigned == "make_train_function":
            model.make_train_function = lambda force=False, m=model: OwnFunction.make_train_function(m)
        histories.append(model.fit(X, Y, batch_size=8, shuffle=False, verbose=0).history)
    np.testing.assert_allclose(histories[1]["loss"], histories[0]["loss"], rtol=1e-5)


def feeds(data, devices=2, **compile):
    """What Keras' loop gets for data."""
    model = multi_gpu_model(dense_model(), gpus=devices)
    model.compile("sgd", "mse", **compile)
    return model.distribute_strategy.experimental_distribute_dataset(data)


def test_batches_are_sent_only_where_they_may_be_asked_for_early():
    source = MainThreadGenerator(iter([(X, Y)] * 9).__next__, "train", 9)  # waits for its step, as R does
    plain = [dataset().take(1), source.dataset(), dataset(X.astype("int32")), dataset(X.astype("U9"))]
    assert [isinstance(feeds(data), SlicedBatches) for data in (dataset(), *plain)] == [True, *[False] * len(plain)]
    assert feeds(given := dataset(), steps_per_execution=2) is given
    assert feeds(given, run_eagerly=True) is given


def test_devices_that_share_the_memory_of_the_host_get_nothing_ahead(monkeypatch):
    monkeypatch.undo()
    assert feeds(given := dataset()) is given
