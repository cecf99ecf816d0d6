"""Batches stay on the host until a step sends their rows, and a Keras that places them otherwise is refused."""

import jax
import keras
import numpy as np
import pytest
from equality import random_rows
from keras import layers

import multigpu
from multigpu.engines.jax import rows
from multigpu.engines.jax.private_api import KERAS_ON_JAX

X, Y = random_rows(10, 5), random_rows(10, 3)


@pytest.mark.parametrize("backend", ["cpu", "gpu"])  # before a GPU's step, Keras' loop has the next batch already
def test_a_batch_stays_on_the_host_until_its_rows_go_to_their_devices(monkeypatch, backend):
    monkeypatch.setattr("keras.src.backend.jax.trainer.jax.default_backend", lambda: backend)
    seen = []

    def send(batch, *args, **kwargs):
        seen.extend(map(type, jax.tree.leaves(batch)))
        return rows.send(batch, *args, **kwargs)

    monkeypatch.setattr("multigpu.engines.jax.steps.send", send)
    model = keras.Sequential([keras.Input((5,)), layers.Dense(64), layers.Dense(3)])
    model.compile("sgd", "mse")
    parallel = multigpu.multi_gpu_model(model, 4)
    parallel.fit(X, Y, batch_size=4, verbose=0)
    parallel.train_on_batch(X, Y)
    parallel.evaluate(X, Y, verbose=0)
    parallel.predict(X, verbose=0)
    assert set(seen) == {np.ndarray}
    assert len(seen) > 8
    plain = []
    model.train_function = lambda state, batches: plain.extend(map(type, jax.tree.leaves(next(batches)))) or ({}, state)
    model.train_on_batch(X, Y)
    assert not set(plain) & {np.ndarray}  # Keras' own way, for the template itself


@pytest.mark.quick
def test_a_keras_whose_loop_puts_batches_on_devices_otherwise_is_refused(monkeypatch):
    monkeypatch.delattr("keras.src.backend.jax.trainer._distribute_data")
    with pytest.raises(ImportError, match=r"Expected a Keras .* which lacks '.*trainer\._distribute_data'\. Run `pip"):
        KERAS_ON_JAX.check()
    monkeypatch.undo()
    monkeypatch.delattr("keras.src.backend.jax.trainer.JAXEpochIterator._one_batch_ahead_iterator")
    monkeypatch.delattr("keras.src.backend.jax.trainer.JAXEpochIterator._get_distributed_iterator")
    with pytest.raises(ImportError, match=r"JAXEpochIterator\._distribute_data"):
        KERAS_ON_JAX.check()
