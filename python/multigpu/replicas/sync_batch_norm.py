"""BatchNormalization(synchronized=True): statistics of the global batch, summed over the replicas inside their run.

Keras asks `tf.distribute` for them, which knows nothing of these replicas and would quietly answer for one slice.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence

import keras
import tensorflow as tf

from multigpu.private_api.layers import moments_from


class SyncBatchNorm:
    """The synchronized layers of a template.

    Attributes:
        layers: the layers that say `synchronized=True`.
    """

    def __init__(self, layers: Sequence[keras.Layer]) -> None:
        normalizations = [layer for layer in layers if isinstance(layer, keras.layers.BatchNormalization)]
        self.layers = [layer for layer in normalizations if layer.synchronized]

    @contextlib.contextmanager
    def seen_by_layers(self, counts: tf.Tensor, summed: Callable[..., tf.Tensor]) -> Iterator[None]:
        """While a replica is traced, its layers see the statistics of all replicas.

        Args:
            counts: (), 1, or 0 for a slice that stays out of the sums.
            summed: gives the sum of a tensor over all replicas; `label` says of what.
        """
        with contextlib.ExitStack() as stack:
            for position, layer in enumerate(self.layers):
                of_layer = functools.partial(summed, label=f"statistics {position}")
                stack.enter_context(moments_from(layer, _Moments(layer, of_layer, counts)))
            yield

    def check_traced_once(self) -> None:
        """Refuses these layers where replicas have traces of their own: none would find the others' sums.

        Raises:
            ValueError: there are such layers.
        """
        if self.layers:
            raise ValueError(
                "Expected ops of TensorFlow in a template with synchronized BatchNormalization, whose replicas have to "
                "run the same trace to sum their statistics. Received: a `tf.py_function` and the layer "
                f"{self.layers[0].name!r}. Use `tf.numpy_function` where no gradient passes, or `synchronized=False`."
            )


class _Moments:
    """Mean and variance of a layer's inputs over all replicas, by the formulas that Keras has for one device."""

    def __init__(
        self, layer: keras.layers.BatchNormalization, summed: Callable[[tf.Tensor], tf.Tensor], counts: tf.Tensor
    ) -> None:
        self._layer = layer
        self._summed = summed
        self._counts = counts

    def __call__(self, inputs: tf.Tensor, mask: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor]:
        if tf.executing_eagerly():
            raise ValueError(
                "Expected `run_eagerly=False` for a template with synchronized BatchNormalization, whose replicas "
                "have to run at the same time to sum their statistics. "
                f"Received: run_eagerly=True and the layer {self._layer.name!r}. Compile without `run_eagerly`, or "
                "use `synchronized=False`."
            )
        axis = self._layer.axis % inputs.shape.rank
        others = [other for other in range(inputs.shape.rank) if other != axis]
        seen = None if mask is None else tf.broadcast_to(tf.cast(mask, inputs.dtype)[..., None], tf.shape(inputs))
        x = inputs if seen is None else tf.math.multiply_no_nan(inputs, seen)
        count = tf.reduce_sum(tf.ones_like(inputs) if seen is None else seen, others)
        sums = tf.stack([tf.reduce_sum(x, others), tf.reduce_sum(tf.square(x), others), count])
        counted = tf.math.multiply_no_nan(sums, tf.cast(self._counts, sums.dtype))
        total, squares, count = tf.unstack(self._summed(counted))
        return _mean_and_variance(total, squares, count, 0.0 if mask is None else keras.backend.epsilon())


def _mean_and_variance(
    total: tf.Tensor, squares: tf.Tensor, count: tf.Tensor, epsilon: float
) -> tuple[tf.Tensor, tf.Tensor]:
    """Σx ÷ n and Σ(x − mean)² ÷ n from sums over `count` values; Keras adds an epsilon to n when it is masked."""
    mean = tf.math.divide_no_nan(total, count + epsilon)
    deviations = squares - 2 * mean * total + tf.square(mean) * count
    return mean, tf.maximum(tf.math.divide_no_nan(deviations, count + epsilon), 0)
