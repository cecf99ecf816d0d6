"""The control: the algorithm of Keras 2's `multi_gpu_model()`, which Keras removed after 2.3, on today's Keras.

Each device calls the template on its rows and reads the shared variables where they are, one by one; the last device
takes the rows that are left over. Nothing is packed, nothing keeps the backward pass on the device of the forward one.
"""

from collections.abc import Sequence

import keras
import tensorflow as tf


class Keras2Algorithm(keras.Model):
    """A template called under one device scope per slice of the batch."""

    def __init__(self, template: keras.Model, devices: Sequence[str]):
        super().__init__(autocast=False)
        self.template = template
        self._devices = list(devices)

    def call(self, x: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Outputs of all slices, concatenated on the CPU."""
        step = tf.shape(x)[0] // len(self._devices)
        outputs = []
        for number, device in enumerate(self._devices):
            end = None if device == self._devices[-1] else (number + 1) * step
            with tf.device(device):
                outputs.append(self.template(x[number * step : end], training=training))
        with tf.device("CPU:0"):
            return tf.concat(outputs, axis=0)
