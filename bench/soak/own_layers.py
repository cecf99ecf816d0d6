"""Layers and models that add losses and keep state, as people write them."""

from typing import Any

import keras
from keras import layers, ops


def rows(x: Any) -> Any:
    """Number of rows, as a float."""
    return ops.cast(ops.shape(x)[0], keras.config.floatx())


def square_rows(x: Any) -> Any:
    """One value per row."""
    return ops.mean(ops.square(ops.reshape(x, (ops.shape(x)[0], -1))), axis=1)


def masked_mean(x: Any, mask: Any) -> Any:
    """The mean over what a mask keeps, or what is positive where there is none."""
    square = ops.square(x)
    keep = x > 0 if mask is None else ops.broadcast_to(_like(mask, x), ops.shape(x))
    keep = ops.cast(keep, x.dtype)
    return ops.sum(square * keep) / (ops.sum(keep) + 1e-3)


def _like(mask: Any, x: Any) -> Any:
    return ops.reshape(mask, (*ops.shape(mask), *[1] * (len(x.shape) - len(mask.shape))))


LOSSES = {
    "adds mean": lambda x, mask: ops.mean(ops.square(x)),
    "adds sum": lambda x, mask: 0.01 * ops.sum(ops.square(x)),
    "adds sum divided by rows": lambda x, mask: ops.sum(ops.abs(x)) / rows(x),
    "adds one value per row": lambda x, mask: 0.1 * square_rows(x),
    "adds masked mean": masked_mean,
}
STATES = {
    "keeps number of calls": lambda state, x: state + 1.0,
    "keeps number of rows": lambda state, x: state + rows(x),
    "keeps sum": lambda state, x: state + ops.sum(ops.square(x)),
    "keeps moving mean": lambda state, x: 0.9 * state + 0.1 * ops.mean(x),
    "keeps last mean": lambda state, x: ops.mean(x),
}


class Adds(layers.Layer):
    """Adds a loss of its inputs times a weight of its own."""

    def __init__(self, loss: Any):
        super().__init__()
        self.loss, self.supports_masking = loss, True

    def build(self, shape: Any) -> None:
        """One number per column."""
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, x: Any, mask: Any = None) -> Any:
        """Its inputs, scaled."""
        self.add_loss(self.loss(x * self.scale, mask))
        return x * self.scale


class Keeps(layers.Layer):
    """Keeps a number, new in each step of training."""

    def __init__(self, keep: Any):
        super().__init__()
        self.keep, self.supports_masking = keep, True
        self.state = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x: Any, training: bool = False) -> Any:
        """Its inputs."""
        if training:
            self.state.assign(self.keep(self.state.value, x))
        return x


class Measures(layers.Layer):
    """A layer with a metric."""

    def __init__(self):
        super().__init__()
        self.metric, self.supports_masking = keras.metrics.Mean(name="size"), True

    def call(self, x: Any) -> Any:
        """Its inputs."""
        self.metric.update_state(square_rows(x))
        return x


class Writes(keras.Model):
    """A model class whose `call` adds a loss of its own."""

    def __init__(self, inner: keras.Model, loss: Any):
        super().__init__()
        self.inner, self.added = inner, loss

    def call(self, inputs: Any, training: bool = False) -> Any:
        """What the model inside gives."""
        outputs = self.inner(inputs, training=training)
        first = keras.tree.flatten(outputs)[0]
        self.add_loss(self.added(first, None))
        return outputs
