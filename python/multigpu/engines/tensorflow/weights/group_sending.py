"""Send weights and state to devices: those of a part to the devices on which it runs, once to each."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from multigpu.engines.tensorflow.cluster.reduction import Reduction
from multigpu.engines.tensorflow.weights.buckets import Bucket, Types, buckets_of, unpack
from multigpu.engines.tensorflow.weights.gradient_structure import GradientStructure
from multigpu.engines.tensorflow.weights.packing import Packing
from multigpu.engines.tensorflow.weights.send_reduce import arrive, send, send_once
from multigpu.plan.plan import Plan


class Copy(NamedTuple):
    """A bucket on a device, for all slices that the device processes."""

    bucket: Bucket
    device: str


class GroupSending(NamedTuple):
    """Sends the variables of a template to the devices of a plan.

    Attributes:
        weights: the variables to which gradients flow back.
        state: the other variables.
        plan: the plan.
        homes: the part that reads each variable first, for weights and then for state.
    """

    weights: Sequence[keras.Variable]
    state: Sequence[keras.Variable]
    plan: Plan
    homes: Sequence[int]

    def send_weights(
        self, types: Sequence[Types], structure: GradientStructure, workers: Reduction
    ) -> tuple[list[Copy], list[tf.Tensor]]:
        """Return buckets on devices, with their buffers. Differentiating these reduces the gradients.

        Args:
            types: the types in which weights are sent.
            structure: as in `send`.
            workers: the workers over which gradients are reduced.
        """
        copies: list[Copy] = []
        buffers: list[tf.Tensor] = []
        for part, numbers, devices in self._parts(self.homes[: len(self.weights)]):
            of_part = [self.weights[number] for number in numbers], [types[number] for number in numbers]
            buckets = _numbered(buckets_of(*of_part), numbers)
            sent = send(self.weights, buckets, devices, structure, workers, label=f"part {part}, ")
            for device, of_device in zip(devices, sent, strict=True):
                with tf.device(device):
                    buffers += [arrive(buffer, bucket) for buffer, bucket in zip(of_device, buckets, strict=True)]
                copies += [Copy(bucket, device) for bucket in buckets]
        return copies, buffers

    def send_state(self, packing: Packing) -> list[list[tf.Tensor]]:
        """Return the values of the state for each replica, on the devices of its group.

        Args:
            packing: opens the buckets.
        """
        values: dict[tuple[int, str], tf.Tensor] = {}
        homes = self.homes[len(self.weights) :]
        for _, numbers, devices in self._parts(homes):
            variables = [self.state[number] for number in numbers]
            buckets = buckets_of(variables)
            buffers = send_once(variables, buckets)
            for device in devices:
                with tf.device(device):
                    tensors = unpack(buffers, buckets, packing.open)
                values.update(((number, device), x) for number, x in zip(numbers, tensors, strict=True))
        return [[values[number, group[home]] for number, home in enumerate(homes)] for group in self.plan.replicas]

    def _parts(self, homes: Sequence[int]) -> Iterator[tuple[int, list[int], list[str]]]:
        """Return the number of each part, its variables' numbers, and the devices on which it runs."""
        for part in range(len(self.plan.replicas[0])):
            numbers = [number for number, home in enumerate(homes) if home == part]
            yield part, numbers, list(dict.fromkeys(group[part] for group in self.plan.replicas))


def _numbered(buckets: Sequence[Bucket], numbers: Sequence[int]) -> list[Bucket]:
    """Return the buckets of some weights, with the numbers that these have among all."""
    return [bucket._replace(members=tuple(numbers[member] for member in bucket.members)) for bucket in buckets]
