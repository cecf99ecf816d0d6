"""What TensorFlow is told before the tests of its engine begin, as a plugin of pytest."""

import os

import pytest
import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.util import tf_stack

if os.environ.get("MULTIGPU_DEVICES") == "gpu" and not tf.config.list_physical_devices("GPU"):
    pytest.exit("Expected a GPU, since MULTIGPU_DEVICES=gpu. Received a machine where TensorFlow sees none.", 1)
# TensorFloat-32 keeps 10 bits of a factor: far from the tolerance of float32. Sums in another order stay within it,
# so ops may be nondeterministic: `enable_op_determinism()` would refuse those that have no other way.
tf.config.experimental.enable_tensor_float_32_execution(False)
tf.config.list_logical_devices()  # starts them: no test can change their number
if "MULTIGPU_GRAPHS" not in os.environ:  # `make soak` has all as users have it
    # TensorFlow notes with each op the stack that made it, pytest's included, for its errors: a sixth of all time
    STACK = tf_stack.extract_stack()
    tf_stack.extract_stack = lambda stacklevel=1: STACK
GRADIENTS = ops.gradient_registry._registry
KNOWN_GRADIENTS = GRADIENTS.keys() | set()


@pytest.fixture(scope="module")
def forgotten():
    """TensorFlow keeps the gradients that a trace has registered, and with them the trace of every model that was
    trained on one device, which makes all later ones slower.
    """
    for name in GRADIENTS.keys() - KNOWN_GRADIENTS:
        del GRADIENTS[name]
