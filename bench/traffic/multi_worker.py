"""Several workers on this machine's loopback: bytes on the wire per step, and the time of a step.

The kernel counts the bytes, in a network namespace that has nothing but a loopback: every TCP packet with its headers.
Any all-reduce sends at least 2·(M−1)/M times the weights per worker. Wall milliseconds per step are those of the chief.
They are compared with one process that trains on two devices with the same global batch, and with as many processes
that do not communicate, each with a worker's rows: several processes on one machine take time without communication,
too. All take turns; the table has medians and ranges. The formula of `docs/multi-worker-performance.md` gets the time
without communication, and what the loopback reached when it did nothing else. Run
`python bench/traffic/multi_worker.py`; it takes a quarter of an hour.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import ctypes
import fcntl
import json
import math
import os
import socket
import statistics
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence

import keras
import tensorflow as tf

import multigpu
from bench.lib.markdown_table import markdown_table
from bench.lib.subprocess_metrics import in_own_process
from bench.lib.workloads import WORKLOADS
from multigpu.cli.launch import local_configs
from multigpu.cluster.config import Cluster
from multigpu.engines.tensorflow.cluster.collective import group_sum
from multigpu.engines.tensorflow.cluster.join import joined

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
TURNS = 3
EPOCHS = 6  # measured in a turn
LARGE = 1 << 22  # values of a sum that shows what the loopback reaches
LINKS = (1, 10, 100)  # Gbit/s
FORMULA = "../../docs/multi-worker-performance.md"  # from RESULTS.md
PLACES = ((1, 2), (2, 1), (2, 2), (4, 1))  # workers, devices of each


def measure(workload: str, workers: int, devices: int, communicate: bool = True) -> dict[str, float]:
    """What the chief measures, or the first of several processes that do not communicate."""
    enter_own_network()
    command = [sys.executable, __file__, "--train", json.dumps([workload, devices, 1 if communicate else workers])]
    configs = local_configs(workers) if communicate and workers > 1 else [""] * workers
    running = [
        subprocess.Popen(command, env={**os.environ, "TF_CONFIG": config}, stdout=subprocess.PIPE, text=True)
        for config in configs
    ]
    printed = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise RuntimeError(f"{workload}, {workers} workers: ended with {[process.returncode for process in running]}")
    return json.loads(printed[0].splitlines()[-1])


def enter_own_network() -> None:
    """Gives this process, and those that it starts, a network with a loopback alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) and libc.unshare(CLONE_NEWUSER | CLONE_NEWNET):
        raise RuntimeError(f"no network of its own: {os.strerror(ctypes.get_errno())}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        up = struct.pack("16sh", b"lo", 0x1 | 0x40)  # IFF_UP, IFF_RUNNING
        fcntl.ioctl(control, 0x8914, up.ljust(40, b"\0"))  # SIOCSIFFLAGS


def bytes_sent() -> int:
    """All that went over the loopback since it is up."""
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[8])


def train(workload: str, devices: int, parts: int) -> dict[str, float]:
    """Trains as one of the workers, or alone on one of so many parts of each batch."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    if devices > 1:
        multigpu.simulate_gpus(devices)
    chosen = WORKLOADS[workload]
    cluster, model = joined(), chosen.build()
    if cluster is not None or devices > 1:
        model = multigpu.multi_gpu_model(model, gpus=devices)
    model = chosen.compiled(model)
    size = chosen.batch_size // parts
    batches = chosen.batches().map(lambda x, y: (x[:size], y[:size])).cache()
    times: list[float] = []
    sent: list[float] = []

    class Meter(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
            self.begin = time.perf_counter(), bytes_sent()

        def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
            if batch == chosen.steps - 1:
                times.append((time.perf_counter() - self.begin[0]) / chosen.steps * 1000)
                sent.append((bytes_sent() - self.begin[1]) / chosen.steps)

    model.fit(batches, epochs=1 + EPOCHS, verbose=0, callbacks=[Meter()])
    weights = sum(math.prod(weight.shape) * 4 for weight in model.trainable_variables)
    figures = {"ms": statistics.median(times[1:]), "sent": statistics.median(sent[1:]), "weights": weights}
    return {**figures, **(loopback(cluster) if cluster is not None else {})}


def loopback(cluster: Cluster) -> dict[str, float]:
    """What sums take that are made one after the other.

    In milliseconds for each of the 2·(M−1) messages of a ring, and in bytes per second that a worker sends meanwhile.
    """
    links, small = 2 * (cluster.size - 1), sum_ms(cluster, 1)
    sent = links / cluster.size * 4 * LARGE
    return {"message ms": small / links, "bytes per second": sent / (sum_ms(cluster, LARGE) - small) * 1000}


def sum_ms(cluster: Cluster, values: int) -> float:
    """Milliseconds of a sum of so many float32."""
    times, zeros = [], tf.zeros([values])

    @tf.function
    def summed(x: tf.Tensor) -> tf.Tensor:
        with tf.device("CPU:0"):
            return group_sum(x, cluster.size, "sums one by one", f"{values} numbers")

    for _ in range(100 if values == 1 else 10):
        begin = time.perf_counter()
        summed(zeros)
        times.append((time.perf_counter() - begin) * 1000)
    return statistics.median(times)


def expected_ms(ms: float, weights: float, message: float, workers: int, bytes_per_second: float) -> float:
    """The formula of `docs/multi-worker-performance.md`: milliseconds of a step."""
    links = 2 * (workers - 1)
    return ms + links / workers * weights / bytes_per_second * 1000 + links * message


def expectations(ms: float, weights: float, message: float) -> str:
    """Efficiency on 2 to 1,000 workers, for links of 1, 10 and 100 Gbit/s."""
    head = ["workers", *(f"{gbit} Gbit/s" for gbit in LINKS)]
    lines = []
    for workers in (2, 4, 8, 16, 64, 256, 1000):
        steps = [expected_ms(ms, weights, message, workers, gbit * 1e9 / 8) for gbit in LINKS]
        lines.append([workers, *(f"{step:.0f} ms, {ms / step:.0%}" for step in steps)])
    return markdown_table(head, lines)


def rows() -> Iterator[dict]:
    for workload in ("conv net", "MLP 4×1024"):
        places = [{"workload": workload, "workers": workers, "devices": devices} for workers, devices in PLACES]
        turns = [_turn(places) for _ in range(TURNS)]
        yield from (
            _over_turns(place, of_place) for place, of_place in zip(places, zip(*turns, strict=True), strict=True)
        )


def _turn(places: list[dict]) -> list[dict[str, float]]:
    """Each place once, and the same without communication."""
    figures = []
    for place in places:
        figures.append(in_own_process(__file__, **place))
        if place["workers"] > 1:
            figures[-1]["apart ms"] = in_own_process(__file__, **place, communicate=False)["ms"]
    return figures


def _over_turns(place: dict, turns: Sequence[dict[str, float]]) -> dict:
    return {**place, **{name: sorted(turn[name] for turn in turns) for name in turns[0]}}


def table(rows: list[dict]) -> str:
    head = [
        "workload",
        "workers M",
        "devices of each",
        "wall ms per step",
        "÷ one process",
        "without communication",
        "by the formula",
        "MB sent per worker and step",
        "÷ 2·(M−1)/M·W",
        "ms per message",
        "Gbit/s in one large sum",
    ]
    lines = [
        [row["workload"], row["workers"], row["devices"], *_cells(row, _alone(row["workload"], rows))] for row in rows
    ]
    with_several = dict.fromkeys(row["workload"] for row in rows if row["workers"] > 1)  # of those measured so far
    return "\n\n".join([markdown_table(head, lines), *(_expected_of(workload, rows) for workload in with_several)])


def _cells(row: dict, alone: dict) -> list[str]:
    median = {name: statistics.median(turns) for name, turns in row.items() if isinstance(turns, list)}
    cells = [_range(row["ms"]), f"{median['ms'] / statistics.median(alone['ms']):.2f}"]
    if row["workers"] == 1:
        return [*cells, *["–"] * 6]
    least = 2 * (row["workers"] - 1) / row["workers"] * median["weights"]
    sent = median["sent"] / row["workers"]
    known = (median[name] for name in ("apart ms", "weights", "message ms"))
    return [
        *cells,
        _range(row["apart ms"]),
        f"{expected_ms(*known, row['workers'], median['bytes per second']):.0f}",
        f"{sent / 1e6:.2f}",
        f"{sent / least:.3f}",
        f"{median['message ms']:.2f}",
        f"{median['bytes per second'] * 8 / 1e9:.1f}",
    ]


def _range(turns: list[float]) -> str:
    return f"{statistics.median(turns):.0f} ({turns[0]:.0f} to {turns[-1]:.0f})"


def _alone(workload: str, rows: list[dict]) -> dict:
    return next(row for row in rows if (row["workload"], row["workers"]) == (workload, 1))


def _expected_of(workload: str, rows: list[dict]) -> str:
    alone = {name: statistics.median(_alone(workload, rows)[name]) for name in ("ms", "weights")}
    message = min(statistics.median(row["message ms"]) for row in rows if row["workers"] > 1)
    known = f"{alone['ms']:.0f} ms alone, {alone['weights'] / 1e6:.2f} MB of weights, {message:.2f} ms per message"
    title = f"{workload}, with {known}: expected by the formula in [multi-worker-performance.md]({FORMULA})."
    return f"{title}\n\n{expectations(alone['ms'], alone['weights'], message)}"


if __name__ == "__main__":
    if "--train" in sys.argv:
        print(json.dumps(train(*json.loads(sys.argv[-1]))))
    elif "--worker" in sys.argv:
        print(json.dumps(measure(**json.loads(sys.argv[-1]))))
    else:
        print(table(list(rows())))
