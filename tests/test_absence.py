"""For how long a worker has been absent is said to whoever asks, and is nothing while it waits for the others."""

import time

import pytest
import tensorflow as tf

from multigpu.cluster import absence, lost
from multigpu.cluster.description import Cluster

CLUSTER = Cluster(("a", "b"), ("localhost:2222", "localhost:2223"), 0, arrive_seconds=60.0)


@pytest.fixture
def asked():
    port = absence.answer_on_port()
    return lambda: absence.absent(CLUSTER, [port, port], seconds=-1)[1]


@pytest.fixture
def later(monkeypatch):
    now = time.time()
    return lambda seconds: monkeypatch.setattr(absence.time, "time", lambda: now + seconds)


def met(during=lambda: None):
    """A meeting of one worker, in which something happens."""

    def summed(x):
        during()
        return 2 * x

    return absence.meet(tf.constant(3.0), summed)


def test_seconds_count_from_the_last_meeting(asked, later):
    assert met() == 6
    assert absence.seconds_waiting() == 0
    later(70)
    assert asked() == "does something else, for 70 seconds now"
    later(5)
    with absence.within_step():
        assert asked() == "waits for its data, or is in the midst of a step, for 5 seconds now"
    assert asked() == "does something else, for 5 seconds now"


def test_who_waits_for_the_others_is_not_absent(asked, later):
    def during():
        later(70)
        assert asked() == "does something else, for 0 seconds now"
        assert absence.seconds_waiting() == pytest.approx(70, abs=1)

    met(during)
    assert absence.seconds_waiting() == 0


def test_a_meeting_in_a_function_begins_when_its_input_is_known():
    waited = []

    def note():
        waited.append(absence.seconds_waiting())
        return 1.0

    def slow():
        time.sleep(0.5)
        return 3.0

    def summed(x):
        return x + tf.py_function(note, [], tf.float32)

    @tf.function
    def step():
        return absence.meet(tf.py_function(slow, [], tf.float32), summed)

    assert step() == 4
    assert absence.seconds_waiting() == 0
    assert 0 < waited[0] < 0.4


def test_nothing_is_known_of_a_closed_port(asked):
    assert absence.absent(CLUSTER, [1, 1], seconds=-1) == {}


def test_the_port_is_one_for_all_models():
    assert absence.answer_on_port() == absence.answer_on_port()


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (3, "Received: worker 1 at b:1 or worker 2 at b:2 did not arrive within 60 seconds: it does something"),
        (12, "Received: one of 11 others did not arrive within 60 seconds: it does something else than the others"),
    ],
)
def test_where_nobody_says_that_it_was_absent_all_that_may_have_been_are_listed(monkeypatch, size, expected):
    cluster = Cluster(("task",) * size, tuple(f"b:{n}" for n in range(size)), 0, arrive_seconds=60.0)
    monkeypatch.setattr(lost, "_is_lost", lambda *_: False)
    error = tf.errors.UnavailableError(None, None, "Collective ops is aborted")
    with pytest.raises(lost.WorkerLostError, match=expected), lost.named(cluster):
        raise error


def wait_in_vain(later):
    """A meeting that another worker ends, after a minute."""

    def during():
        later(60)
        raise tf.errors.UnavailableError(None, None, "Collective ops is aborted")

    met(during)


def test_a_lost_worker_that_was_all_there_was_to_wait_for_is_named_alone(monkeypatch, later):
    monkeypatch.setattr(lost, "_is_lost", lambda *_: True)

    expected = "Received: no answer from worker 1 at localhost:2223\\. Restart"
    with pytest.raises(lost.WorkerLostError, match=expected), lost.named(CLUSTER):
        wait_in_vain(later)


def test_who_has_given_up_waiting_is_not_all_that_is_named(monkeypatch, later):
    """Another one was the first to end, and does not answer any more; the late one does, but has told no port."""
    cluster = Cluster(("task",) * 3, tuple(f"b:{n}" for n in range(3)), 0, arrive_seconds=60.0)
    monkeypatch.setattr(lost, "_is_lost", lambda number, _: number == 1)

    expected = "Received: no answer from worker 1 at b:1; worker 2 at b:2 did not arrive within 60 seconds"
    with pytest.raises(lost.WorkerLostError, match=expected), lost.named(cluster):
        wait_in_vain(later)
