"""Copy the harmless contents of an HDF5 file to a new one: values and text, no links, no types that point elsewhere."""

import math
import sys
import time
from typing import Any

import h5py

from multigpu.saving.process_limits import allow, limit_memory

START_SECONDS, SECONDS_PER_OBJECT, BYTES_PER_SECOND = 1.2, 0.005, 20e6  # of processor time
SPARE_MEMORY = 256 << 20
HARMLESS_FILTERS = {1, 2, 3, 32000}  # deflate, shuffle, checksum and LZF: the filters that are part of h5py
MAX_DEPTH = 64


class Refused(Exception):  # noqa: N818 (it is an answer, not a failure)
    """The file contains something that no file of weights needs."""


class Copy:
    """A copy in progress: the rest of the budget, and the objects seen so far."""

    def __init__(self, budget: int):
        self.budget = budget
        self.started = time.process_time()
        self.seen: set[int] = set()
        self.bytes = 0

    def group(self, source: Any, target: Any, depth: int = 0) -> None:
        """Copy a group with all its contents."""
        self._enter(source)
        if depth > MAX_DEPTH:
            raise Refused(f"groups nested more than {MAX_DEPTH} deep")
        self._attributes(source, target)
        for name in source:
            link = source.get(name, getlink=True)
            if not isinstance(link, h5py.HardLink):
                raise Refused(f"{name!r} is a link ({type(link).__name__}) to another place or file")
            item = source[name]
            if isinstance(item, h5py.Group):
                self.group(item, target.create_group(name), depth + 1)
            elif isinstance(item, h5py.Dataset):
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
            text = h5py.check_string_dtype(attribute.dtype) is not None
            if attribute.shape is None or (attribute.dtype.kind not in "fiubS" and not text):
                raise Refused(f"the attribute {name!r} is of type {attribute.dtype}, neither text nor numbers")
            self._afford(name, math.prod(attribute.shape) * attribute.dtype.itemsize)
            value = source.attrs[name]
            if text and attribute.shape:
                value = [each if isinstance(each, bytes) else each.encode() for each in value.ravel().tolist()]
            self._spend(name, sum(map(len, value)) if isinstance(value, list) else sys.getsizeof(value))
            target.attrs[name] = value

    def _enter(self, item: Any) -> None:
        """Count each object once."""
        address = h5py.h5o.get_info(item.id).addr
        if address in self.seen:
            raise Refused(f"{item.name!r} is there twice, under two names")
        self.seen.add(address)
        self._grant_time()

    def _spend(self, name: str, number: int) -> None:
        self.bytes += number
        self._afford(name, self.bytes)
        self._grant_time()

    def _grant_time(self) -> None:
        """Allow time for all objects and bytes so far, including those that are about to be read."""
        allow(self.started + START_SECONDS + len(self.seen) * SECONDS_PER_OBJECT + self.bytes / BYTES_PER_SECOND)

    def _afford(self, name: str, number: int) -> None:
        if number > self.budget:
            raise Refused(f"with {name!r} it would expand to {number:,} bytes, more than the {self.budget:,} allowed")


def copy_file(source: str, target: str, budget: int) -> dict[str, Any]:
    """Copy the file, and return why that failed, if it did."""
    limit_memory(budget + SPARE_MEMORY)
    allow(time.process_time() + START_SECONDS)
    try:
        with h5py.File(source, "r") as file, h5py.File(target, "w", libver="latest") as copy:
            Copy(budget).group(file, copy)
    except Refused as reason:
        return {"refused": str(reason)}
    except Exception as error:  # any error of the library for a damaged file
        return {"damaged": f"{type(error).__name__}: {error}"}
    return {}
