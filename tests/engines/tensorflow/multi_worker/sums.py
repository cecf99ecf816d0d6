"""Sums over workers, seen from each of them: where they are made, and of tensors of changing shapes."""

from collections import Counter

import keras
import numpy as np
from added_losses import spread_of_rows
from equality import random_rows
from executed_graphs import executed, sent_tensors
from keras import ops
from process_threads import num_threads

from multigpu import multi_gpu_model
from multigpu.engines.tensorflow.weights.place_locate import locate

X, Y = random_rows(25, 6), random_rows(25, 1, seed=1)


def places() -> dict[str, Counter]:
    """Devices that own weights, that take part in sums, and from which single numbers are sent to the first one."""
    ids = keras.Input((4,), dtype="int32")
    x = keras.layers.Flatten()(keras.layers.Embedding(70_000, 4)(ids))  # 1.1 MB: only rows of it travel
    template = keras.Model(ids, keras.layers.Dense(1)(keras.layers.Dense(300)(x)))
    model = multi_gpu_model(template, gpus=["CPU:1", "CPU:2"])
    model.compile("sgd", "mse", metrics=["mae"])
    run = executed(lambda: model.fit(np.zeros((8, 4), "int32"), np.zeros((8, 1)), verbose=0))
    owners = Counter(locate(weight) for weight in template.weights)
    numbers = Counter(sent.start for sent in sent_tensors(run) if sent.shape == () and sent.end == "CPU:0")
    return {"sums": run.devices_of("CollectiveReduce"), "numbers": numbers, "owners": owners}


class ComparesRows(keras.layers.Layer):
    """Adds a loss that no slice tells, of rows as long as they are."""

    def call(self, x):
        self.add_loss(spread_of_rows(x, None))
        return ops.sum(x, axis=-1, keepdims=True)


def losses_of_changing_widths(gpus: int | None = 1) -> list[float]:
    """The loss of each epoch, on rows of 6 numbers, and then of 4."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((None,))
    template = keras.Model(inputs, keras.layers.Dense(1)(ComparesRows()(inputs)))
    model = multi_gpu_model(template, gpus=gpus) if gpus else template
    model.compile("sgd", "mse")
    fit = [model.fit(X[:, :width], Y, batch_size=8, shuffle=False, verbose=0) for width in (6, 4)]
    return [loss for history in fit for loss in history.history["loss"]]


def threads() -> int:
    """How many more there are after 25 steps than before them."""
    model = multi_gpu_model(keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)]), gpus=1)
    model.compile("sgd", "mse")
    model.fit(X, Y, batch_size=5, verbose=0)
    before = num_threads()
    model.fit(X, Y, batch_size=1, verbose=0)
    return num_threads() - before


def all_sums() -> dict:
    """The results of all functions."""
    return {"places": places(), "losses": losses_of_changing_widths(), "threads": threads()}
