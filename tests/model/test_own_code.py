"""Templates whose class writes verbs of its own: what these call on `self` runs on all devices, as on one device."""

import functools
import json
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import soak
from equality import assert_same, assert_same_weights, make_twins
from keras import layers, ops

from multigpu import multi_gpu_model
from multigpu.engines.tensorflow.batches import fit_arguments
from multigpu.r import interface as r_interface

ROWS = 13
X = np.random.default_rng(0).uniform(size=(ROWS, 5)).astype("float32")
Y = np.random.default_rng(1).normal(size=(ROWS, 1)).astype("float32")
FIT = {"batch_size": 8, "epochs": 2, "shuffle": False, "verbose": 0}


class Net(keras.Model):
    """A subclassed model of 5 features."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.hidden, self.top = layers.Dense(4, activation="tanh"), layers.Dense(1)

    def call(self, x):
        return self.top(self.hidden(x))


def built(kind, **compile_kwargs):
    model = kind()
    model(X)
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse", metrics=["mae"], **compile_kwargs)
    return model


def assert_same_answers(kind, ask, gpus=3, **compile_kwargs):
    """Twins answer the same and have the same weights then; returns the parallel one."""
    one, parallel = make_twins(lambda: built(kind, **compile_kwargs), gpus)
    before = one.get_weights()
    assert_same(ask(parallel), ask(one))
    assert_same_weights(parallel, one)
    assert not np.allclose(before[0], one.get_weights()[0])
    return parallel


# Verbs that end in Keras' --------------------------------------------------------------------------------------------


def logged(verb):
    """A decorator, as many libraries have them."""

    @functools.wraps(verb)
    def wrapper(self, *args, **kwargs):
        self.verbs = [*getattr(self, "verbs", []), verb.__name__]
        return verb(self, *args, **kwargs)

    return wrapper


class Prepares:
    """A mixin, whose verbs scale their inputs and go on."""

    def prepare(self, x):
        return 2 * x - 1

    @logged
    def fit(self, x, y=None, validation_data=None, **more):
        if validation_data is not None:
            validation_data = self.prepare(validation_data[0]), validation_data[1]
        return super().fit(self.prepare(x), y, validation_data=validation_data, **more)

    @logged
    def evaluate(self, x=None, y=None, **more):
        cached = more.get("_use_cached_eval_dataset")
        return super().evaluate(x if cached else self.prepare(x), y, **more)

    @logged
    def predict(self, x, **more):
        return super().predict(self.prepare(x), **more)

    @logged
    def train_on_batch(self, x, y=None, **more):
        return super().train_on_batch(self.prepare(x), y, **more)

    @logged
    def test_on_batch(self, x, y=None, **more):
        return super().test_on_batch(self.prepare(x), y, **more)

    @logged
    def predict_on_batch(self, x):
        return super().predict_on_batch(self.prepare(x))


class Prepared(Prepares, Net):
    """Verbs of a mixin."""


class Twice(Prepared):
    """Verbs of two classes, one upon the other."""

    def fit(self, x, *args, **more):
        return super().fit(2 * x, *args, **more)


class PreparedSequential(Prepares, keras.Sequential):
    """Verbs upon those of a class of Keras."""

    def __init__(self):
        super().__init__([keras.Input((5,)), layers.Dense(4, activation="tanh"), layers.Dense(1)])


class PreparedFunctional(Prepares, keras.Model):
    """Verbs of a class that Keras makes functional; text is turned into numbers."""

    def __init__(self):
        x = keras.Input((5,))
        super().__init__(x, layers.Dense(1)(layers.Dense(4, activation="tanh")(x)))

    def prepare(self, x):
        return 2 * np.asarray(x, "float32") - 1


def all_verbs(model, x=X):
    return [
        model.fit(x, Y, validation_data=(x, Y), **FIT).history,
        model.evaluate(x, Y, batch_size=8, verbose=0),
        model.predict(x, batch_size=8, verbose=0),
        model.train_on_batch(x[:7], Y[:7]),
        model.test_on_batch(x[:7], Y[:7]),
        model.predict_on_batch(x[:7]),
        [len(model.verbs)],
    ]


@pytest.mark.parametrize(
    ("kind", "run_eagerly"),
    [
        *[(Twice, False), (PreparedSequential, True), soak(Prepared, False)],
        *[soak(Prepared, True), soak(Twice, True), soak(PreparedSequential, False)],
    ],
)
def test_verbs_that_prepare_their_data(kind, run_eagerly):
    assert_same_answers(kind, all_verbs, run_eagerly=run_eagerly)


def test_verbs_that_turn_text_into_numbers():
    text = X.astype(str)
    parallel = assert_same_answers(PreparedFunctional, lambda model: all_verbs(model, text))
    PreparedFunctional()  # for which Keras changes what the class inherits from
    assert np.isfinite(parallel.evaluate(text, Y, verbose=0)).all()


def test_large_arrays_reach_a_verb_as_they_are(monkeypatch):
    monkeypatch.setattr(fit_arguments, "LARGE", 1)
    x = X.astype("float64")  # which Keras would copy
    assert_same_answers(
        Prepared,
        lambda model: [
            r_interface.fit(model, x=x, y=Y, **FIT).history,
            r_interface.evaluate(model, x=x, y=Y, verbose=0),
            r_interface.predict(model, x=x, verbose=0),
        ],
    )


# Loops of one's own --------------------------------------------------------------------------------------------------


class OwnLoop(Net):
    """Trains batch by batch, evaluates in between, stops when it likes, and says what its metrics are."""

    def fit(self, x, y, epochs):
        self.told = []
        for epoch in range(epochs):
            for rows in (slice(0, 8), slice(8, None)):
                logs = self.train_on_batch(x[rows], y[rows], return_dict=True)
            self.told.append([logs, self.get_metrics_result(), self.evaluate(x, y, verbose=0)])
            self.optimizer.learning_rate = 0.01
            self.stop_training = epoch == 1
            if self.stop_training:
                break
        self.reset_metrics()
        return [self.told, self.train_step((x, y)), self.get_metrics_result()]


class OwnTape(Net):
    """Takes gradients by itself."""

    def fit(self, x, y, epochs):
        losses = []
        for _ in range(epochs):
            with tf.GradientTape() as tape:
                loss = ops.mean((self(x, training=True) - y) ** 2)
            gradients = tape.gradient(loss, self.trainable_weights)
            self.optimizer.apply(gradients, self.trainable_weights)
            losses.append(float(loss))
        return losses


class OwnTracedTape(OwnTape):
    """Takes gradients in a function that TensorFlow traces."""

    @tf.function
    def fit(self, x, y, epochs):
        loss = 0.0
        for _ in range(epochs):
            with tf.GradientTape() as tape:
                loss = ops.mean((self(x, training=True) - y) ** 2)
            self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return loss


class OwnTracedStep(Net):
    """A step that TensorFlow traces by itself, and does not run again where it is traced anew."""

    @tf.function
    def train_step(self, data):
        return super().train_step(data)


class StopsItself(Net):
    """Has enough after one step."""

    def train_step(self, data):
        self.stop_training = True
        return super().train_step(data)


class CallsParts(Net):
    """Trains by a step of its own, which calls no model but its layers."""

    def fit(self, x, y):
        return self.train_step((x, y))

    def train_step(self, data):
        x, y = data
        return {"loss": self.compute_loss(x, y, self.top(self.hidden(x)))}


class OwnFunction(Net):
    """Makes the function that trains by itself."""

    def make_train_function(self, force=False):
        if self.train_function is None or force:
            self.train_function = lambda iterator: {"twice": 2 * self.train_step(next(iter(iterator)))["loss"]}
        return self.train_function


@pytest.mark.parametrize("kind", [OwnLoop, soak(OwnTape), OwnTracedTape])
def test_a_loop_of_the_classs_own(kind):
    def ask(model):
        model.optimizer.build(model.trainable_variables)
        return model.fit(X, Y, epochs=3)

    parallel = assert_same_answers(kind, ask)
    assert parallel._num_calls > 0


def test_a_step_that_is_a_traced_function():
    def ask(model):
        return [model.fit(X, Y, **FIT).history, model.train_on_batch(X[:8], Y[:8])]

    assert_same_answers(OwnTracedStep, ask, run_eagerly=True)


def test_a_step_stops_the_training():
    def ask(model):
        history = model.fit(X, Y, **FIT)
        return [history.epoch, history.history]

    assert assert_same_answers(StopsItself, ask).history.epoch == [0]


def test_a_loop_of_the_classs_own_runs_no_step_on_one_device():
    parallel = multi_gpu_model(built(CallsParts), gpus=2)
    with pytest.raises(ValueError, match="Expected `train_step` of CallsParts to call the model itself"):
        parallel.fit(X, Y)


def test_a_train_function_of_the_classs_own():
    parallel = assert_same_answers(OwnFunction, lambda model: [model.train_on_batch(X, Y, return_dict=True)])
    assert parallel.template.train_function is None


def test_the_calls_of_the_template_alone_are_not_redirected():
    parallel = multi_gpu_model(built(OwnTape), gpus=2)
    parallel.fit(X, Y, epochs=1)
    calls = parallel._num_calls
    assert calls == 1
    parallel.template.fit(X, Y, epochs=1)
    parallel.template(X)
    assert parallel._num_calls == calls


class Fails(Prepared):
    """Fails while it trains, the first time."""

    def train_step(self, data):
        if not hasattr(self, "failed"):
            self.failed = True
            raise RuntimeError("the first time")
        return super().train_step(data)


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_a_verb_that_failed_can_be_called_again_after_clear_session_too(run_eagerly):
    def ask(model):
        with pytest.raises(RuntimeError, match="the first time"):
            model.fit(X, Y, **FIT)
        keras.utils.clear_session()
        return model.fit(X, Y, **FIT).history

    assert_same_answers(Fails, ask, run_eagerly=run_eagerly)


# What else a class defines -------------------------------------------------------------------------------------------


class Rich(Net):
    """Adds methods and properties of all kinds."""

    scale = 1.0
    made = 0
    kinds = 0

    def __init_subclass__(cls, **kwargs):
        Rich.kinds += 1

    def generate(self, x):
        self.generated = self.predict(x, verbose=0)
        return self.generated + self.shift + self(x) + self._private()

    def _private(self):
        return self.scale

    @property
    def shift(self):
        return ops.max(self.predict_on_batch(X))

    @classmethod
    def make(cls):
        cls.made += 1
        return cls()

    @staticmethod
    def double(x):
        return 2 * x

    def another(self):
        return type(self)()

    def __len__(self):
        return len(self.layers)

    def __getitem__(self, index):
        return self.layers[index]


@pytest.mark.quick
def test_methods_that_the_class_adds_work_in_parallel():
    one, parallel = make_twins(lambda: built(Rich), 3)
    assert_same(parallel.generate(X), one.generate(X))
    assert parallel._num_calls > 0
    assert_same(parallel.generated, one.generated)
    assert_same(parallel.template.generated, one.generated)
    assert parallel.double(2) == 4
    assert (len(parallel), parallel[0]) == (2, parallel.template.hidden)


def test_a_class_that_makes_others_of_its_kind_makes_plain_ones():
    parallel = multi_gpu_model(built(Rich), gpus=2)
    made = [parallel.make(), parallel.another(), parallel.from_config({})]
    assert [type(model) for model in made] == [Rich, Rich, Rich]
    assert Rich.made == 1
    assert Rich.kinds == 0


def test_what_is_set_on_the_parallel_model_its_own_code_sees():
    def ask(model):
        model.scale = 0.25
        return [model.scale, model.generate(X), model.fit(X, Y, **FIT).history]

    assert assert_same_answers(Rich, ask).template.scale == 0.25


class CalledOnce(Net):
    """Scales in the call itself."""

    def __call__(self, x, **kwargs):
        return super().__call__(2 * x - 1, **kwargs)

    def train_step(self, data):
        return super().train_step(data)


def test_a_call_of_the_classs_own_runs_once():
    assert_same_answers(CalledOnce, lambda model: [model.fit(X, Y, **FIT).history, model(X)])


class Half(Net):
    """Trains its last layer only, and shows one metric only."""

    @property
    def trainable_weights(self):
        return self.hidden.trainable_weights

    @property
    def metrics(self):
        return super().metrics[:1]


def test_properties_of_the_classs_own_are_what_training_goes_by():
    parallel = assert_same_answers(Half, lambda model: model.fit(X, Y, **FIT).history)
    assert [metric.name for metric in parallel.metrics] == ["loss"]


class Watches(keras.callbacks.Callback):
    """Notes the model, and stops training."""

    def on_epoch_end(self, epoch, logs=None):
        self.seen = self.model
        self.model.stop_training = True


def test_callbacks_see_the_parallel_model_and_stop_it():
    parallel, watches = multi_gpu_model(built(Prepared), gpus=2), Watches()
    history = parallel.fit(X, Y, callbacks=[watches], **FIT)
    assert watches.seen is parallel
    assert len(history.epoch) == 1
    assert parallel.history is parallel.template.history is history


def test_code_that_has_the_template_stops_the_parallel_model():
    template = built(Prepared)

    def stop(epoch, logs):
        template.stop_training = True

    history = multi_gpu_model(template, gpus=2).fit(X, Y, callbacks=[keras.callbacks.LambdaCallback(stop)], **FIT)
    assert len(history.epoch) == 1


# Files ---------------------------------------------------------------------------------------------------------------


@keras.saving.register_keras_serializable("tests")
class Notes(Prepared):
    """Writes a note beside its files, and reads it."""

    def save(self, path, note, **kwargs):
        path.with_suffix(".txt").write_text(note)
        return super().save(path, **kwargs)

    def load_weights(self, path, **kwargs):
        self.note = path.with_suffix(".txt").read_text()
        return super().load_weights(path, **kwargs)


def test_files_know_nothing_of_how_it_was_trained(tmp_path):
    parallel = multi_gpu_model(built(Notes), gpus=2)
    parallel.fit(X, Y, callbacks=[keras.callbacks.ModelCheckpoint(tmp_path / "w.weights.h5", save_weights_only=True)])
    parallel.save(tmp_path / "model.keras", "read me")
    config = json.loads(zipfile.ZipFile(tmp_path / "model.keras").read("config.json"))
    assert (config["class_name"], config["registered_name"]) == ("Notes", "tests>Notes")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert type(again) is Notes
    assert_same(again.get_weights(), parallel.get_weights())
    (tmp_path / "w.weights.txt").write_text("of weights")
    parallel.load_weights(tmp_path / "w.weights.h5")
    assert parallel.note == parallel.template.note == "of weights"


# Refused -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fit", "train_step", "compute_loss", "save"])
def test_a_verb_that_was_assigned_to_the_model_is_refused(name):
    model = built(Net)
    model.__dict__[name] = getattr(model, name)
    with pytest.raises(ValueError, match=f"Expected `{name}` to be defined by the class of a model") as error:
        multi_gpu_model(model, gpus=2)
    assert str(error.value) == (
        f"Expected `{name}` to be defined by the class of a model, so that its calls can run on all devices. "
        f"Received: {model.name!r}, to which it was assigned. Write a subclass with a method `{name}(self, ...)`."
    )


class SpreadsItself(Net):
    """Asks for more devices while it works on them."""

    def spread(self):
        return multi_gpu_model(self, gpus=2)


def test_a_model_that_works_in_parallel_is_not_spread_again():
    parallel = multi_gpu_model(built(SpreadsItself), gpus=2)
    with pytest.raises(ValueError, match="which is parallel already"):
        parallel.spread()
    assert parallel.template.spread().plan == parallel.plan
