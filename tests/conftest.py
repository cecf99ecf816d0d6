"""Eight devices for every test, set up before TensorFlow starts: logical CPU devices, which every machine has.

With `MULTIGPU_DEVICES=gpu` they are GPUs, or eight parts of one, for the tests that name no device by itself
(`tests/gpu/exactness.py` lists them). `MULTIGPU_XLA=on` or `off` says how twins are compiled (`support/equality.py`).
"""

import gc
import os
import signal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.update({} if os.environ.get("MULTIGPU_DEVICES") == "gpu" else {"CUDA_VISIBLE_DEVICES": "-1"})

import keras
import pytest
import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.util import tf_stack

import multigpu

pytest_plugins = ["forked_readers"]
collect_ignore = ["engines/jax"]  # on another backend of Keras: `make jax`
# a shell has processes in the background ignore interrupts, which theirs inherit: here they are to be heard
signal.signal(signal.SIGINT, signal.default_int_handler)
if os.environ.get("MULTIGPU_DEVICES") == "gpu" and not tf.config.list_physical_devices("GPU"):
    pytest.exit("Expected a GPU, since MULTIGPU_DEVICES=gpu. Received a machine where TensorFlow sees none.", 1)
# TensorFloat-32 keeps 10 bits of a factor: far from the tolerance of float32. Sums in another order stay within it,
# so ops may be nondeterministic: `enable_op_determinism()` would refuse those that have no other way.
tf.config.experimental.enable_tensor_float_32_execution(False)
multigpu.simulate_gpus(8, memory_limit=int(os.environ.get("MULTIGPU_MEMORY", "2048")))
tf.config.list_logical_devices()  # starts them: no test can change their number
gc.set_threshold(100_000, 50, 50)  # a trace makes so many objects that looking for garbage takes a part of its time
if "MULTIGPU_GRAPHS" not in os.environ:  # `make soak` has all as users have it
    # TensorFlow notes with each op the stack that made it, pytest's included, for its errors: a sixth of all time
    STACK = tf_stack.extract_stack()
    tf_stack.extract_stack = lambda stacklevel=1: STACK
GRADIENTS = ops.gradient_registry._registry
KNOWN_GRADIENTS = GRADIENTS.keys() | set()


LAST = ["batches", "cli", "cluster", "devices", "private_api", "profiling"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Folders whose files take seconds come last: no process is left with a long one when the others are done."""
    items.sort(key=lambda item: item.path.parent.name in LAST)


@pytest.fixture(autouse=True, scope="module")
def frozen():
    """What was there before the tests of a file is not looked through again when they collect garbage.

    That takes most of a second for what was imported. And TensorFlow keeps the gradients that a trace has registered,
    and with them the trace of every model that was trained on one device, which makes all later ones slower.
    """
    for name in GRADIENTS.keys() - KNOWN_GRADIENTS:
        del GRADIENTS[name]
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
