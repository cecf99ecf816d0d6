"""How far `multigpu.estimate()` is from the memory that training takes: bytes per row, estimated and measured.

The peak memory of a process that takes two steps on one device is measured with few rows and with many; the difference
is what rows take, since all else is the same. Run `python bench/estimated_memory.py`.
"""

import resource
from collections.abc import Iterator

import keras

import multigpu
from process import in_own_process, markdown, run_script
from works import WORKS

ROWS = {"conv net": (64, 1024), "MLP 4×1024": (1024, 32768), "Xception": (8, 64)}


def measure(work: str, rows: int) -> dict[str, float]:
    """Estimated bytes of activations and inputs, and the peak of this process's memory in bytes."""
    model = WORKS[work].compiled(WORKS[work].build(), keras.optimizers.SGD)
    x, y = WORKS[work]._replace(batch_size=rows).arrays(1)
    estimated = multigpu.estimate(model, 1, rows)[0].activations
    for _ in range(2):
        model.train_on_batch(x, y)
    return {"estimated": estimated, "peak": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}


def rows() -> Iterator[dict]:
    for work, (few, many) in ROWS.items():
        ends = [in_own_process(__file__, work=work, rows=number) for number in (few, many)]
        own = sum(array[0].nbytes for array in WORKS[work].arrays(1))  # the arrays themselves grow too
        estimated, measured = ((ends[1][name] - ends[0][name]) / (many - few) for name in ("estimated", "peak"))
        yield {"work": work, "few": few, "many": many, "estimated": estimated, "measured": measured - own}


def table(rows: list[dict]) -> str:
    head = ["work", "rows", "estimated MB per row", "measured MB per row", "measured ÷ estimated"]
    lines = []
    for row in rows:
        megabytes = [f"{row[name] / 1e6:.3f}" for name in ("estimated", "measured")]
        ratio = f"{row['measured'] / row['estimated']:.2f}"
        lines.append([row["work"], f"{row['few']} and {row['many']}", *megabytes, ratio])
    return markdown(head, lines)


if __name__ == "__main__":
    run_script(measure, rows, table)
