"""Copies what is harmless in an HDF5 file into a new one, and tries the model in it. Started as a process of its own.

The HDF5 library crashes or runs for ever on some damaged files, and a few words of a configuration can ask for any time
and memory. Here that happens in a process that nobody needs, within limits. Only values and text are copied: no links,
no types that point elsewhere.
"""

import json
import math
import os
import resource
import signal
import sys
import time
import types
from typing import Any

START_SECONDS, SECONDS_PER_OBJECT, BYTES_PER_SECOND = 1.2, 0.005, 20e6  # of processor time
SPARE_MEMORY = 256 << 20
HARMLESS_FILTERS = {1, 2, 3, 32000}  # deflate, shuffle, checksum and LZF: all that h5py brings along
MAX_DEPTH = 64
NOT_NEEDED = ("sklearn", "matplotlib", "pandas", "jax", "torch")  # Keras imports what of them is there: half its time


class Refused(Exception):  # noqa: N818 (it is an answer)
    """The file holds what no file of weights needs."""


class Copy:
    """One copy under way: what is left of the budget, and what was seen."""

    def __init__(self, h5py: Any, budget: int):
        self.h5py, self.budget = h5py, budget
        self.seen: set[int] = set()
        self.bytes = 0

    def group(self, source: Any, target: Any, depth: int = 0) -> None:
        """Copies a group with all that is in it."""
        self._enter(source)
        if depth > MAX_DEPTH:
            raise Refused(f"groups nested more than {MAX_DEPTH} deep")
        self._attributes(source, target)
        for name in source:
            link = source.get(name, getlink=True)
            if not isinstance(link, self.h5py.HardLink):
                raise Refused(f"{name!r} is a link ({type(link).__name__}) to another place or file")
            item = source[name]
            if isinstance(item, self.h5py.Group):
                self.group(item, target.create_group(name), depth + 1)
            elif isinstance(item, self.h5py.Dataset):
                self._dataset(item, target, name)
            else:
                raise Refused(f"{name!r} is a {type(item).__name__}, not an array")

    def _dataset(self, source: Any, target: Any, name: str) -> None:
        self._enter(source)
        if source.external:
            raise Refused(f"the values of {name!r} are in another file: {source.external[0][0]!r}")
        if source.is_virtual:
            raise Refused(f"{name!r} is made of other datasets (a virtual dataset)")
        if source.shape is None or source.dtype.kind not in "fiubcV" or source.dtype.names or source.dtype.subdtype:
            raise Refused(f"{name!r} is of type {source.dtype}, not an array of numbers")
        properties = source.id.get_create_plist()
        filters = {properties.get_filter(index)[0] for index in range(properties.get_nfilters())}
        if not filters <= HARMLESS_FILTERS:
            raise Refused(f"{name!r} needs the HDF5 filters {sorted(filters - HARMLESS_FILTERS)}")
        self._spend(name, math.prod(source.shape) * source.dtype.itemsize)
        self._afford(name, math.prod(source.chunks or ()) * source.dtype.itemsize)
        self._attributes(source, target.create_dataset(name, data=source[()]))

    def _attributes(self, source: Any, target: Any) -> None:
        for name in source.attrs:
            attribute = source.attrs.get_id(name)
            text = self.h5py.check_string_dtype(attribute.dtype) is not None
            if attribute.shape is None or (attribute.dtype.kind not in "fiubS" and not text):
                raise Refused(f"the attribute {name!r} is of type {attribute.dtype}, neither text nor numbers")
            self._afford(name, math.prod(attribute.shape) * attribute.dtype.itemsize)
            value = source.attrs[name]
            if text and attribute.shape:
                value = [each if isinstance(each, bytes) else each.encode() for each in value.ravel().tolist()]
            self._spend(name, sum(map(len, value)) if isinstance(value, list) else sys.getsizeof(value))
            target.attrs[name] = value

    def _enter(self, item: Any) -> None:
        """Counts each object once."""
        address = self.h5py.h5o.get_info(item.id).addr
        if address in self.seen:
            raise Refused(f"{item.name!r} is there twice, under two names")
        self.seen.add(address)
        self._grant_time()

    def _spend(self, name: str, number: int) -> None:
        self.bytes += number
        self._afford(name, self.bytes)
        self._grant_time()

    def _grant_time(self) -> None:
        """Time for all objects and bytes so far, those that are about to be read included."""
        allow(START_SECONDS + len(self.seen) * SECONDS_PER_OBJECT + self.bytes / BYTES_PER_SECOND)

    def _afford(self, name: str, number: int) -> None:
        if number > self.budget:
            raise Refused(f"with {name!r} it would unfold to {number:,} bytes, more than the {self.budget:,} allowed")


def allow(seconds: float) -> None:
    """Lets this process be killed when it has used so much processor time in all."""
    signal.setitimer(signal.ITIMER_PROF, min(max(seconds - time.process_time(), 0.01), 1e9))


def limit_memory(number: float) -> None:
    """Allows so many bytes more than are in use now, where the system tells how many these are.

    A limit that this process was started under stays.
    """
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if os.path.exists("/proc/self/statm"):
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        limit = int(min(used + number, sys.maxsize))
        resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def lift_limits() -> None:
    """For what is not read from a file: starting TensorFlow."""
    signal.setitimer(signal.ITIMER_PROF, 0)
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def copy_file(source: str, target: str, budget: int) -> dict[str, Any]:
    """Copies; returns why not."""
    import h5py  # only now: it is where the caller found it

    limit_memory(budget + SPARE_MEMORY)
    allow(START_SECONDS)
    try:
        with h5py.File(source, "r") as file, h5py.File(target, "w", libver="latest") as copy:
            Copy(h5py, budget).group(file, copy)
    except Refused as reason:
        return {"refused": str(reason)}
    except Exception as error:  # whatever the library says of a damaged file
        return {"damaged": f"{type(error).__name__}: {error}"}
    return {}


def try_model(source: str, copy: str, package: str, trial: dict[str, Any]) -> dict[str, Any]:
    """Builds the model in a copy; returns why that fails."""
    lift_limits()
    os.environ.update(CUDA_VISIBLE_DEVICES="-1", KERAS_BACKEND="tensorflow")
    sys.modules.update({name: None for name in NOT_NEEDED if name not in sys.modules})  # type: ignore[misc]
    parent = types.ModuleType("multigpu")  # without its `__init__`, which imports all and joins other machines
    parent.__path__ = [package]
    sys.modules["multigpu"] = parent
    from multigpu.saving.sandboxed_build import Trial

    return Trial(**trial).run(copy, source)


def main(
    source: str, target: str, budget: int, path: list[str], package: str = "", trial: dict[str, Any] | None = None
) -> int:
    """Copies, tries, and reports on stdout, line by line, what fails. Returns 0 if nothing does."""
    sys.path[:] = path
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with os.fdopen(os.dup(1), "w") as stdout:
        os.dup2(2, 1)  # libraries print their warnings elsewhere
        answer = copy_file(source, target, budget)
        if not answer and trial is not None:
            stdout.write(json.dumps({"stage": "trial"}) + "\n")
            stdout.flush()  # it may not come to an answer
            answer = try_model(source, target, package, trial)
        stdout.write(json.dumps(answer) + "\n")
    return int(bool(answer))


if __name__ == "__main__":
    sys.exit(main(**json.loads(sys.argv[1])))
