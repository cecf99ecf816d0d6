"""How evenly Xception's weights and Adam's slots lie on 8 devices. Run `python bench/traffic/owner_balance.py`.

No device can hold less than the largest weight with its slots, which is the least that the most loaded one can have.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

from collections.abc import Iterator

import keras

import multigpu
from bench.lib.markdown_table import markdown_table
from bench.lib.subprocess_metrics import in_own_process, run_script
from bench.lib.workloads import WORKLOADS

OPTIMIZERS = {"Adam": keras.optimizers.Adam, "SGD with momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9)}


def measure(optimizer: str, num_replicas: int = 8) -> dict[str, float]:
    """Bytes of weights and slots: mean of the devices, most loaded device, largest weight with its slots."""
    multigpu.simulate_gpus(num_replicas)
    parallel = multigpu.multi_gpu_model(WORKLOADS["Xception"].build(), gpus=num_replicas)
    WORKLOADS["Xception"].compiled(parallel, OPTIMIZERS[optimizer])
    parallel.optimizer.build(parallel.trainable_variables)
    table = parallel.overview()
    loads = [row.weights + (row.slots or 0) for row in table if row.replica is not None]
    slots_per_weight = sum(row.slots or 0 for row in table) / _num_bytes(parallel.trainable_variables)
    largest = max(_num_bytes([variable]) for variable in parallel.trainable_variables)
    return {
        "mean": sum(loads) / num_replicas,
        "most": max(loads),
        "largest": largest * (1 + slots_per_weight),
    }


def _num_bytes(variables: list[keras.Variable]) -> int:
    return sum(variable.numpy().nbytes for variable in variables)


def rows() -> Iterator[dict]:
    for optimizer in OPTIMIZERS:
        yield {"optimizer": optimizer, **in_own_process(__file__, optimizer=optimizer)}


def table(rows: list[dict]) -> str:
    head = ["optimizer", "mean, MB", "most loaded device, MB", "largest weight with its slots, MB"]
    head += ["most loaded ÷ mean", "least possible"]
    lines = []
    for row in rows:
        sizes = [f"{row[name] / 1e6:.2f}" for name in ("mean", "most", "largest")]
        least = max(1, row["largest"] / row["mean"])
        lines.append([row["optimizer"], *sizes, f"{row['most'] / row['mean']:.4f}", f"{least:.4f}"])
    return markdown_table(head, lines)


if __name__ == "__main__":
    run_script(measure, rows, table)
