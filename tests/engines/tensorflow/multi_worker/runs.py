"""What several workers do with data, callbacks and loops of their own; each function runs on every worker."""

import contextlib
import functools
import io
import itertools
import json
import os
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from equality import dense_model, random_rows
from trainings import synchronized_statistics

import __main__
import multigpu
from multigpu import multi_gpu_model
from multigpu.cluster.config import Cluster
from multigpu.engines.tensorflow.multi_worker import handshake
from multigpu.engines.tensorflow.multi_worker.auto_shard import sharded
from multigpu.r import main_thread_generator

X, Y = random_rows(25, 3), random_rows(25, 2, seed=1)
IN_FILES = 21  # rows in two files, so that one step has two rows of one worker and one of the other
SHARES = [(0, 20), (20, 25)]  # of the rows, where each worker has its own: 5 batches of 4 rows, and 2 of 4 and 1


def number() -> int:
    """Which worker this is; 0 outside of a cluster."""
    return json.loads(os.environ.get("TF_CONFIG", '{"task": {"index": 0}}'))["task"]["index"]


def all_runs(files: str) -> dict[str, Any]:
    """The results of every function below, by name."""
    runs = (datasets, own_data, callbacks, loop, own_step, noise, seeds_apart, unlike, weights_alike, settings_apart)
    return {run.__name__: run(files) if run is datasets else run() for run in runs}


def trained(
    x: Any, y: Any = None, parallel: bool = True, gpus: int = 1, build: Callable = dense_model, **fit: Any
) -> dict[str, Any]:
    """History and weights of a small model."""
    shuffle = isinstance(x, np.ndarray)  # Keras warns where it is asked to shuffle something else
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(0)
    template = build()
    model = multi_gpu_model(template, gpus=gpus) if parallel else template
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse", metrics=["mae"])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Your input ran out of data")  # Keras' answer to any unknown length
        call = functools.partial(main_thread_generator.call, "fit", model) if callable(x) else model.fit
        history = call(x, y=y, verbose=0, shuffle=shuffle, **fit)
    return {"history": history.history, "weights": template.get_weights(), "steps": int(model.optimizer.iterations)}


# Data -----------------------------------------------------------------------------------------------------------------


def dataset() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)


def unknown_length() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y)).filter(lambda x, y: x[0] > -2).batch(8)


def in_files(folder: str) -> tf.data.Dataset:
    """Rows from the lines of two files."""

    def parse(line: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        numbers = tf.strings.to_number(tf.strings.split(line, ","))
        numbers.set_shape([5])
        return numbers[:3], numbers[3:]

    names = tf.data.Dataset.from_tensor_slices(sorted(str(path) for path in Path(folder).glob("*.csv")))
    return names.interleave(tf.data.TextLineDataset).map(parse).batch(8)


def in_three_files(folder: str) -> tf.data.Dataset:
    """Batches from three files, of which one worker has two, with a number that all together have."""
    paths = [f"{folder}/{name}.csv" for name in "aba"]
    batches = tf.data.Dataset.from_tensor_slices(paths).flat_map(tf.data.TextLineDataset).batch(21)
    parsed = batches.map(lambda lines: tf.strings.to_number(tf.strings.split(lines, ",").to_tensor(shape=(None, 5))))
    return parsed.map(lambda x: (x[:, :3], x[:, 3:])).apply(tf.data.experimental.assert_cardinality(2))


def write_files(folder: Path) -> None:
    rows = np.concatenate([X, Y], axis=1)[:IN_FILES]
    for name, part in (("a", rows[:11]), ("b", rows[11:])):
        (folder / f"{name}.csv").write_text("".join(",".join(map(repr, map(float, row))) + "\n" for row in part))


def datasets(files: str, parallel: bool = True) -> dict[str, Any]:
    """Datasets and arrays that all workers have whole, and files that they share."""
    in_both = {
        "known length": trained(dataset(), epochs=2, validation_data=dataset(), parallel=parallel),
        "unknown length": trained(unknown_length(), epochs=2, parallel=parallel),
        "steps_per_epoch": trained(dataset().repeat(), epochs=2, steps_per_epoch=3, parallel=parallel),
        "arrays in steps": trained(X, Y, epochs=2, steps_per_epoch=5, parallel=parallel),
        "class weights": trained(
            X, (Y[:, :1] > 0).astype("int32"), class_weight={0: 1.0, 1: 3.0}, batch_size=8, parallel=parallel
        ),
    }
    in_both["tensors"] = trained(tf.constant(X), tf.constant(Y), validation_split=0.3, parallel=parallel)
    if parallel:  # on one device, batches are other ones
        in_both["three files"] = trained(in_three_files(files))
    shared = in_files(files) if parallel else given_in_turn(global_batches_of_files(files))
    return {**in_both, "files": trained(shared, epochs=2, parallel=parallel)}


class Sequence(keras.utils.PyDataset):
    def __init__(self, begin: int, end: int) -> None:
        super().__init__()
        self._batches = batches_between(begin, end)

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: int) -> Any:
        return self._batches[index]


def batches_between(begin: int, end: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(X[i : min(i + 4, end)], Y[i : min(i + 4, end)]) for i in range(begin, end, 4)]


def own_of_unknown_length() -> tf.data.Dataset:
    begin, end = SHARES[number()]
    known = tf.data.Dataset.from_tensor_slices((X[begin:end], Y[begin:end]))
    return known.filter(lambda x, y: x[0] > -2).batch(4).with_options(_own())


def own_data() -> dict[str, Any]:
    """Every worker has other rows, and another number of batches."""
    begin, end = SHARES[number()]
    own = tf.data.Dataset.from_tensor_slices((X[begin:end], Y[begin:end])).batch(4).with_options(_own())
    return {
        "a dataset": trained(own, epochs=2),
        "a dataset of unknown length": trained(own_of_unknown_length(), epochs=2),
        "a generator": trained((batch for batch in batches_between(begin, end)), epochs=1),
        "a PyDataset": trained(Sequence(begin, end), epochs=2),
        "a function": trained(iter(batches_between(begin, end)).__next__, steps_per_epoch=2),
    }


def known_rows() -> dict[str, Any]:
    """Every worker knows the rows of its batches; slices of its two devices are equal on the first worker alone."""
    begin, size = ((0, 4), (8, 3))[number()]
    own = tf.data.Dataset.from_tensor_slices((X[begin:], Y[begin:])).batch(size, drop_remainder=True).take(2)
    return trained(own.with_options(_own()), epochs=2, gpus=2, build=synchronized_statistics)


def batches_of_known_rows() -> list[tuple[np.ndarray, np.ndarray]]:
    """The global batches of `known_rows`."""
    rows = [[*range(i * 4, i * 4 + 4), *range(8 + i * 3, 11 + i * 3)] for i in range(2)]
    return [(X[each], Y[each]) for each in rows]


def global_batches_of_own_data() -> list[tuple[np.ndarray, np.ndarray]]:
    """The global batches of `own_data`."""
    return _joined([batches_between(*share) for share in SHARES])


def global_batches_of_files(folder: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """The global batches of `in_files`, as TensorFlow's auto-shard deals them to two workers."""
    workers = [Cluster(("a", "b"), ("a", "b"), number) for number in range(2)]
    return _joined([[part.data for part in sharded(in_files(folder), worker)] for worker in workers])


def _joined(parts: list[list[tuple[np.ndarray, np.ndarray]]]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Step by step, the rows of those workers that have any."""
    steps = [[part for part in step if part is not None] for step in itertools.zip_longest(*parts)]
    return [tuple(np.concatenate(arrays) for arrays in zip(*step, strict=True)) for step in steps]


def given_in_turn(batches: list[tuple[np.ndarray, np.ndarray]]) -> tf.data.Dataset:
    """A dataset of these batches, for one device."""
    signature = (tf.TensorSpec([None, 3]), tf.TensorSpec([None, 2]))
    return tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=signature)


# Callbacks ------------------------------------------------------------------------------------------------------------


class StopsAtBatch(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if number() == 1 and batch == 1:
            self.model.stop_training = True


class StopsAtEpoch(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = number() == 1 and epoch == 1


class Evaluates(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.model.evaluate(dataset(), verbose=0)


def callbacks() -> dict[str, Any]:
    with_nan = X.copy()
    with_nan[:] = np.nan
    with tempfile.TemporaryDirectory() as folder:
        monitors = [
            keras.callbacks.ReduceLROnPlateau(monitor="val_loss", patience=1, min_delta=10.0),
            keras.callbacks.EarlyStopping(monitor="loss", patience=3, min_delta=10.0),
            keras.callbacks.ModelCheckpoint(f"{folder}/{number()}.keras"),
            keras.callbacks.CSVLogger(f"{folder}/{number()}.csv"),
        ]
        monitored = trained(X, Y, epochs=9, batch_size=8, validation_split=0.2, callbacks=monitors)
        files = sorted(os.listdir(folder))
    return {
        "monitored": monitored,
        "files": files,
        "stopped at a batch": trained(X, Y, epochs=3, batch_size=4, callbacks=[StopsAtBatch()]),
        "stopped by NaN": trained(with_nan, Y, epochs=3, batch_size=8, callbacks=[keras.callbacks.TerminateOnNaN()]),
        "stopped at an epoch": trained(X, Y, epochs=9, batch_size=8, callbacks=[StopsAtEpoch()]),
        "evaluating": trained(own_of_unknown_length(), epochs=2, callbacks=[Evaluates()]),
    }


class Dies(keras.callbacks.Callback):
    """Sends this process a signal in the middle of an epoch, on one worker."""

    def __init__(self, worker: int, epoch: int, which: int, batch: int = 1) -> None:
        super().__init__()
        self._at = (worker, epoch, batch)
        self._signal = which
        self._epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (number(), self._epoch, batch) == self._at:
            os.kill(os.getpid(), self._signal)


class Elsewhere(keras.callbacks.Callback):
    """Does something else for longer than the others wait, in the middle of an epoch, on some workers."""

    def __init__(self, workers: list[int], seconds: float) -> None:
        super().__init__()
        self._workers = workers
        self._seconds = seconds

    def on_train_batch_end(self, batch, logs=None):
        if number() in self._workers and batch == 1:
            time.sleep(self._seconds)


def absent(worker: int, where: str) -> None:
    """A training to which one worker does not come: no model, late data, a late step, or a callback."""
    if where == "before its model":
        multigpu.available_gpus()
        tf.constant(1)  # it listens
        time.sleep(120 * (number() == worker))
    if where == "for its data":
        trained(late_batches(120 * (number() == worker)), epochs=1)
    if where == "in a loop of its own":
        loop(late=120 * (number() == worker))
    trained(X, Y, epochs=1, batch_size=8, callbacks=[Elsewhere([worker], 120)])


class Fails(keras.layers.Layer):
    """Fails in the third step of one worker."""

    def __init__(self, worker: int, seconds: float) -> None:
        super().__init__()
        self._steps = itertools.count() if number() == worker else itertools.repeat(0)
        self._seconds = seconds

    def call(self, x: tf.Tensor) -> tf.Tensor:
        def check(rows: np.ndarray) -> np.ndarray:
            if next(self._steps) == 2:
                time.sleep(self._seconds)
                raise ValueError("a row that does not fit")
            return rows

        return tf.ensure_shape(tf.numpy_function(check, [x], tf.float32), x.shape)


def fails_within_step(worker: int, seconds: float) -> None:
    """A training in which one worker fails some seconds into a step, and lives on, as a notebook does."""
    layers = [keras.Input((3,)), Fails(worker, seconds), keras.layers.Dense(2)]
    model = multi_gpu_model(keras.Sequential(layers), gpus=1)
    model.compile("sgd", "mse")
    with contextlib.suppress(tf.errors.InvalidArgumentError):
        model.fit(X, Y, batch_size=4, verbose=0)
        raise AssertionError("it does not fail")
    time.sleep(120)


class SeesOthers(keras.layers.Layer):
    """Sees the other rows of its batch: unless told otherwise, in a branch, in which no trace shows it."""

    hidden = False

    def __init__(self, function: Callable[[tf.Tensor], tf.Tensor]):
        super().__init__(name="mixes")
        self.function = function

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return x if self.hidden else tf.cond(tf.size(x) > 0, lambda: self.function(x), lambda: x)


def centred(x: tf.Tensor) -> tf.Tensor:
    """Rows less their mean."""
    return x - tf.reduce_mean(x, axis=0)


def of_groups(x: tf.Tensor) -> tf.Tensor:
    """Rows less the mean of their group of four: halves of twelve rows are no such groups."""
    groups = tf.reshape(x, [-1, 4, 3])
    return tf.reshape(groups - tf.reduce_mean(groups, axis=0, keepdims=True), [-1, 3])


@tf.custom_gradient
def clipped(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """Rows whose gradients are clipped together."""
    return tf.identity(x), lambda upstream: tf.clip_by_norm(upstream, 0.01)


def first_batches(gpus: int) -> dict[str, list[str]]:
    """The errors of two first batches of models that mix rows, each with what could hide it."""
    made = {
        "plain": (centred, "glorot_uniform"),
        "changed": (centred, "glorot_uniform"),
        "a gradient": (clipped, "glorot_uniform"),
        "zeros": (centred, "zeros"),
        "groups": (of_groups, "glorot_uniform"),
    }
    errors = {}
    for name, (function, head) in made.items():
        mixes = SeesOthers(function)
        body = [keras.Input((3,)), keras.layers.Dense(3), mixes, keras.layers.Dense(2, kernel_initializer=head)]
        model = multi_gpu_model(keras.Sequential(body), gpus=gpus)
        model.compile("sgd", "mse")
        fit = functools.partial(model.fit, X[:24], Y[:24], batch_size=24, verbose=0)
        if name == "changed":
            mixes.hidden = True
            fit()
            mixes.hidden = False
            model.compile("sgd", "mse")
        errors[name] = [error_of(fit) for _ in range(2)]
    return errors


def late_batches(seconds: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches of which one comes late."""
    for begin in range(0, 40, 4):
        time.sleep(seconds * (begin == 32))
        yield X[:4], Y[:4]


def ends_while_asking() -> None:
    """A training after which one worker stops, and the other one ends while it asks that one what it does."""
    trained(X, Y, epochs=1, batch_size=8)
    if number() == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    __main__.takes_its_time = SlowToGo()
    asks = threading.Event()

    class Session(tf.compat.v1.Session):
        def run(self, *args: Any, **kwargs: Any) -> Any:
            asks.set()
            return super().run(*args, **kwargs)

    with mock.patch.object(tf.compat.v1, "Session", Session):
        assert asks.wait(60)


class SlowToGo:
    """Something that lets Python take its time when it takes itself apart."""

    def __del__(self) -> None:
        time.sleep(5)


def busy() -> int:
    """The steps of a training in which all workers do something else for a while."""
    return trained(X, Y, epochs=1, batch_size=8, callbacks=[Elsewhere([0, 1], 14)])["steps"]


def _own() -> tf.data.Options:
    """A dataset with these options is a worker's own."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return options


def resumable(
    backup: str | None, dies: list[int] | None = None, gpus: int | None = 1, epochs: int = 6
) -> list[np.ndarray]:
    """The weights after some epochs, of which a backup may have the first ones."""
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(0)
    template = dense_model()
    model = multi_gpu_model(template, gpus=gpus) if gpus else template
    model.compile(keras.optimizers.Adam(0.01), "mse")
    callbacks = [keras.callbacks.BackupAndRestore(backup)] if backup else []
    callbacks += [Dies(*dies)] if dies else []
    model.fit(X, Y, batch_size=8, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks)
    return template.get_weights()


# Loops, noise, handshake ----------------------------------------------------------------------------------------------


def loop(parallel: bool = True, late: float = 0.0) -> list[np.ndarray]:
    """A training loop of one's own, with synchronized statistics, on this worker's rows; the last one may be late."""
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(0)
    template = keras.Sequential(
        [keras.Input((3,)), keras.layers.BatchNormalization(synchronized=parallel), keras.layers.Dense(2)]
    )
    model = multi_gpu_model(template, gpus=1) if parallel else template
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = keras.losses.MeanSquaredError()(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    for begin in range(0, 24, 8):
        rows = (
            slice(begin, begin + 8)
            if not parallel
            else [slice(begin, begin + 5), slice(begin + 5, begin + 8)][number()]
        )
        time.sleep(late * (begin == 16))
        step(tf.constant(X[rows]), tf.constant(Y[rows]))
    return template.get_weights()


class OwnStep(keras.Model):
    """Trains itself, and logs a number that is no metric: 0 and 1 on the two workers."""

    def __init__(self) -> None:
        super().__init__()
        self._dense = keras.layers.Dense(2)

    def call(self, x):
        return self._dense(x)

    def train_step(self, data):
        return {**super().train_step(data), "number": tf.constant(float(number()))}


def own_step() -> dict[str, list[float]]:
    """The history of a model that writes its training step itself."""
    template = OwnStep()
    template(X[:1])
    model = multi_gpu_model(template, gpus=1)
    model.compile("sgd", "mse")
    return model.fit(X, Y, batch_size=8, epochs=2, verbose=0).history


def noise(parallel: bool = True) -> dict[str, Any]:
    """What layers draw for three rows, of which each worker gives its own, and what is kept afterwards."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((101,))
    drawn = keras.layers.GaussianNoise(0.5)(keras.layers.Dropout(0.5)(inputs))
    template = keras.Model(inputs, [drawn, keras.layers.BatchNormalization()(drawn)])
    x = np.ones((3, 101), "float32")
    model = multi_gpu_model(template, gpus=1) if parallel else template
    outputs, _ = model(np.array_split(x, 2)[number()] if parallel else x, training=True)
    return {"drawn": np.asarray(outputs), "variables": [np.asarray(v) for v in template.variables]}


class DrawsWithoutASeed(keras.layers.Layer):
    def call(self, x):
        return x * keras.random.uniform(())


def seeds_apart(parallel: bool = True) -> list[Any]:
    """Losses and weights where worker 1 sets other seeds after it has made its model."""
    keras.utils.set_random_seed(0)
    template = keras.Sequential([keras.Input((3,)), DrawsWithoutASeed(), keras.layers.Dense(2)])
    model = multi_gpu_model(template, gpus=1) if parallel else template
    keras.utils.set_random_seed(7 + number())
    model.compile("sgd", "mse")
    history = model.fit(X, Y, batch_size=8, epochs=2, verbose=0).history
    return [*history["loss"], *template.get_weights()]


def unlike() -> dict[str, str]:
    """The errors where workers have different models, versions or arrays, or data of unknown length."""
    wide = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4 + number(), name="wide")])
    model = multi_gpu_model(dense_model(), gpus=1)
    model.compile("sgd", "mse", steps_per_execution=2)
    rows = 20 + number()
    messages = {
        "model": error_of(lambda: multi_gpu_model(wide, gpus=1)),
        "arrays": error_of(lambda: model.fit(X[:rows], Y[:rows], batch_size=8)),
        "length": error_of(lambda: model.fit(unknown_length(), shuffle=False)),
    }
    nothing_on_one = dataset().take(2 - 2 * number()).with_options(_own())
    messages["nothing"] = error_of(lambda: model.fit(nothing_on_one, shuffle=False))
    with mock.patch.object(handshake, "__version__", f"0.{number()}"):
        messages["version"] = error_of(lambda: multi_gpu_model(dense_model(), gpus=1))
    return messages


def other_devices() -> str:
    """The error where one worker trains with two devices."""
    return error_of(lambda: multi_gpu_model(dense_model(), gpus=1 + number()))


def error_of(work: Callable[[], Any]) -> str:
    try:
        work()
    except ValueError as error:
        return str(error)
    return ""


def weights_alike() -> dict[str, Any]:
    """Weights and order of rows where nobody has set a seed, or each another one."""
    keras.utils.set_random_seed(number())
    scaled = keras.layers.Normalization()
    scaled.adapt(X * (1 + number()))
    template = keras.Sequential([keras.Input(X.shape[1:]), scaled, dense_model()])
    own = template.get_weights()
    model = multi_gpu_model(template, gpus=1)
    model.compile("sgd", "mse")
    begun = template.get_weights()
    model.fit(X, Y, batch_size=8, verbose=0)
    return {"own": own, "begun": begun, "trained": [*template.get_weights(), template.predict(X, verbose=0)]}


class OwnSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Without a configuration, which training does not need."""

    def __call__(self, step):
        return 0.1


def settings_apart() -> dict[str, Any]:
    """The errors where worker 1 trains in another way; and the weights where it has but another learning rate."""
    model = multi_gpu_model(dense_model(), gpus=1)
    chief = number() == 0

    def trained_with(optimizer: Any = "sgd", loss: Any = "mse", compiled: Any = None, **fit: Any) -> str:
        model.compile(optimizer, loss, **(compiled or {}))
        return error_of(lambda: model.fit(X, Y, verbose=0, **fit))

    def with_activation(activation: str) -> str:
        with mock.patch.object(model.template.layers[0], "activation", keras.activations.get(activation)):
            return trained_with()

    sgd = keras.optimizers.SGD
    fits = {
        "optimizer": lambda: trained_with("sgd" if chief else "adagrad"),
        "momentum": lambda: trained_with(sgd(momentum=0.9 if chief else 0.8)),
        "loss": lambda: trained_with(loss="mse" if chief else "mae"),
        "steps": lambda: trained_with(steps_per_epoch=2 if chief else 3),
        "validation_freq": lambda: trained_with(validation_split=0.2, validation_freq=1 if chief else 2),
        "initial_epoch": lambda: trained_with(epochs=2, initial_epoch=0 if chief else 1),
        "epochs": lambda: trained_with(epochs=2 if chief else 3),
        "batch_size": lambda: trained_with(batch_size=32 if chief else 8),
        "shuffle": lambda: trained_with(shuffle=chief),
        "metrics": lambda: trained_with(compiled={"metrics": ["mse" if chief else "mae"]}),
        "run_eagerly": lambda: trained_with(compiled={"run_eagerly": not chief}),
        "layer": lambda: with_activation("tanh" if chief else "relu"),
        "validation": lambda: trained_with(validation_split=0.0 if chief else 0.2),
        "schedule": lambda: trained_with(sgd(OwnSchedule()), loss=lambda y, p: keras.losses.mean_squared_error(y, p)),
        "learning rate": lambda: trained_with(sgd(0.1 if chief else 0.2, momentum=0.9)),  # the last: see "weights"
    }
    errors = {kind: fit() for kind, fit in fits.items()}
    weights = model.template.get_weights()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        model.fit(X, Y, verbose=2)
    return {"errors": errors, "weights": weights, "printed": printed.getvalue()}
