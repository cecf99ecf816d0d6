"""The most memory that each device had in use in three steps, beside `estimate()`. TensorFlow counts it on GPUs only.

What libraries need to work in, such as cuDNN's workspaces, is in the first and not in the second.
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
    model.fit(batches_of(work, STEPS), verbose=0)
    peaks = [_peak(device) for device in multigpu.available_gpus()[:replicas]]
    estimated = multigpu.estimate(model, gpus=replicas, batch_size=rows)[:replicas]
    return {row.device: [row.total, peak] for row, peak in zip(estimated, peaks, strict=True)}


def _peak(device: str) -> int | None:
    return tf.config.experimental.get_memory_info(device)["peak"] if device.startswith("GPU") else None


def table(name: str, rows: int, found: dict[str, list]) -> str:
    lines = [[name, rows, device, f"{total / 1e6:.0f}", *_told(peak, total)] for device, (total, peak) in found.items()]
    head = ["training", "rows of a batch", "device", "estimated, MB", "at most in use, MB", "÷ estimated"]
    return markdown_table(head, lines)


def _told(peak: int | None, estimated: int) -> tuple[str, str]:
    return ("–", "–") if peak is None else (f"{peak / 1e6:.0f}", f"{peak / estimated:.2f}")


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
