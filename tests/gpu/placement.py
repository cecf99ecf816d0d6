"""Where the ops of five trainings ran, and what a step copied, beside what was expected: the counts of null GPUs.

Copies are counted twice: as TensorFlow cut its graphs, which says what is sent between two devices, and as CUPTI saw
them on the GPU, where the difference between two passes of `fit` is a step. Null GPUs count as CUPTI does; between GPUs
the graphs have as many. To and from the host they have more: what a GPU's op reads in the host's memory is not copied.
Between parts of one GPU, CUPTI cannot tell a copy to another part from one within a part.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import argparse
import json
import tempfile
from collections import Counter
from typing import TYPE_CHECKING

import keras
import settings
import tensorflow as tf
from copies import NO_CUPTI, Copies, profiled

import multigpu
from bench.lib.markdown_table import markdown_table
from bench.lib.subprocess_metrics import in_own_process, run_script
from bench.traffic.null_gpus import CASES, LONG, RESULTS, SHORT, batches_of

if TYPE_CHECKING:
    from executed_graphs import Executed

NAMES = [
    "MLP 4×1024, N = 4",
    "conv net, N = 4",
    "conv net, mixed_float16, N = 4",
    "MLP 4×1024, N = 8",
    "Xception, N = 8",
]
REPLICA_OPS = ("Conv2D", "MatMul")  # forward, and with their gradients' names backward
WAYS = {"D2D": "between GPUs", "D2H": "from GPUs to the host", "H2D": "from the host to GPUs"}


def measure(name: str, memory: int) -> dict:
    """Ops by device, and copies of a step; on CPU devices only those of the graphs."""
    from executed_graphs import executed  # of the tests: `subprocess_metrics` puts them on the path

    case = CASES[name]
    multigpu.simulate_gpus(case.gpus, memory)
    keras.config.set_dtype_policy(case.policy)
    model = multigpu.multi_gpu_model(case.work.build(), gpus=case.gpus)
    case.work.compiled(model, lambda: keras.optimizers.Adam(1e-3))
    batches = {number: batches_of(case.work, number) for number in (SHORT, LONG)}
    run = executed(lambda: model.fit(batches[SHORT], verbose=0, shuffle=False))
    devices = multigpu.available_gpus()[: case.gpus]
    return {
        "devices": {device: _of_device(run, device) for device in devices},
        "elsewhere": _elsewhere(run, devices),
        "sends": {way: _sends(run, devices)[way] for way in WAYS},
        "copies": _per_step(model, batches) if tf.config.list_physical_devices("GPU") else {},
    }


def _sends(run: "Executed", devices: list[str]) -> Counter:
    """Tensors that one device sends to another in the graphs of a step, by way."""
    found: Counter = Counter()
    for (start, end), times in run.transfers.items():
        found["2".join("D" if device in devices else "H" for device in (start, end))] += times * (start != end)
    return found


def _of_device(run: "Executed", device: str) -> dict[str, int]:
    return {
        "replica ops": run.devices_of(*REPLICA_OPS)[device],
        "updates": run.devices_of("Assign", "ResourceApply")[device],
        "sent": sum(times for (start, _), times in run.transfers.items() if start == device),
        "received": sum(times for (_, end), times in run.transfers.items() if end == device),
    }


def _elsewhere(run: "Executed", devices: list[str]) -> int:
    """Ops of replicas that ran on none of the devices."""
    ops = run.devices_of(*REPLICA_OPS)
    return sum(ops.values()) - sum(ops[device] for device in devices)


def _per_step(model: keras.Model, batches: dict[int, tf.data.Dataset]) -> dict[str, float]:
    """What CUPTI saw, or nothing without it."""

    def seen(steps: int) -> Copies:
        with tempfile.TemporaryDirectory() as folder:
            return profiled(lambda: model.fit(batches[steps], verbose=0, shuffle=False), Path(folder))

    seen(SHORT)  # which starts CUPTI
    long, short = seen(LONG), seen(SHORT)
    return {" ".join(key): (times - short.times[key]) / (LONG - SHORT) for key, times in long.times.items()}


def tables(name: str, found: dict) -> str:
    """Devices with what they ran, and copies beside those expected."""
    head = ["device", "convolutions and products of matrices", "assignments", "tensors sent", "received"]
    devices = [[device, *counts.values()] for device, counts in found["devices"].items()]
    expected = json.loads((RESULTS / "null_gpus.json").read_text())[name]
    rows = [
        [copies, _sizes(expected, way), f"{found['sends'][way]:g}", _sizes(found["copies"], way)]
        for way, copies in WAYS.items()
    ]
    of_null, of_cupti = (f"{counted}: tiny + large" for counted in ("expected, of null GPUs", "here, by CUPTI"))
    copies = markdown_table(["copies of a step", of_null, "here, in the graphs", of_cupti], rows)
    return f"{markdown_table(head, devices)}\n\n{copies}"


def _sizes(copies: dict[str, float], way: str) -> str:
    """Tiny and large copies, where they were counted."""
    return " + ".join(f"{copies.get(f'{size} {way}', 0):g}" for size in ("tiny", "large")) if copies else "–"


def is_even(found: dict) -> bool:
    """Whether all replicas ran the same, each on its own device."""
    counts = {counts["replica ops"] for counts in found["devices"].values()}
    return len(counts) == 1 and 0 not in counts and found["elsewhere"] == 0


def main(options: argparse.Namespace) -> int:
    """Prints each training when it is done. Status 1 if ops of a replica ran elsewhere, or a training failed."""
    well, copies = [], {}
    for name in NAMES:
        print(f"\n### {name}\n", flush=True)
        memory = settings.memory_limit(options, CASES[name].gpus)
        try:
            found = in_own_process(__file__, name=name, memory=memory)
        except RuntimeError as error:
            print(f"FAILED: {error}")
            well.append(False)
        else:
            well.append(is_even(found))
            copies |= found["copies"]
            answer = "yes" if well[-1] else "NO"
            print(f"{tables(name, found)}\n\nEach replica ran on its own device: {answer}.", flush=True)
    print("" if copies else f"\n{NO_CUPTI}")
    return int(not all(well))


if __name__ == "__main__":
    if "--worker" in sys.argv:
        run_script(measure, None, None)
    else:
        sys.exit(main(settings.parser(__doc__).parse_args()))
