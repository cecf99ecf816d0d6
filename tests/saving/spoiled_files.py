"""Files with other bytes, or another structure, and what may come of reading them."""

import json
import shutil
import time
import warnings

import h5py
import numpy as np
from keras2_files import OLD

SOURCES = ("cnn-parallel-model", "cnn-parallel-weights", "cnn-template-model")
SECONDS = 5


def spoil_bytes(content: bytes, random: np.random.Generator) -> bytes:
    """Other bytes here and there, or in the first 4 KB, where the structure is; a run of one byte; or less of it."""
    spoiled = np.frombuffer(content, "u1").copy()
    kind = random.integers(4)
    if kind == 0:
        spoiled[random.integers(len(spoiled), size=random.integers(1, 20))] = random.integers(256)
    elif kind == 1:
        spoiled[random.integers(4096, size=random.integers(1, 8))] = random.integers(256)
    elif kind == 2:
        start = random.integers(len(spoiled))
        spoiled[start : start + random.integers(1, 200)] = random.choice([0, 255])
    else:
        spoiled = spoiled[: random.integers(len(spoiled))]
    return spoiled.tobytes()


def spoil_structure(path, random: np.random.Generator) -> None:
    """One to three things deleted, renamed, replaced or given another shape, type or text."""
    with h5py.File(path, "r+") as file:
        for _ in range(random.integers(1, 4)):
            names = []
            file.visit(names.append)
            if not names:
                return
            name = names[random.integers(len(names))]
            item = file[name]
            deed = random.integers(7)
            if deed == 0:
                del file[name]
            elif deed == 1:
                file.move(name, f"{name}x")
            elif deed == 2:
                del file[name]
                file[name] = random.normal(size=random.integers(0, 5, size=random.integers(0, 4)))
            elif deed == 3:
                del file[name]
                file[name] = ["text", np.array([b"text"]), np.int8(3), h5py.SoftLink("/")][random.integers(4)]
            elif len(item.attrs):
                key = list(item.attrs)[random.integers(len(item.attrs))]
                values = ["text", 7, [b"a", b"b"], np.zeros((2, 2)), b"\xff", json.dumps({"class_name": "Dense"})]
                item.attrs[key] = values[random.integers(len(values))]
            elif isinstance(item, h5py.Dataset) and item.size and item.dtype.kind in "fi":
                values = np.asarray(item)
                del file[name]
                file[name] = values.astype([np.float64, np.int16, bool][random.integers(3)])


def spoil_config(path, random: np.random.Generator) -> None:
    """Some characters of the configuration replaced."""
    with h5py.File(path, "r+") as file:
        text = list(file.attrs["model_config"])
        for place in random.integers(len(text), size=random.integers(1, 6)):
            text[place] = random.choice(list('0123456789"{}[],:nullabc -'))
        file.attrs["model_config"] = "".join(text)


def spoil(folder, seed: int):
    """The file of a seed: bytes are spoiled in every other one, and structure in the rest."""
    random = np.random.default_rng(seed)
    path = folder / "spoiled.h5"
    source = OLD / f"{SOURCES[seed % len(SOURCES)]}.h5"
    shutil.copyfile(source, path)
    path.chmod(0o644)
    if seed % 2:
        path.write_bytes(spoil_bytes(source.read_bytes(), random))
    else:
        spoil_structure(path, random)
    return path


def refused(read, seed: int) -> bool:
    """Whether a file is refused, with a named error and in time."""
    began, answer = time.process_time(), ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            read()
        except (ValueError, OSError) as error:
            answer = str(error)
    assert not answer or answer.startswith("Expected"), (seed, answer)
    assert time.process_time() - began < SECONDS, seed  # those of the process that reads have a limit of their own
    return bool(answer)


def assert_whole_or_unchanged(model, before, is_refused, seed):
    changed = [
        not np.array_equal(now, old, equal_nan=True) for now, old in zip(model.get_weights(), before, strict=True)
    ]
    assert not any(changed) if is_refused else all(changed), seed
