"""The most memory that each device had in use, beside `estimate()`. TensorFlow counts it on GPUs only.

In the first step, libraries also need memory to try their kernels. So it is counted apart from the steps after it.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import argparse

import keras
import settings
import tensorflow as tf

import multigpu
from bench.lib.markdown_table import markdown_table
from bench.lib.subprocess_metrics import in_own_process, run_script
from bench.traffic.null_gpus import batches_of

NAMES = ("MLP 4×1024", "conv net", "Xception")
STEPS = 3


def measure(name: str, rows: int, replicas: int, memory: int) -> dict[str, list]:
    """For each device: bytes estimated, and at most in use, where that is counted."""
    multigpu.simulate_gpus(replicas, memory)
    work = settings.WORKLOADS[name]._replace(batch_size=rows)
    model = multigpu.multi_gpu_model(work.build(), gpus=replicas)
    work.compiled(model, lambda: keras.optimizers.Adam(1e-3))
    devices = multigpu.available_gpus()[:replicas]
    peaks = [_peaks(model, batches_of(work, steps), devices) for steps in (1, STEPS)]
    estimated = multigpu.estimate(model, gpus=replicas, batch_size=rows)[:replicas]
    return {row.device: [row.total, *of_device] for row, *of_device in zip(estimated, *peaks, strict=True)}


def _peaks(model: keras.Model, batches: tf.data.Dataset, devices: list[str]) -> list[int | None]:
    """Of each device, the most bytes in use while the model trains."""
    counted = [device for device in devices if device.startswith("GPU")]
    for device in counted:
        tf.config.experimental.reset_memory_stats(device)
    model.fit(batches, verbose=0)
    return [tf.config.experimental.get_memory_info(x)["peak"] if x in counted else None for x in devices]


def table(name: str, rows: int, found: dict[str, list]) -> str:
    lines = [
        [name, rows, device, f"{total / 1e6:.0f}", *(_told(peak, total) for peak in peaks)]
        for device, (total, *peaks) in found.items()
    ]
    head = ["training", "rows of a batch", "device", "estimated, MB", "first step, MB", "later steps, MB"]
    return markdown_table(head, lines)


def _told(peak: int | None, estimated: int) -> str:
    return "–" if peak is None else f"{peak / 1e6:.0f} ({peak / estimated:.2f} ×)"


def main(options: argparse.Namespace) -> int:
    """Prints each training when it is done. Status 1 if one failed."""
    replicas, failed = settings.num_replicas(options), 0
    memory = settings.memory_limit(options, replicas)
    print(f"{__doc__}", flush=True)
    for name in NAMES:
        rows = settings.scaled(name, options).batch_size
        try:
            found = in_own_process(__file__, name=name, rows=rows, replicas=replicas, memory=memory)
        except RuntimeError as error:
            failed += 1
            print(f"FAILED: {error}\n", flush=True)
        else:
            print(f"{table(name, rows, found)}\n", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    if "--worker" in sys.argv:
        run_script(measure, None, None)
    else:
        sys.exit(main(settings.parser(__doc__).parse_args()))
