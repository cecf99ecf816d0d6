"""Look up rows of large embedding tables on their owner's device, and send only these rows."""

import contextlib
import functools
from collections.abc import Collection, Sequence

import keras
import tensorflow as tf

from multigpu.base.replaced import entered, replaced
from multigpu.engines.tensorflow.private_api.gradients import with_gradient
from multigpu.engines.tensorflow.private_api.variables import backing_variable
from multigpu.engines.tensorflow.weights.buckets import BUCKET_BYTES
from multigpu.engines.tensorflow.weights.place_locate import locate, num_bytes


class Tables:
    """The Embedding layers of a template whose tables stay with their owners.

    Sending a table that fits into one bucket is cheaper than sending rows.

    Attributes:
        layers: these layers.
    """

    def __init__(self, layers: Sequence[keras.Layer], sent: Collection[int] = ()) -> None:
        """Find the layers.

        Args:
            layers: all layers of a template.
            sent: the ids of tables that are sent all the same.
        """
        plain = [layer for layer in layers if _is_plain_embedding(layer) and id(layer.embeddings) not in sent]
        self.layers = [layer for layer in plain if num_bytes(layer.embeddings) > BUCKET_BYTES]
        self._ids = {id(layer.embeddings) for layer in self.layers}

    def without(self, variables: Sequence[keras.Variable]) -> list[keras.Variable]:
        """Return the variables that are not tables."""
        return [variable for variable in variables if id(variable) not in self._ids]

    def trained(self) -> list[tf.Variable]:
        """Return the tables to which gradients flow."""
        tables = {id(layer.embeddings): layer.embeddings for layer in self.layers}
        return [backing_variable(table) for table in tables.values() if table.trainable]

    def with_variables(self, variables: Collection[int]) -> list[keras.Variable]:
        """Return the tables that TensorFlow has as these variables, given by their ids."""
        tables = [layer.embeddings for layer in self.layers]
        return [table for table in tables if id(backing_variable(table)) in variables]

    def looked_up_by_layers(self) -> contextlib.AbstractContextManager[None]:
        """Make layers look rows up on the owner's device while a replica is traced, in a `with` block."""
        return entered(replaced(layer, "call", functools.partial(_look_up, layer)) for layer in self.layers)


def _look_up(layer: keras.layers.Embedding, inputs: tf.Tensor) -> tf.Tensor:
    """Return the result of the layer's own `call`, computed on the owner's device, from only the rows."""
    owner = locate(layer.embeddings)
    with tf.device(owner):
        ids = inputs if inputs.dtype in (tf.int32, tf.int64) else tf.cast(inputs, tf.int32)
        storage = backing_variable(layer.embeddings)  # Keras would cast the whole table first
        rows = keras.ops.take(storage, ids, axis=0)
    return _narrowed(rows, tf.as_dtype(layer.compute_dtype), owner)


def _narrowed(rows: tf.Tensor, dtype: tf.DType, owner: str) -> tf.Tensor:
    """Return rows in the compute type, in which they and their gradients are sent. The owner casts both."""
    if rows.dtype == dtype:
        return rows

    def widened(upstream: tf.Tensor) -> tf.Tensor:
        with tf.device(owner):
            return tf.cast(upstream, rows.dtype)

    with tf.device(owner):
        return with_gradient(rows, widened, lambda x: tf.cast(x, dtype))


def _is_plain_embedding(layer: keras.Layer) -> bool:
    """Return whether a layer looks up rows by Keras' own code, without changes, quantization or LoRA.

    A layer that is never called has no table.
    """
    if not isinstance(layer, keras.layers.Embedding) or type(layer).call is not keras.layers.Embedding.call:
        return False
    return layer.built and layer.quantization_mode is None and not layer.lora_enabled
