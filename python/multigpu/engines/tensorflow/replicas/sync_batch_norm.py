"""BatchNormalization(synchronized=True): statistics of the global batch, taken over all slices between two stages.

Keras gets them from `tf.distribute`, which does not know these replicas and would silently return those of one slice.
"""

import contextlib
import functools
from collections.abc import Sequence

import keras
import tensorflow as tf

from multigpu.base.refusal import refuse
from multigpu.base.replaced import entered
from multigpu.engines.tensorflow.private_api.gradients import custom_gradient
from multigpu.engines.tensorflow.replicas.layer_calls import LayerCalls, all_calls
from multigpu.engines.tensorflow.replicas.parts import Parts
from multigpu.engines.tensorflow.replicas.xla import not_clustered
from multigpu.private_api.layers import moments_from


class SyncBatchNorm:
    """The synchronized layers of a template.

    Attributes:
        layers: the layers with `synchronized=True`, except frozen ones, which use no statistics.
    """

    def __init__(self, layers: Sequence[keras.Layer]) -> None:
        normalizations = [layer for layer in layers if isinstance(layer, keras.layers.BatchNormalization)]
        self.layers = [layer for layer in normalizations if layer.synchronized and layer.trainable]

    def seen_by_layers(self, counts: tf.Tensor, slices: Parts) -> contextlib.AbstractContextManager[None]:
        """Give layers the statistics of all replicas while a replica is traced, inside a `with` block.

        Args:
            counts: (), 1, or 0 for a slice that does not count in the statistics.
            slices: records the values that are merged over slices.
        """
        return entered(moments_from(layer, _Moments(layer, slices, counts)) for layer in self.layers)

    def check_traced_once(self) -> None:
        """Raise an error for these layers if replicas have separate traces, which cannot share sums.

        Raises:
            ValueError: there are such layers.
        """
        if self.layers:
            raise refuse(
                "ops of TensorFlow in a template with synchronized BatchNormalization, whose replicas have to run "
                "the same trace to sum their statistics",
                f"a `tf.py_function` and the layer {self.layers[0].name!r}",
                "Use `tf.numpy_function` where no gradient passes, or `synchronized=False`.",
            )


def normalized_by_slices(calls: LayerCalls) -> list[keras.Layer]:
    """Return the layers that used the statistics of a slice in a run."""
    training = [call.layer for call in all_calls(calls.root) if call.kwargs.get("training")]
    normalizations = [layer for layer in training if isinstance(layer, keras.layers.BatchNormalization)]
    others = [layer for layer in normalizations if layer.trainable and not layer.synchronized]
    return list({id(layer): layer for layer in others}.values())


class HeldStatistics(SyncBatchNorm):
    """All BatchNormalization layers, which also use their moving statistics in training, so that rows stay apart."""

    def __init__(self, layers: Sequence[keras.Layer]) -> None:
        self.layers = [layer for layer in layers if isinstance(layer, keras.layers.BatchNormalization)]

    def seen_by_layers(self, counts: tf.Tensor, slices: Parts) -> contextlib.AbstractContextManager[None]:
        """Give layers their own moving statistics while a replica is traced, inside a `with` block."""
        held = (moments_from(layer, functools.partial(_held, layer)) for layer in self.layers)
        return entered((not_clustered(), *held))


def _held(layer: keras.layers.BatchNormalization, inputs: tf.Tensor, mask: tf.Tensor | None) -> tuple[tf.Tensor, ...]:
    return tuple(tf.cast(each, inputs.dtype) for each in (layer.moving_mean, layer.moving_variance))


class _Moments:
    """Mean and variance of a layer's inputs over all replicas, by Keras' formulas for one device."""

    def __init__(self, layer: keras.layers.BatchNormalization, slices: Parts, counts: tf.Tensor) -> None:
        self._layer, self._slices, self._counts = layer, slices, counts

    def __call__(self, inputs: tf.Tensor, mask: tf.Tensor | None) -> tuple[tf.Tensor, tf.Tensor]:
        if tf.executing_eagerly():
            raise refuse(
                "`run_eagerly=False` for a template with synchronized BatchNormalization, whose replicas have to "
                "run at the same time to take their statistics together",
                f"run_eagerly=True and the layer {self._layer.name!r}",
                "Use neither `run_eagerly` nor `tf.config.run_functions_eagerly(True)`, or use `synchronized=False`.",
            )
        axis = self._layer.axis % inputs.shape.rank
        epsilon = 0.0 if mask is None else keras.backend.epsilon()  # Keras adds it to the count
        seen = [] if mask is None else [tf.broadcast_to(tf.cast(mask, inputs.dtype)[..., None], tf.shape(inputs))]
        counts = tf.cast(self._counts, inputs.dtype)
        own = _statistics(inputs, counts, *seen, axis=axis)
        count, mean, deviations = tf.unstack(self._slices.over_slices(own, merged_statistics))
        centre = tf.math.divide_no_nan(count * mean, count + epsilon)
        variance = tf.math.divide_no_nan(deviations + count * tf.square(mean - centre), count + epsilon)
        if self._slices.on_tape:
            return centre, variance
        step = tf.math.divide_no_nan(counts, count + epsilon)
        known = map(tf.stop_gradient, (centre, variance, step))
        return self._differentiable(inputs, *known, *seen, axis=axis, epsilon=epsilon)

    def _differentiable(self, *tensors: tf.Tensor, axis: int, epsilon: float) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the known mean and variance as functions of the inputs that have a gradient.

        Args:
            tensors: the inputs, (..., C, ...); mean and variance, (C,); (C,) how much the mean changes with an input;
                and if there is a mask, 1 for the inputs that it keeps.
            axis: the axis of the C channels.
            epsilon: the number that was added to the count.
        """

        @custom_gradient  # all used tensors are arguments: a gradient's gradient cannot reach others
        def moments(x: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, step: tf.Tensor, *seen: tf.Tensor) -> tuple:
            def gradient(*upstream: tf.Tensor) -> list[tf.Tensor | None]:
                of_mean, of_variance = tf.unstack(self._slices.over_slices(tf.stack(upstream)))
                centre = mean + epsilon * mean * step  # deviations from a mean with an epsilon do not sum to 0
                of_x = _wide(of_mean * step, x, axis) + (x - _wide(centre, x, axis)) * _wide(
                    2 * of_variance * step, x, axis
                )
                return [_where_seen(of_x, *seen), *[None] * (len(tensors) - 1)]

            return (mean, variance), gradient

        return moments(*tensors)


def _statistics(x: tf.Tensor, counts: tf.Tensor, *seen: tf.Tensor, axis: int) -> tf.Tensor:
    """Return for each channel the number of values, their mean, and the sum of squared deviations: (3, C).

    Args:
        x: the values.
        counts: (), 0 for a slice whose values do not count.
        seen: 1 for the values that a mask keeps.
        axis: the axis of the channels.
    """
    others = [other for other in range(x.shape.rank) if other != axis]
    count = tf.reduce_sum(*seen or [tf.ones_like(x)], axis=others)
    mean = tf.math.divide_no_nan(tf.reduce_sum(_where_seen(x, *seen), others), count)
    deviations = tf.reduce_sum(tf.square(_where_seen(x - _wide(mean, x, axis), *seen)), others)
    return tf.math.multiply_no_nan(tf.stack([count, mean, deviations]), counts)


def merged_statistics(of_parts: tf.Tensor) -> tf.Tensor:
    """Merge counts, means and squared deviations of parts into those of all values: (parts, 3, C) → (3, C).

    A difference of sums would lose the variance if the mean is large. T. F. Chan, G. H. Golub and R. J. LeVeque,
    "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979.
    """
    counts, means, deviations = tf.unstack(of_parts, axis=1)
    count = tf.reduce_sum(counts, axis=0)
    mean = tf.math.divide_no_nan(tf.reduce_sum(counts * means, axis=0), count)
    between = tf.reduce_sum(counts * tf.square(means - mean), axis=0)
    return tf.stack([count, mean, tf.reduce_sum(deviations, axis=0) + between])


def _where_seen(x: tf.Tensor, *seen: tf.Tensor) -> tf.Tensor:
    return tf.math.multiply_no_nan(x, *seen) if seen else x


def _wide(x: tf.Tensor, like: tf.Tensor, axis: int) -> tf.Tensor:
    """Return numbers of channels in the shape of tensors with other axes."""
    return tf.reshape(x, [-1 if other == axis else 1 for other in range(like.shape.rank)])
