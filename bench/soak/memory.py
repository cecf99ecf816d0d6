"""Memory, descriptors and threads over many steps, predictions of all sizes, and models made, fitted and deleted."""

import ctypes
import gc
import os
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
from equality import dense_data, dense_net

from multigpu import multi_gpu_model

POINTS = 10  # at which memory is read
WAYS = {"one device": lambda model: model, "3 devices": lambda model: multi_gpu_model(model, gpus=3)}


def steps(spread: Callable, number: int) -> Iterator[int]:
    """So many steps of one `fit` after another."""
    model, (x, y) = spread(dense_net()), dense_data(400)
    for done in range(0, number, 100):
        model.fit(x, y, batch_size=4, verbose=0)
        yield done + 100


def predictions(spread: Callable, number: int) -> Iterator[int]:
    """Predictions of 1 to 300 rows, each of another number."""
    model, random = spread(dense_net()), np.random.default_rng(0)
    for done, rows in enumerate(random.permutation(number) + 1):
        model.predict(dense_data(int(rows))[0], verbose=0)
        yield done + 1


def cycles(spread: Callable, number: int) -> Iterator[int]:
    """Models made, fitted and deleted."""
    for done in range(number):
        model = spread(dense_net())
        model.fit(*dense_data(), batch_size=8, verbose=0)
        del model
        keras.utils.clear_session()
        yield done + 1


WORKS = {"steps": (steps, 10_000), "predictions": (predictions, 300), "make, fit, delete": (cycles, 200)}
MEASUREMENTS = [(work, way) for work in WORKS for way in WAYS]


def rows(
    seed: int, first: int, count: int, without: Collection[str] = (), share: float = 1.0
) -> Iterator[dict[str, Any]]:
    """One row for each work and way; worth a process of its own, since memory that is free is used again."""
    for number in range(first, first + count):
        work, way = MEASUREMENTS[number]
        do, times = WORKS[work]
        yield {
            "number": number,
            "answer": "measured",
            "work": work,
            "way": way,
            **curve(do(WAYS[way], int(times * share))),
        }


def curve(work: Iterator[int]) -> dict[str, Any]:
    """What the process holds at ten points of some work."""
    points: list[dict[str, int]] = []
    every, last = None, 0
    for done in work:
        every = every or done
        if done - last >= max(every, 1):
            points.append({"done": done, **held()})
            last = done
    thinned = points[:: max(1, len(points) // POINTS)]
    return {"points": thinned if thinned[-1] is points[-1] else [*thinned, points[-1]]}


def held() -> dict[str, int]:
    """Memory in KB that is in use, Python objects, descriptors, threads; what the allocator keeps is given back."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "KB": int(status["VmRSS"].split()[0]),
        "objects": len(gc.get_objects()),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": int(status["Threads"]),
        "Python threads": threading.active_count(),
    }
