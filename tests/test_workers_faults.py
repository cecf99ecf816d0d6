"""A worker that is gone ends in an error on the others, which names it; training resumes on any number of workers."""

import shutil
import signal

import numpy as np
import pytest
from cluster_runs import resumable
from equality import FLOAT32
from workers import Started

SOON = {"MULTIGPU_ANSWER_SECONDS": "6"}


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The backup of a training in whose third epoch one of two workers was killed, and what the other one said."""
    backup = str(tmp_path_factory.mktemp("backup"))
    with Started("cluster_runs", "resumable", backup, [1, 2, signal.SIGKILL], **SOON) as started:
        assert started.exit_codes(120) == [1, -signal.SIGKILL]
        return backup, started.printed(0)


def test_a_killed_worker_is_named_by_the_others(killed):
    _, printed = killed
    assert "WorkerLostError: Expected all 2 workers to train together." in printed
    assert "Received: no answer from worker 1 at 127.0.0.1:" in printed
    assert "training goes on where it stopped, also on another number of workers." in printed


@pytest.mark.parametrize("gpus", [None, 2])
def test_training_resumes_on_another_number_of_workers_and_ends_where_it_would_have(killed, tmp_path, gpus):
    backup = shutil.copytree(killed[0], tmp_path / "backup")
    assert_same_weights(resumable(str(backup), gpus=gpus), resumable(None, gpus=None))


def test_a_silent_worker_is_named_after_training_was_resumed(killed, tmp_path):
    backup = shutil.copytree(killed[0], tmp_path / "backup")
    with Started("cluster_runs", "resumable", str(backup), [0, 4, signal.SIGSTOP], **SOON) as started:
        assert started.exit_code(1) == 1
        assert "Received: no answer from worker 0 at 127.0.0.1:" in started.printed(1)
    assert_same_weights(resumable(str(backup), gpus=2), resumable(None, gpus=None))


def assert_same_weights(weights, others):
    for weight, other in zip(weights, others, strict=True):
        np.testing.assert_allclose(weight, other, **FLOAT32)
