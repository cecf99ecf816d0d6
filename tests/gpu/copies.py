"""What GPUs copied, read from a profile of TensorFlow: CUPTI, a library of CUDA, tells it of every copy."""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2  # how a profile is written

TINY = 1024  # bytes, up to which a copy is called tiny, as on null GPUs
WAYS = {"MemcpyD2H": "D2H", "MemcpyH2D": "H2D", "MemcpyD2D": "D2D", "MemcpyP2P": "D2D"}
NO_CUPTI = (
    "The profile has no copy of a GPU: it was a CPU, or TensorFlow did not find CUPTI (libcupti.so.12, which "
    "`pip install '.[cuda]'` brings), or may not use it. So copies are those of the graphs alone."
)


class Copies(NamedTuple):
    """By size and way: how many copies there were, and their bytes. And what kernels took."""

    times: Counter
    bytes: Counter
    kernels: Counter  # "number" and "ms", added up over streams


def profiled(work: Callable[[], object], folder: Path) -> Copies:
    """Runs `work` and keeps its profile in the folder. Python's own calls are left out: they are too many."""
    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=1, python_tracer_level=0)
    tf.profiler.experimental.start(str(folder), options)
    try:
        work()
    finally:
        tf.profiler.experimental.stop()
    return copies_in(folder)


def copies_in(folder: Path) -> Copies:
    """What the profiles in a folder have of GPUs."""
    found = Copies(Counter(), Counter(), Counter())
    for path in folder.rglob("*.xplane.pb"):
        space = xplane_pb2.XSpace()
        space.ParseFromString(path.read_bytes())
        for plane in space.planes:
            if "/device:GPU" in plane.name:
                _add(plane, found)
    return found


def _add(plane: xplane_pb2.XPlane, found: Copies) -> None:
    """Adds the events of a GPU's streams; other lines of the plane tell the same again, by step or by op."""
    for event in (event for line in plane.lines if line.name.startswith("Stream") for event in line.events):
        name = plane.event_metadata[event.metadata_id].name
        if name in WAYS:
            num_bytes = _size(plane, event)
            key = ("tiny" if num_bytes <= TINY else "large", WAYS[name])
            found.times[key] += 1
            found.bytes[key] += num_bytes
        elif not name.startswith(("Mem", "mem")):
            found.kernels["number"] += 1
            found.kernels["ms"] += event.duration_ps / 1e9


def _size(plane: xplane_pb2.XPlane, event: xplane_pb2.XEvent) -> int:
    """Bytes of a copy, which the profile tells in words: `kind_src:… size:4096 dest:0 async:1`."""
    for stat in event.stats:
        if plane.stat_metadata[stat.metadata_id].name == "memcpy_details":
            told = stat.str_value or plane.stat_metadata[stat.ref_value].name
            if match := re.search(r"\bsize:(\d+)", told):
                return int(match[1])
    raise ValueError("Expected the size of each copy in the profile, as `size:4096`. Received a copy without one.")
