"""Graphs that are being traced."""

import tensorflow as tf


def body_of(op: tf.Operation, attribute: str) -> tf.Graph:
    """The graph of a function that an op calls. A public way leads only to its definition, without shapes.

    Args:
        op: of a graph that is being traced.
        attribute: under which the op has the function.
    """
    return op.graph._get_function(op.get_attr(attribute).name).graph
