"""For how long a worker has been elsewhere is said to whoever asks, and is nothing while it waits with the others."""

import time

import pytest

from multigpu.cluster import absence


@pytest.fixture
def asked():
    port = absence.answer_on_port()
    return lambda: absence.seconds_elsewhere("localhost:2222", port)


def test_a_worker_that_nobody_expects_is_not_elsewhere(asked):
    assert asked() == 0


def test_seconds_count_from_when_it_left_the_others(asked, monkeypatch):
    with absence.expected():
        now = time.monotonic()
        monkeypatch.setattr(absence.time, "monotonic", lambda: now + 70)
        assert asked() == pytest.approx(70, abs=1)
        assert absence.seconds_here() == 0
        with absence.arrived():
            assert asked() == 0
            monkeypatch.setattr(absence.time, "monotonic", lambda: now + 75)
            assert absence.seconds_here() == 5
        assert asked() == 0  # it has just left
        monkeypatch.setattr(absence.time, "monotonic", lambda: now + 105)
        assert asked() == pytest.approx(30, abs=1)
    assert asked() == absence.seconds_here() == 0


def test_nothing_is_known_of_a_closed_port():
    assert absence.seconds_elsewhere("localhost:2222", 1) is None


def test_the_port_is_one_for_all_models():
    assert absence.answer_on_port() == absence.answer_on_port()


def test_within_a_verb_that_waits_itself_a_worker_is_elsewhere_not_here():
    with absence.arrived(), absence.expected():
        assert absence.seconds_here() == 0
