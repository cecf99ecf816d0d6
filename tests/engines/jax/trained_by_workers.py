"""A training by all workers of a cluster, or by one process: `python trained_by_workers.py FOLDER DATA WORKERS`.

What a process ends with is in FOLDER, under its number or as `one`: all variables, predictions and logs. DATA are
arrays that all workers have, or batches of rows that each has for itself: as a Keras dataset, from a function, or as a
dataset of TensorFlow. WORKERS is their number, which one process has to know.
"""

import itertools
import os
import signal
import sys

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import numpy as np
from keras import layers

import multigpu

multigpu.join_cluster()
multigpu.simulate_gpus(2)
RANK = jax.process_index()
ROWS = [[3, 1, 5], [5, 2], [4, 4, 1, 2]]  # in the batches of each worker
ONLY = {"save_weights_only": True}
X, Y = (np.random.default_rng(0).normal(size=(40, n)).astype("float32") for n in (5, 3))


def environment(name, default):
    """What an environment variable, with a value for each worker, has for this one."""
    return os.environ[name].split(",")[RANK] if name in os.environ else default


class OwnStep(keras.Sequential):
    """A model whose training step uses its weights as they are passed, beside the layers that read them."""

    def train_step(self, state, data):
        weights, others, slots, metrics = state

        def loss_of(weights):
            predicted, new_others = self.stateless_call(weights, others, data[0], training=True)
            raw = jax.numpy.tanh(data[0] @ weights[0] + weights[1])
            if "FAILS" in os.environ:
                raise ArithmeticError("an error in the step")
            return ((predicted - data[1]) ** 2).mean() + 0.1 * (raw**2).mean(), new_others

        (loss, others), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights)
        weights, slots = self.optimizer.stateless_apply(slots, gradients, weights)
        return {"loss": loss}, (weights, others, slots, metrics)


def build():
    kind = OwnStep if "OWN_STEP" in os.environ else keras.Sequential
    if "LENGTHS" in os.environ:
        return kind([keras.Input((None, 5)), layers.Conv1D(8, 2), layers.GlobalMaxPooling1D(), layers.Dense(3)])
    noise = layers.Dropout(float(os.environ.get("DROPOUT", "0.3")))
    middle = [layers.Dense(64, "tanh"), layers.BatchNormalization(), noise, layers.Dense(64)]
    return kind([keras.Input((5,)), *middle, layers.Dense(int(environment("WIDTH", "3")))])


class Batches(keras.utils.PyDataset):
    """Batches of so many rows, of which the first is known."""

    def __init__(self, firsts_and_sizes):
        super().__init__()
        self.batches = [(X[each].copy(), Y[each].copy()) for each in firsts_and_sizes]
        if "LENGTHS" in os.environ:  # sequences of another length in each step
            longer = [np.repeat(x[:, None], 2 + step, 1) for step, (x, _) in enumerate(self.batches)]
            self.batches = [(x.cumsum(1), y) for x, (_, y) in zip(longer, self.batches, strict=True)]

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, number):
        return self.batches[number]


def own_batches(number, number_of_workers, over_and_over):
    """The rows of a worker; or those of all, worker after worker, for one process."""
    firsts = [np.cumsum([10 * worker, *sizes]) for worker, sizes in enumerate(ROWS)]
    rows = [[np.arange(a, b) for a, b in itertools.pairwise(each)] for each in firsts]
    if number is not None:
        return Batches(rows[number])
    rows = rows[:number_of_workers]
    steps = itertools.zip_longest(*rows, fillvalue=np.arange(0))
    if over_and_over:
        steps = itertools.islice(zip(*map(itertools.cycle, rows), strict=False), 4)
    return Batches([np.concatenate(step) for step in steps])


class Ends(keras.callbacks.Callback):
    """Stops the training in the second step, or the process in that of the second epoch."""

    def __init__(self, how):
        super().__init__()
        self.how = how

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if batch == 1 and self.how == "kill" and self.epoch == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if batch == 1 and self.how == "raise":
            raise OSError("no space left")
        self.model.stop_training = self.model.stop_training or (batch == 1 and self.how == "stop")


def ends_in_a_function():
    """The same as a callback of Keras that calls a function."""
    ends = Ends("stop")
    begin = {"on_train_begin": lambda logs: ends.set_model(callback.model), "on_epoch_begin": ends.on_epoch_begin}
    callback = keras.callbacks.LambdaCallback(**begin, on_train_batch_end=ends.on_train_batch_end)
    return callback


def as_tensorflow_has_them(batches, own):
    """The same batches in a dataset that workers would share, or that is each worker's own."""
    import tensorflow as tf

    spec = tuple(tf.TensorSpec((None, *array.shape[1:])) for array in (X, Y))
    dataset = tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=spec)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[own]
    return dataset.with_options(options)


def values_of(model):
    return [variable.value for variable in [*model.variables, *model.optimizer.variables]]


def main(folder, data, number_of_workers):
    keras.utils.set_random_seed(1 + RANK)
    model = build()
    parallel = multigpu.multi_gpu_model(model, 2)
    cluster = parallel.plan.cluster
    file = f"{folder}/{cluster.number if cluster else 'one'}"
    eagerly = "EAGERLY" in os.environ
    parallel.compile(
        keras.optimizers.SGD(0.01, momentum=float(environment("MOMENTUM", "0.9"))),
        "mse",
        metrics=["mae"],
        run_eagerly=eagerly,
    )
    ending = environment("ENDS", "")
    writers = [keras.callbacks.CSVLogger(f"{file}.csv"), keras.callbacks.ModelCheckpoint(f"{file}.weights.h5", **ONLY)]
    backup = keras.callbacks.BackupAndRestore(f"{folder}/backup", delete_checkpoint=False)
    callbacks = [
        *writers,
        *([backup] if "BACKUP" in os.environ else []),
        *([ends_in_a_function() if ending == "function" else Ends(ending)] if ending else []),
    ]
    given = {"x": X[:11], "y": Y[:11], "batch_size": 4, "validation_data": (X[:5], Y[:5])}
    evaluated = {"x": X[:11], "y": Y[:11], "batch_size": 4}
    if data != "arrays":  # the last one from a function, over and over
        batches = own_batches(cluster.number if cluster else None, int(number_of_workers), data == "generator")
        given = {"x": batches, "validation_data": batches, "shuffle": False}
    if data == "dataset":
        evaluated = {"x": batches}
    if data == "generator":
        given = {"x": (batch for batch in itertools.cycle(batches.batches)), "steps_per_epoch": 2}
    if data == "tf.data":
        same = [(X[first : first + 2], Y[first : first + 2]) for first in (0, 2, 4)]
        given["validation_data"] = as_tensorflow_has_them(same, "AUTO")
        given["x"] = as_tensorflow_has_them(batches.batches, "OFF")
    before = np.random.get_state()[1].copy()
    logs = parallel.fit(
        **given,
        epochs=int(os.environ.get("EPOCHS", "2")),
        verbose=int(os.environ.get("VERBOSE", "0")),
        callbacks=callbacks,
    ).history
    assert cluster is None or cluster.is_chief or np.array_equal(np.random.get_state()[1], before)
    results = parallel.evaluate(**evaluated, verbose=0)
    if data == "arrays":
        results += [float(parallel.train_on_batch(X[:5], Y[:5])[0]), float(parallel.test_on_batch(X[:3], Y[:3])[0])]
    x = X[:3, None].repeat(4, 1) if "LENGTHS" in os.environ else X[:3]
    predicted = parallel.predict(x, verbose=0)
    values = list(map(np.asarray, values_of(model)))
    np.savez(file, *values, *logs.values(), results, predicted, parallel(x[:2]))
    first = [
        x.data.nbytes for v in values_of(model) for x in v.addressable_shards if x.device == jax.local_devices()[0]
    ]
    np.save(f"{file}.held", [sum(first), sum(v.nbytes for v in values_of(model))])
    model.save(f"{file}.keras")
    assert jax.process_count() == (cluster.size if cluster else 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
