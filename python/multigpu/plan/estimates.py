"""Estimates per device and per layer."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DeviceEstimate:
    """The bytes that one device stores, receives and sends.

    Attributes:
        device: name of the device.
        slices: how many slices of a batch it processes.
        rows: rows of a batch that it processes.
        parameters: how many numbers it owns as weights and state.
        weights: the bytes of these numbers.
        optimizer: bytes of the optimizer's variables for them.
        copies: copies of the other devices' weights, which the replica needs during a step. None on JAX, where they
            are part of the activations.
        gradients: gradients of all weights from the replica, and the summed gradients of the device's own weights.
            None on JAX, too.
        activations: the largest amount needed at the same time, for all slices that the device processes. None if it
            cannot be traced.
        inputs: rows of the next batch, which several GPUs receive ahead of time.
        per_slice: the part of these bytes that grows with each slice that the device processes. None on JAX.
        total: the sum of all of these, except those that are None.
        received: bytes that arrive in a step: weights, gradients, rows, and outputs of other parts.
        sent: bytes that leave in a step: weights, gradients, outputs, and inputs of other parts.
    """

    device: str
    slices: int
    rows: int
    parameters: int
    weights: int
    optimizer: int
    copies: int | None = None
    gradients: int | None = None
    activations: int | None
    inputs: int
    per_slice: int | None = None
    total: int
    received: int
    sent: int


@dataclass(frozen=True)
class LayerEstimate:
    """One call of a layer: what it stores and computes, and what would be transferred if the model were cut after it.

    Ops outside of layers count as part of the layer before them. Sizes are in bytes.

    Attributes:
        name: the layer's name. In a nested model it follows the name of that model and a slash.
        weights: its weights and state, counted in the first call: 0 in a second call.
        weights_share: the weights up to here, as a share of all.
        work: floating-point operations of one row, forward, as TensorFlow's profiler counts them: two for a
            multiplication and an addition. None if the profiler does not count them, as in your own branches and loops.
        work_share: the work up to here, as a share of all; None if a layer's work is None.
        output: the layer's output for one row.
        crossing: the outputs, for one row, of this layer and those before it that later layers need. That much is
            transferred if the model is cut here, and as much comes back as gradients.
    """

    name: str
    weights: int
    weights_share: float
    work: int | None
    work_share: float | None
    output: int
    crossing: int
