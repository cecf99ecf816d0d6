"""List the GPUs, and simulate them if there are none."""

from multigpu.base.arguments import check_whole_number
from multigpu.engines import simulate, visible_devices
from multigpu.plan.device_names import MOST_DEVICES

MOST_MEGABYTES = 1 << 40  # the bytes must fit into 64 bits


def available_gpus() -> list[str]:
    """Return the names of the devices that `multi_gpu_model(gpus=...)` counts, in the order of their ids.

    These are the logical GPUs that Keras' backend sees, after `CUDA_VISIBLE_DEVICES`. On a machine without a GPU they
    are the logical CPU devices that `simulate_gpus()` has made; without that call the list is empty. TensorFlow does
    not start for this, so you can still call `simulate_gpus()`. JAX does. `python -m multigpu devices` reports details.

    Returns:
        A list of names, empty if there is no GPU. Element `i` is the device with the id `i` in `gpus=[...]`. On two
        GPUs, it is `["GPU:0", "GPU:1"]`.

    Example:
        >>> import multigpu
        >>> multigpu.simulate_gpus(2)
        >>> multigpu.available_gpus()
        ['CPU:0', 'CPU:1']
    """
    return visible_devices()["gpus"]


def simulate_gpus(n: int, memory_limit: int = 2048) -> None:
    """Split this machine's one GPU, or its CPU if there is no GPU, into `n` logical devices, which `gpus=n` then uses.

    On a machine without a GPU, the devices also have the names of GPUs: `"GPU:0"` is the first one. The same code runs
    as on GPUs, but not at their speed. Call it once, before anything else uses TensorFlow or JAX. On a machine with
    `n` GPUs or more it does nothing. JAX cannot split a GPU: it splits the CPU.

    Args:
        n: number of devices, from 1 to 1,024.
        memory_limit: memory of each device in MB, if a GPU is split. The memory of CPU devices is not limited.

    Raises:
        ValueError: `n` or `memory_limit` is not a whole number of 1 or more, or this machine has several GPUs, but
            fewer than `n`.
        RuntimeError: TensorFlow or JAX has started, so its devices are fixed.

    Example:
        >>> import multigpu
        >>> multigpu.simulate_gpus(4)
    """
    check_whole_number("n", n, MOST_DEVICES, "simulate_gpus(2)")
    check_whole_number("memory_limit", memory_limit, MOST_MEGABYTES, "memory_limit=2048", ", in MB")
    simulate(n, memory_limit)
