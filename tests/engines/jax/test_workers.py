"""Two and three processes train as one does, on the same arrays or on rows of their own; none waits for a lost one."""

import json
import os
import signal
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


def start(file, seed, data="arrays", workers=1, cluster=None, **environ):
    told = {} if cluster is None else {"TF_CONFIG": json.dumps(cluster)}
    command = [sys.executable, str(SCRIPT), str(file), str(seed), data, str(workers)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env={**os.environ, **told, **environ}, **pipes)


def ended(processes, timeout=500):
    outputs = [process.communicate(timeout=timeout) for process in processes]
    return [(process.returncode, *output) for process, output in zip(processes, outputs, strict=True)]


def cluster(number):
    workers = addresses(number)
    return [{"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}} for index in range(number)]


def values(file):
    stored = np.load(f"{file}.npz")
    return [stored[name] for name in stored.files]


@pytest.mark.parametrize(("number", "data"), [(2, "arrays"), (3, "dataset"), (2, "generator")])
def test_workers_train_as_one_process_does(number, data, tmp_path):
    """Rows of their own are any number, and end at any time. Other seeds, and so other first weights and another order
    of rows, have all but the chief.
    """
    processes = [start(tmp_path / str(n), 1 + n, data, number, each) for n, each in enumerate(cluster(number))]
    for code, _, errors in ended([start(tmp_path / "one", 1, data, number), *processes]):
        assert code == 0, errors
    for worker in range(number):
        for actual, expected in zip(values(tmp_path / str(worker)), values(tmp_path / "one"), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
        assert (tmp_path / f"{worker}.csv").exists() == (worker == 0)
        loaded = keras.saving.load_model(tmp_path / f"{worker}.keras")
        np.testing.assert_array_equal(loaded.get_weights()[0], values(tmp_path / str(worker))[0])


def test_workers_with_other_models_are_refused_by_all(tmp_path):
    widths = ["3", "4"]
    clusters = zip(widths, cluster(2), strict=True)
    processes = [start(tmp_path / width, 1, "arrays", 2, each, WIDTH=width) for width, each in clusters]
    for code, _, errors in ended(processes):
        assert code != 0
        assert "Expected the same program on all workers" in errors
        assert "on worker 1 at 127.0.0.1:" in errors


def test_a_killed_worker_is_named_and_nobody_waits_for_ever(tmp_path):
    names, soon = ["", "kill", ""], {"MULTIGPU_ANSWER_SECONDS": "10"}
    clusters = zip(names, cluster(3), strict=True)
    processes = [
        start(tmp_path / str(n), 1, "dataset", 3, each, ENDS=how, **soon) for n, (how, each) in enumerate(clusters)
    ]
    found = ended(processes, timeout=180)
    assert found[1][0] == -signal.SIGKILL
    for code, _, errors in (found[0], found[2]):
        assert code != 0
        assert "WorkerLostError: Expected all 3 workers to train together." in errors
        assert "Received: no answer from worker 1 at 127.0.0.1:" in errors


def test_all_stop_where_a_callback_of_one_does(tmp_path):
    clusters = zip(["", "stop"], cluster(2), strict=True)
    processes = [start(tmp_path / str(n), 1, "arrays", 2, each, ENDS=how) for n, (how, each) in enumerate(clusters)]
    for code, _, errors in ended(processes):
        assert code == 0, errors
    one, other = (values(tmp_path / name) for name in "01")
    for actual, expected in zip(one, other, strict=True):
        np.testing.assert_array_equal(actual, expected)
