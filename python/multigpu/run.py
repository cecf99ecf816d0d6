"""run: a replica forward and, when gradients are asked for, backward on the same device.

A gradient tape differentiates outside of any device scope, so that the backward ops of all replicas would land on one
device. Hence each replica is one op to the outer tape, and its gradient asks a tape of its own, on its own device.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import tensorflow as tf

from multigpu.send_reduce import Parcel, pack, unpack


class Taped(NamedTuple):
    """A forward pass that can be differentiated once."""

    tape: tf.GradientTape
    sources: list[tf.Tensor]
    targets: list[tf.Tensor]
    results: list[tf.Tensor]


@dataclass
class Run:
    """One replica on its device.

    Attributes:
        function: the replica, a function of the weights and of `inputs`.
        num_differentiable: how many of its results, from the first, can carry a gradient.
        parcels: how the weights are packed.
        device: name of the device.
        connected: receives the numbers of the weights that the results depend on.
    """

    function: Callable[..., list[tf.Tensor]]
    num_differentiable: Callable[[], int]
    parcels: Sequence[Parcel]
    device: str
    connected: set[int]

    def __call__(self, buffers: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Results for packed weights and other inputs, differentiable to any order."""
        with tf.device(self.device):
            return list(self._forward(*buffers, *inputs))

    @tf.custom_gradient
    def _forward(self, *arrived: tf.Tensor):  # noqa: ANN202  # the protocol of tf.custom_gradient
        taped = [self._tape([_untaped(x) for x in arrived])]
        results = taped[0].results

        def backward(*upstream: tf.Tensor) -> list[tf.Tensor | None]:
            wanted = [u for u, x in zip(upstream, results, strict=True) if x.dtype.is_floating]
            wanted = wanted[: len(_floating(results[: self.num_differentiable()]))]
            with tf.device(self.device):
                return self._backward(taped.pop() if taped else None, arrived, wanted)

        return results, backward

    def _backward(
        self, taped: Taped | None, arrived: Sequence[tf.Tensor], upstream: Sequence[tf.Tensor]
    ) -> list[tf.Tensor | None]:
        """Gradients for `arrived`; these are in turn differentiable, by running the replica anew."""
        present: list[int] = []

        @tf.custom_gradient
        def first_order(*arguments: tf.Tensor):  # noqa: ANN202
            gradients = self._differentiate(taped or self._tape(arrived), upstream)
            present[:] = [i for i, gradient in enumerate(gradients) if gradient is not None]

            def second_order(*upstream_of_gradients: tf.Tensor) -> list[tf.Tensor | None]:
                with tf.device(self.device), tf.GradientTape() as tape:
                    tape.watch(_floating(arguments))
                    anew = self._tape(arguments[: len(arrived)])
                    again = self._differentiate(anew, arguments[len(arrived) :])
                    return tape.gradient([again[i] for i in present], arguments, list(upstream_of_gradients))

            return [gradients[i] for i in present], second_order

        gradients = first_order(*arrived, *upstream)
        found = dict(zip(present, gradients, strict=True))
        return [found.get(i) for i in range(len(arrived))]

    def _tape(self, arrived: Sequence[tf.Tensor]) -> Taped:
        weights = unpack(arrived[: len(self.parcels)], self.parcels)
        sources = [*weights, *arrived[len(self.parcels) :]]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(_floating(sources))
            results = list(self.function(*sources))
        return Taped(tape, sources, _floating(results[: self.num_differentiable()]), results)

    def _differentiate(self, taped: Taped, upstream: Sequence[tf.Tensor]) -> list[tf.Tensor | None]:
        """Gradients of packed weights and of inputs; None for an input on which nothing depends."""
        gradients = taped.tape.gradient(taped.targets, taped.sources, output_gradients=list(upstream))
        num_weights = sum(len(parcel.members) for parcel in self.parcels)
        weights, of_weights = taped.sources[:num_weights], gradients[:num_weights]
        self.connected.update(i for i, gradient in enumerate(of_weights) if gradient is not None)
        filled = [
            tf.zeros_like(weight) if gradient is None else tf.convert_to_tensor(gradient)
            for weight, gradient in zip(weights, of_weights, strict=True)
        ]
        return [*(pack(filled, parcel) for parcel in self.parcels), *gradients[num_weights:]]


def _floating(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    return [x for x in tensors if x.dtype.is_floating or x.dtype.is_complex]


def _untaped(x: tf.Tensor) -> tf.Tensor:
    """Hides a tensor from the outer tapes, which would otherwise prepare for higher orders at a high price."""
    return tf.stop_gradient(x) if x.dtype.is_floating or x.dtype.is_complex else x
