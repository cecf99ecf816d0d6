"""Estimates for each device, and for each layer."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DeviceEstimate:
    """Bytes that one device stores, receives and sends.

    Attributes:
        device: name of the device.
        slices: how many slices of a batch go through it.
        rows: rows of a batch that run there.
        parameters: how many numbers of weights and state it owns.
        weights: bytes of them.
        optimizer: what the optimizer keeps beside them.
        copies: copies of the other devices' weights, which the replica needs while a step lasts.
        gradients: of all weights, as the replica gives them, and the sum of those of its own.
        activations: what is needed at most at once beside that, of all slices that go through the device; None where
            it cannot be traced.
        inputs: rows of the next batch, which several GPUs get ahead of time.
        per_slice: of these, what grows with each slice of the batch that goes through the device.
        total: all of that together, without what is None.
        received: bytes that arrive in a step: weights, gradients, rows, and what other parts give.
        sent: bytes that leave in a step: weights, gradients, outputs, and what other parts take.
    """

    device: str
    slices: int
    rows: int
    parameters: int
    weights: int
    optimizer: int
    copies: int
    gradients: int
    activations: int | None
    inputs: int
    per_slice: int | None
    total: int
    received: int
    sent: int


@dataclass(frozen=True)
class LayerEstimate:
    """One call of a layer: what it stores and computes, and what would travel if the model were cut behind it.

    What is computed outside of layers counts with the layer before it. Sizes are in bytes.

    Attributes:
        name: of the layer; of one in a nested model, after the name of that model and a slash.
        weights: its weights and state, where they are used first: 0 in a second call.
        weights_share: the weights up to here, as a share of all.
        work: floating-point operations of one row, forward, as TensorFlow's profiler counts them: two for a
            multiplication and an addition. None where nobody counts them, as in a branch or in a loop of one's own.
        work_share: the work up to here, as a share of all; None where a layer's work is None.
        output: what the layer gives for one row.
        crossing: what this layer and those before it have made of one row, and those behind it need. That much travels
            if the model is cut here, and as much comes back as gradients.
    """

    name: str
    weights: int
    weights_share: float
    work: int | None
    work_share: float | None
    output: int
    crossing: int
