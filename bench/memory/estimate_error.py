"""How far `multigpu.estimate()` is from the memory that training takes: bytes per row, estimated and measured.

The peak memory of a process that takes two steps on one device is measured with few rows and with many; the difference
is what rows take, since all else is the same. Run `python bench/memory/estimate_error.py`.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import resource
from collections.abc import Iterator

import keras

import multigpu
from bench.lib.markdown_table import markdown_table
from bench.lib.subprocess_metrics import in_own_process, run_script
from bench.lib.workloads import WORKLOADS

ROWS = {"conv net": (64, 1024), "MLP 4×1024": (1024, 32768), "Xception": (8, 64)}


def measure(workload: str, rows: int) -> dict[str, float]:
    """Estimated bytes of activations and inputs, and the peak of this process's memory in bytes."""
    model = WORKLOADS[workload].compiled(WORKLOADS[workload].build(), keras.optimizers.SGD)
    x, y = WORKLOADS[workload]._replace(batch_size=rows).arrays(1)
    estimated = multigpu.estimate(model, 1, rows)[0].activations
    for _ in range(2):
        model.train_on_batch(x, y)
    return {"estimated": estimated, "peak": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}


def rows() -> Iterator[dict]:
    for workload, (few, many) in ROWS.items():
        ends = [in_own_process(__file__, workload=workload, rows=number) for number in (few, many)]
        own = sum(array[0].nbytes for array in WORKLOADS[workload].arrays(1))  # the arrays themselves grow too
        estimated, measured = ((ends[1][name] - ends[0][name]) / (many - few) for name in ("estimated", "peak"))
        yield {"workload": workload, "few": few, "many": many, "estimated": estimated, "measured": measured - own}


def table(rows: list[dict]) -> str:
    head = ["workload", "rows", "estimated MB per row", "measured MB per row", "measured ÷ estimated"]
    lines = []
    for row in rows:
        megabytes = [f"{row[name] / 1e6:.3f}" for name in ("estimated", "measured")]
        ratio = f"{row['measured'] / row['estimated']:.2f}"
        lines.append([row["workload"], f"{row['few']} and {row['many']}", *megabytes, ratio])
    return markdown_table(head, lines)


if __name__ == "__main__":
    run_script(measure, rows, table)
