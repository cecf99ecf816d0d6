"""Two and three processes train as one does, with the chief's weights, shuffling and files, and batches of any size."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

SCRIPT = Path(__file__).parent / "trained_by_workers.py"


def addresses(number):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    found = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return found


def start(file, seed, cluster=None, **environ):
    told = {} if cluster is None else {"TF_CONFIG": json.dumps(cluster)}
    command = [sys.executable, str(SCRIPT), str(file), str(seed)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env={**os.environ, **told, **environ}, **pipes)


def ended(processes):
    outputs = [process.communicate(timeout=500) for process in processes]
    return [(process.returncode, *output) for process, output in zip(processes, outputs, strict=True)]


def cluster(number):
    workers = addresses(number)
    return [{"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}} for index in range(number)]


def values(file):
    stored = np.load(f"{file}.npz")
    return [stored[name] for name in stored.files]


@pytest.mark.parametrize("number", [2, 3])
def test_workers_train_as_one_process_does(number, tmp_path):
    ((code, _, errors),) = ended([start(tmp_path / "one", 1)])
    assert code == 0, errors
    # other seeds, and so other first weights and another order of rows, but for the chief
    processes = [start(tmp_path / str(n), 1 + n, each) for n, each in enumerate(cluster(number))]
    for code, _, errors in ended(processes):
        assert code == 0, errors
    for worker in range(number):
        assert "Expected `x` to be arrays, the same on all workers" in (tmp_path / f"{worker}.txt").read_text()
        for actual, expected in zip(values(tmp_path / str(worker)), values(tmp_path / "one"), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
        assert (tmp_path / f"{worker}.csv").exists() == (worker == 0)
        loaded = keras.saving.load_model(tmp_path / f"{worker}.keras")
        np.testing.assert_array_equal(loaded.get_weights()[0], values(tmp_path / str(worker))[0])


def test_workers_with_other_models_are_refused_by_all(tmp_path):
    widths = ["3", "4"]
    processes = [start(tmp_path / width, 1, each, WIDTH=width) for width, each in zip(widths, cluster(2), strict=True)]
    for code, _, errors in ended(processes):
        assert code != 0
        assert "Expected the same program on all workers" in errors
        assert "on worker 1 at 127.0.0.1:" in errors
