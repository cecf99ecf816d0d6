"""The passes of TensorFlow's optimizer over the graph of a step, which has the ops of all replicas.

By default, TensorFlow makes them twice. For eight replicas, this takes longer than Python takes to trace them. The
public options apply to all functions of a process, and cannot set the number of rounds.
"""

import contextlib
import functools
from collections.abc import Iterator

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig
from tensorflow.python.eager import context

OFF = RewriterConfig.OFF
ONE_ROUND = RewriterConfig(
    meta_optimizer_iterations=RewriterConfig.ONE,  # the second one makes a step of EfficientNetB0 no faster
    disable_tfg_optimizer=True,  # sorts ops, and notes shapes that the other passes find by themselves
    experimental_conditional_code_motion=OFF,  # of branches, which are in the graph itself by then
)
FOR_GPUS = RewriterConfig(layout_optimizer=OFF, memory_optimization=RewriterConfig.NO_MEM_OPT)
# on CPUs: a tenth of the first step's time, and no faster steps. Without folding of constants, there are more copies
FOR_TRAINING_ON_GPUS = RewriterConfig(remapping=OFF, shape_optimization=OFF)


@contextlib.contextmanager
def optimized_once(training: bool) -> Iterator[None]:
    """While it lasts, functions that run for the first time are optimized in one round, by passes that change them.

    Args:
        training: whether they are training steps, whose ops have gradients and can hardly be fused.
    """
    this = context.context()
    before = this.function_call_options
    has_gpus = bool(tf.config.list_logical_devices("GPU"))
    config = _in_one_round(before.config_proto_serialized, has_gpus, training)
    this.function_call_options = context.FunctionCallOptions(before.executor_type, config)
    try:
        yield
    finally:
        this.function_call_options = before


@functools.cache
def _in_one_round(serialized: bytes, has_gpus: bool, training: bool) -> config_pb2.ConfigProto:
    """The settings of a call without some passes, but for those that are set otherwise."""
    config = config_pb2.ConfigProto.FromString(serialized)
    passes = RewriterConfig()
    left_out = [] if has_gpus else [FOR_GPUS, *[FOR_TRAINING_ON_GPUS] * training]
    for each in (ONE_ROUND, *left_out, config.graph_options.rewrite_options):
        passes.MergeFrom(each)
    config.graph_options.rewrite_options.CopyFrom(passes)
    return config
