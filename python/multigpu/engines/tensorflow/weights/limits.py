"""Limit the threads with which a model from a file is built for the first time."""

import tensorflow as tf

OUT_OF_MEMORY = (MemoryError, tf.errors.ResourceExhaustedError)


def start_with_one_thread() -> None:
    """Start TensorFlow's threads before memory is limited: only one of each kind, since each takes memory."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.zeros(())
