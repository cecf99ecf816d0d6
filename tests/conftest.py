"""Eight devices for every test, set up before Keras' backend starts: parts of the CPU, which every machine has.

`KERAS_BACKEND` chooses the engine, as it does for users: `make jax` runs the tests of the engine on JAX, and those of
numbers, which are the same on either. With `MULTIGPU_DEVICES=gpu` the devices are GPUs, or eight parts of one, for the
tests that name no device by itself (`tests/gpu/exactness.py` lists them). `MULTIGPU_XLA=on` or `off` says how twins are
compiled (`support/equality.py`).
"""

import gc
import os
import signal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.pop("COLUMNS", None)  # processes of xdist have 80, as if they had a terminal
os.environ.update({} if os.environ.get("MULTIGPU_DEVICES") == "gpu" else {"CUDA_VISIBLE_DEVICES": "-1"})

import keras
import pytest

import multigpu

ENGINE = keras.backend.backend()
pytest_plugins = ["forked_readers", f"tests_on_{ENGINE}"]
collect_ignore = {"tensorflow": ["engines/jax"], "jax": ["engines/tensorflow"]}[ENGINE]
# a shell has processes in the background ignore interrupts, which theirs inherit: here they are to be heard
signal.signal(signal.SIGINT, signal.default_int_handler)
multigpu.simulate_gpus(8, memory_limit=int(os.environ.get("MULTIGPU_MEMORY", "2048")))
gc.set_threshold(100_000, 50, 50)  # a trace makes so many objects that looking for garbage takes a part of its time


LAST = ["batches", "cli", "cluster", "devices", "private_api", "profiling"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Folders whose files take seconds come last: no process is left with a long one when the others are done."""
    items.sort(key=lambda item: item.path.parent.name in LAST)


@pytest.fixture(autouse=True, scope="module")
def frozen(forgotten):
    """What was there before the tests of a file is not looked through again when they collect garbage.

    That takes most of a second for what was imported.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def fresh_keras():
    """Each test starts with the same seeds and no names taken."""
    assert len(multigpu.available_gpus()) == 8
    keras.utils.clear_session(free_memory=False)  # once for each file is enough: see above
    keras.utils.set_random_seed(0)


@pytest.fixture
def unchecked(monkeypatch):
    """First batches are not checked, in a test that counts what a step does."""
    monkeypatch.setenv("MULTIGPU_CHECK", "0")
