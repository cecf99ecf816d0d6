"""What travels between devices in a training step, read from the executed graphs.

Counted as weights and gradients is every tensor whose shape does not depend on the batch and that is more than a
scalar: packed weights and their gradients, and moving statistics. Run `python bench/transfers.py`.
"""

import statistics
import time
from collections import Counter
from collections.abc import Iterator

import keras

import multigpu
from multigpu.weights import buckets as buckets
from process import in_own_process, markdown, run_script
from ways import make
from works import WORKS

CASES = [(work, n) for work in ("conv net", "MLP 4×1024") for n in (2, 4, 8)] + [("Xception", 8)]
NUM_PARCELS = (64, 32, 8)  # besides the number that is shipped
STEPS = 5
NOTE = """

A ring moves 2·(N−1)/N times the weights in and out of each device. So does the mean of the devices here. A device moves
more if it owns more than its share, as it must where one weight is larger than that: it is sent to all others. The old
algorithm moves weights only, since all its gradients are computed on one device, to which activations travel instead.
"""


def measure(
    work: str, num_replicas: int, way: str = "multigpu", num_buckets: int = buckets.PARCELS
) -> dict[str, float]:
    """Bytes and numbers of transfers, per device, and what a step takes."""
    from crossings import crossings  # of the tests, which `process` puts on the path
    from executed import executed

    multigpu.simulate_gpus(num_replicas)
    buckets.PARCELS = num_buckets
    model = make(way, WORKS[work], keras.optimizers.Adam)
    batches = WORKS[work].batches(1)
    begin = time.perf_counter()
    sent = crossings(executed(lambda: model.fit(batches, verbose=0)))
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
    shipped = {"bucket": "as shipped", "size": _size(buckets.PARCELS)}
    for work, num_replicas in CASES:
        for way in ("multigpu", "old algorithm") if work == "conv net" else ("multigpu",):
            counted = in_own_process(__file__, work=work, num_replicas=num_replicas, way=way)
            yield {"work": work, "N": num_replicas, "way": way, **shipped, **counted}
    for number in NUM_PARCELS:
        counted = in_own_process(__file__, work="Xception", num_replicas=8, num_buckets=number)
        yield {"work": "Xception", "N": 8, "way": "multigpu", "bucket": str(number), "size": _size(number), **counted}


def _size(number: int) -> str:
    """A bucket is never smaller than 1 MB."""
    return f"1/{number} of all weights"


def table(rows: list[dict]) -> str:
    head = ["work", "way", "N", "buckets", "bytes ÷ ring, mean of devices", "the device with most"]
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
        lines.append([row["work"], row["way"], row["N"], row["size"], *ratios, *counts, *seconds])
    return markdown(head, lines) + NOTE


if __name__ == "__main__":
    run_script(measure, rows, table)
