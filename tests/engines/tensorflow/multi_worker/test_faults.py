"""A worker that is gone ends in an error on the others, which names it; training resumes on any number of workers."""

import re
import shutil
import signal

import numpy as np
import pytest
from cases import soak
from equality import FLOAT32
from runs import resumable
from worker_processes import Started, results

SOON = {"MULTIGPU_ANSWER_SECONDS": "6"}


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The backup of a training in whose third epoch one of two workers was killed, and what the other one said."""
    backup = str(tmp_path_factory.mktemp("backup"))
    with Started("runs", "resumable", backup, [1, 2, signal.SIGKILL], **SOON) as started:
        assert started.exit_codes(120) == [1, -signal.SIGKILL]
        return backup, started.printed(0)


def test_a_killed_worker_is_named_by_the_others(killed):
    _, printed = killed
    assert "WorkerLostError: Expected all 2 workers to train together." in printed
    assert "Received: no answer from worker 1 at 127.0.0.1:" in printed
    assert "training continues where it stopped, also on another number of workers." in printed


@pytest.mark.parametrize("gpus", [None, 2])
def test_training_resumes_on_another_number_of_workers_and_ends_where_it_would_have(killed, tmp_path, gpus):
    backup = shutil.copytree(killed[0], tmp_path / "backup")
    assert_same_weights(resumable(str(backup), gpus=gpus), resumable(None, gpus=None))


def test_a_silent_worker_is_named_after_training_was_resumed(killed, tmp_path):
    backup = shutil.copytree(killed[0], tmp_path / "backup")
    with Started("runs", "resumable", str(backup), [0, 4, signal.SIGSTOP], **SOON) as started:
        assert started.exit_code(1) == 1
        assert "Received: no answer from worker 0 at 127.0.0.1:" in started.printed(1)
    assert_same_weights(resumable(str(backup), gpus=2), resumable(None, gpus=None))


@pytest.mark.parametrize(
    ("where", "absent", "said"),
    [
        soak("in a callback", 0, "does something else"),
        ("in a callback", 2, "does something else"),
        ("for its data", 0, "waits for its data, or is in the middle of a step"),
        soak("for its data", 1, "waits for its data, or is in the middle of a step"),
    ],
)
def test_a_worker_for_which_the_others_wait_in_vain_is_named(where, absent, said):
    for printed in ends_without(where, absent, 3):
        assert re.search(rf"Received: .*worker {absent} at 127.0.0.1:\d+ {said}, for \d+ seconds now", printed)


@pytest.mark.parametrize("absent", [soak(0), 1])
def test_in_a_loop_of_ones_own_it_is_named_in_the_error_of_tensorflow(absent):
    (printed,) = ends_without("in a loop of its own", absent, 2)
    assert re.search(rf"aborted by: worker {absent} at 127.0.0.1:\d+ does something else, for \d+ seconds now", printed)


def test_a_worker_that_ends_while_it_asks_another_one_ends_as_it_should():
    with Started("runs", "ends_while_asking", anew=True, **SOON) as started:
        assert started.exit_code(0) == 0, started.printed(0)


def test_all_workers_may_do_something_else_for_longer_than_one_may():
    assert results("runs", "busy", **SOON, MULTIGPU_ARRIVE_SECONDS="8") == [4, 4]


def test_a_worker_that_never_makes_its_model_is_named():
    """Who began to wait a second later finds that the other one has given up, too."""
    given_up = r"no answer from worker [12] at \S+; "
    causes = [
        re.search(rf"Received: ({given_up})?worker 0 at \S+ has made no parallel model yet\. Restart", printed)
        for printed in ends_without("before its model", 0, 3)
    ]
    assert all(causes)
    assert None in [cause[1] for cause in causes]  # the first one has nobody else to name


@pytest.mark.parametrize("seconds", [0, 1], ids=["at the barrier", "after the barrier"])
def test_a_worker_that_fails_in_the_midst_of_a_step_and_lives_on_is_named(seconds):
    environment = {**SOON, "MULTIGPU_ARRIVE_SECONDS": "8", "MULTIGPU_CHECK": "0"}  # it fails in its third call
    with Started("runs", "fails_within_step", 1, seconds, **environment) as started:
        assert started.exit_code(0, 100) == 1
        assert re.search(r"Received: worker 1 at \S+ (does something else|may have left the step)", started.printed(0))


def ends_without(where: str, absent: int, processes: int) -> list[str]:
    """What the workers that waited for an absent one have printed when they have ended."""
    limits = {**SOON, "MULTIGPU_ARRIVE_SECONDS": "8"}
    with Started("runs", "absent", absent, where, processes=processes, **limits) as started:
        others = [number for number in range(processes) if number != absent]
        codes = {number: started.exit_code(number, 100) for number in others}
        printed = {number: started.printed(number) for number in others}
        assert codes == dict.fromkeys(others, 1), printed
        return list(printed.values())


@pytest.mark.parametrize("missing", [0, soak(1)])
def test_a_worker_that_never_starts_is_named(missing):
    with Started("runs", "resumable", None, **SOON, MULTIGPU_ARRIVE_SECONDS="8") as started:
        started.kill(missing)
        assert started.exit_code(1 - missing, 200) == 1
        assert f"Received: no process listens as worker {missing} at 127.0.0.1:" in started.printed(1 - missing)


def assert_same_weights(weights, others):
    for weight, other in zip(weights, others, strict=True):
        np.testing.assert_allclose(weight, other, **FLOAT32)
