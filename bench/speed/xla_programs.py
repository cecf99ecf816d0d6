"""How many programs XLA compiles in `fit`, and what they cost in time: even batches, and a last batch that is smaller.

XLA writes each program into a folder, where they are counted; times are taken without that. Each case has processes of
its own. Run `python bench/speed/xla_programs.py`. With `--count` it counts those of 4 GPUs alone, null ones too
(`make null-gpu-check`); with `--quick` as well, for batches of two sizes alone. Status 1 if there are more than one for
each device, size of slice and pass.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import os
import tempfile
import time
from collections.abc import Iterator

import keras

import multigpu
from bench.lib.markdown_table import markdown_table
from bench.lib.subprocess_metrics import in_own_process, run_script
from bench.lib.workloads import WORKLOADS

CASES = [  # replicas, rows, rows of a batch
    *((n, rows, 32) for n in (1, 4, 8) for rows in (96, 100)),
    (8, 150, 50),
]
WORKLOAD = WORKLOADS["conv net"]
PARAMETERS = ("num_replicas", "num_rows", "batch_size")
HEAD = ("N", "rows", "rows of a batch", "rows of a slice", "XLA programs")
HOW = ("XLA", "without")
NOTE = """

A program is for one device, one size of slice, and one pass, forward or backward. So a device has two for each size
that it meets, however many epochs there are. A plain model on one device has one for each size of a batch. A program is
compiled at the first step that needs it. These figures are of XLA for CPUs. We have not
measured how long XLA compiles for a GPU. `make null-gpu-check` counts the programs for GPUs: the number is the same.
"""


class FirstStep(keras.callbacks.Callback):
    """When the first step ended."""

    ended = 0.0

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Keras calls this after each step."""
        self.ended = self.ended or time.perf_counter()


def measure(num_replicas: int, num_rows: int, batch_size: int, jit_compile: bool) -> dict[str, float]:
    """Seconds to the first step, of the first epoch and of the second one."""
    multigpu.simulate_gpus(num_replicas)
    model = WORKLOAD.build()
    model = multigpu.multi_gpu_model(model, gpus=num_replicas) if num_replicas > 1 else model
    WORKLOAD.compiled(model, jit_compile=jit_compile)
    x, y = (rows[:num_rows] for rows in WORKLOAD.arrays(-(-num_rows // WORKLOAD.batch_size)))
    first, begins = FirstStep(), []
    for _ in range(2):
        begins.append(time.perf_counter())
        model.fit(x, y, batch_size=batch_size, callbacks=[first], verbose=0)
    end = time.perf_counter()
    return {"step": first.ended - begins[0], "epoch": begins[1] - begins[0], "later": end - begins[1]}


def programs(**case: int) -> int:
    """Those that XLA writes into a folder, before it optimizes them."""
    flags = os.environ.get("XLA_FLAGS", "")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_dump_to={folder} --xla_dump_hlo_as_text"
        try:
            in_own_process(__file__, **case, jit_compile=True)
        finally:
            os.environ["XLA_FLAGS"] = flags
        return len(list(Path(folder).glob("*before_optimizations.txt")))


def rows() -> Iterator[dict]:
    for num_replicas, num_rows, batch_size in CASES:
        case = dict(zip(PARAMETERS, (num_replicas, num_rows, batch_size), strict=True))
        seconds = {name: in_own_process(__file__, **case, jit_compile=name == "XLA") for name in HOW}
        yield {"N": num_replicas, "rows": num_rows, "batch": batch_size, "programs": programs(**case), "s": seconds}


def most_programs(num_replicas: int, num_rows: int, batch_size: int) -> int:
    """Two for each size of slice that a device meets; one that has no row works on a copy of one."""
    batches = {batch_size, num_rows % batch_size} - {0}
    met = [{max(1, _share(size, num_replicas, number)) for size in batches} for number in range(num_replicas)]
    return 2 * sum(map(len, met))


def _share(size: int, num_replicas: int, number: int) -> int:
    """Rows of a batch that one of the replicas gets."""
    return size // num_replicas + (number < size % num_replicas)


def sizes(num_rows: int, batch_size: int, num_replicas: int) -> str:
    """Rows of a slice, of full batches and of a last one."""
    batches = [size for size in (batch_size, num_rows % batch_size) if size]
    return "; ".join(
        " and ".join(dict.fromkeys(str(max(1, _share(size, num_replicas, n))) for n in range(num_replicas)))
        for size in batches
    )


def count() -> int:
    """Prints the programs for GPUs. Status 1 if there are more than have to be."""
    cases = [case for case in CASES if case[0] == 4][-1 if "--quick" in sys.argv else 0 :]
    found = {case: programs(**dict(zip(PARAMETERS, case, strict=True))) for case in cases}
    lines = [[*case, sizes(case[1], case[2], case[0]), f"{n} (≤ {most_programs(*case)})"] for case, n in found.items()]
    print(markdown_table(HEAD, lines))
    return int(any(number > most_programs(*case) for case, number in found.items()))


def table(rows: list[dict]) -> str:
    head = [
        *HEAD,
        *(f"s {what}, {how}" for what in ("to the first step", "of the first epoch", "of the second") for how in HOW),
    ]
    lines = []
    for row in rows:
        seconds = [f"{row['s'][how][name]:.2f}" for name in ("step", "epoch", "later") for how in HOW]
        slices = sizes(row["rows"], row["batch"], row["N"])
        lines.append([row["N"], row["rows"], row["batch"], slices, row["programs"], *seconds])
    return markdown_table(head, lines) + NOTE


if __name__ == "__main__":
    if "--count" in sys.argv:
        sys.exit(count())
    run_script(measure, rows, table)
