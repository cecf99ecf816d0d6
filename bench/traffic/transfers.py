"""What travels between devices in a training step, read from the executed graphs.

Counted as weights and gradients is every tensor whose shape does not depend on the batch and that is more than a
scalar: packed weights and their gradients, and moving statistics. Run `python bench/traffic/transfers.py`.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import statistics
import time
from collections import Counter
from collections.abc import Iterator

import keras

import multigpu
from bench.lib.markdown_table import markdown_table
from bench.lib.strategies import make
from bench.lib.subprocess_metrics import in_own_process, run_script
from bench.lib.workloads import WORKLOADS
from multigpu.engines.tensorflow.weights import buckets

CASES = [(workload, n) for workload in ("conv net", "MLP 4×1024") for n in (2, 4, 8)] + [("Xception", 8)]
NUM_BUCKETS = (64, 32, 8)  # besides the number that is shipped
STEPS = 5
NOTE = """

A ring moves 2·(N−1)/N times the weights in and out of each device. On average, a device moves as much here. A device
moves more if it owns more than its share, such as one weight that is larger than a share: it is sent to all others. The
Keras 2 algorithm moves weights only. It computes all gradients on one device, and sends activations there instead.
"""


def measure(
    workload: str, num_replicas: int, strategy: str = "multigpu", num_buckets: int = buckets.NUM_BUCKETS
) -> dict[str, float]:
    """Bytes and numbers of transfers, per device, and what a step takes."""
    from executed_graphs import executed, sent_tensors  # of the tests: `subprocess_metrics` puts them on the path

    multigpu.simulate_gpus(num_replicas)
    buckets.NUM_BUCKETS = num_buckets
    model = make(strategy, WORKLOADS[workload], keras.optimizers.Adam)
    batches = WORKLOADS[workload].batches(1)
    begin = time.perf_counter()
    sent = sent_tensors(executed(lambda: model.fit(batches, verbose=0)))
    first = time.perf_counter() - begin
    steps = []
    for _ in range(STEPS):
        begin = time.process_time()
        model.fit(batches, verbose=0)
        steps.append(time.process_time() - begin)
    weights = sum(
        variable.value.dtype.size * variable.value.shape.num_elements() for variable in model.trainable_weights
    )
    return {**count(sent, weights, multigpu.available_gpus()), "first": first, "step": statistics.median(steps)}


def count(sent: list, weights: int, devices: list[str]) -> dict[str, float]:
    """Bytes of weights and gradients against those of a ring, transfers of them in and out, and scalars, per device."""
    packed = [transfer for transfer in sent if transfer.shape and transfer.num_bytes]
    moved, numbers = Counter(), Counter()
    for transfer in packed:
        for device in (transfer.start, transfer.end):
            moved[device] += transfer.num_bytes
            numbers[device] += 1
    ring = 2 * 2 * (len(devices) - 1) / len(devices) * weights  # each sends so much, and receives so much
    return {
        "mean": sum(moved.values()) / len(devices) / ring,
        "most": max(moved.values()) / ring,
        "transfers": sum(numbers.values()) / len(devices),
        "most transfers": max(numbers.values()),
        "scalars": 2 * sum(transfer.shape == () for transfer in sent) / len(devices),
        "of the batch": 2
        * sum(transfer.num_bytes is None and transfer.dtype != "int32" for transfer in sent)
        / len(devices),
    }


def rows() -> Iterator[dict]:
    shipped = {"bucket": "as shipped", "size": _size(buckets.NUM_BUCKETS)}
    for workload, num_replicas in CASES:
        for strategy in ("multigpu", "Keras 2 algorithm") if workload == "conv net" else ("multigpu",):
            counted = in_own_process(__file__, workload=workload, num_replicas=num_replicas, strategy=strategy)
            yield {"workload": workload, "N": num_replicas, "strategy": strategy, **shipped, **counted}
    for number in NUM_BUCKETS:
        counted = in_own_process(__file__, workload="Xception", num_replicas=8, num_buckets=number)
        bucket = {"bucket": str(number), "size": _size(number)}
        yield {"workload": "Xception", "N": 8, "strategy": "multigpu", **bucket, **counted}


def _size(number: int) -> str:
    """A bucket is never smaller than 1 MB."""
    return f"1/{number} of all weights"


def table(rows: list[dict]) -> str:
    head = ["workload", "strategy", "N", "buckets", "bytes ÷ ring, mean of devices", "the device with most"]
    head += [
        "transfers in + out",
        "the device with most",
        "scalars",
        "of the batch",
        "CPU s per step",
        "s to first step",
    ]
    lines = []
    for row in rows:
        ratios = [f"{row[name]:.3f}" for name in ("mean", "most")]
        counts = [f"{row[name]:.0f}" for name in ("transfers", "most transfers", "scalars", "of the batch")]
        seconds = [f"{row['step']:.3f}", f"{row['first']:.1f}"]
        lines.append([row["workload"], row["strategy"], row["N"], row["size"], *ratios, *counts, *seconds])
    return markdown_table(head, lines) + NOTE


if __name__ == "__main__":
    run_script(measure, rows, table)
