"""Files with other bytes, or another structure: a model is changed as a whole, or not at all with a named error."""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
from forked_readers import read_by_forks, reading_servers
from keras2_files import cnn
from spoiled_files import (
    assert_whole_or_unchanged,
    refused,
    spoil,
    spoil_bytes,
    spoil_config,
    spoil_structure,
)

from multigpu import load_model_hdf5, load_model_weights_hdf5, multi_gpu_model, save_model_hdf5


class Mutations:
    """A folder of good files, and the ways to spoil and to read them."""

    def __init__(self, folder: Path):
        self.folder, self.model = folder, cnn()
        self.parallel = multi_gpu_model(self.model, gpus=2)
        self.before = [np.full(weight.shape, 123.0, "float32") for weight in self.model.get_weights()]
        self.parallel.save(folder / "good.keras")
        self.parallel.save_weights(folder / "good.weights.h5")
        self.compiled = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(2)])
        self.compiled.compile(optimizer="adam", loss="mse")
        self.compiled.optimizer.build(self.compiled.trainable_variables)
        save_model_hdf5(self.compiled, folder / "good.h5")

    def old_weights(self, seed: int) -> bool:
        """Files of the old function and of Keras 2, whose weights are read."""
        path = spoil(self.folder, seed)
        return self._weights(lambda: load_model_weights_hdf5(self.model, path), seed)

    def parallel_weights(self, seed: int) -> bool:
        """Weights that a parallel model has saved."""
        random, path = np.random.default_rng(seed), self.folder / "spoiled.weights.h5"
        shutil.copyfile(self.folder / "good.weights.h5", path)
        self._spoil_either(path, random)
        return self._weights(lambda: self.parallel.load_weights(path), seed)

    def keras_files(self, seed: int) -> bool:
        """A `.keras` file with other bytes, whose weights are read."""
        random, path = np.random.default_rng(seed), self.folder / "spoiled.keras"
        path.write_bytes(spoil_bytes((self.folder / "good.keras").read_bytes(), random))
        return self._weights(lambda: self.parallel.load_weights(path), seed)

    def whole_models(self, seed: int) -> bool:
        """Models in HDF5: their configuration, or their structure."""
        random, path = np.random.default_rng(seed), self.folder / "spoiled.h5"
        shutil.copyfile(self.folder / "good.h5", path)
        with contextlib.suppress(KeyError):
            [spoil_config, spoil_structure][random.integers(2)](path, random)
        return refused(lambda: load_model_hdf5(path), seed)

    def _spoil_either(self, path: Path, random: np.random.Generator) -> None:
        if random.integers(2):
            path.write_bytes(spoil_bytes(path.read_bytes(), random))
        else:
            spoil_structure(path, random)

    def _weights(self, read: Callable[[], Any], seed: int) -> bool:
        self.model.set_weights(self.before)
        answer = refused(read, seed)
        assert_whole_or_unchanged(self.model, self.before, answer, seed)
        return answer


KINDS = {
    "weights of Keras 2": Mutations.old_weights,
    "weights of a parallel model": Mutations.parallel_weights,
    "keras files": Mutations.keras_files,
    "whole models": Mutations.whole_models,
}


def rows(
    seed: int, first: int, count: int, without: Collection[str] = (), share: float = 1.0
) -> Iterator[dict[str, Any]]:
    """One row per file."""
    names = [name for name in KINDS if name not in without]
    with tempfile.TemporaryDirectory() as folder, reading_servers() as servers, read_by_forks(servers):
        mutations = Mutations(Path(folder))
        for number in range(first, first + count):
            name, why = names[number % len(names)], ""
            try:
                answer = "refused" if KINDS[name](mutations, seed * 1_000_000 + number) else "read"
            except Exception as error:  # any other error is a defect, and the next file comes
                answer, why = "off", f"{type(error).__name__}: {error}"[:400]
            yield {"number": number, "answer": answer, "kind": name, "why": why}
