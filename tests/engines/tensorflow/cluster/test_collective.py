"""Sums of TensorFlow's are told apart by number: names decide them, and no two have the same."""

import pytest

from multigpu.engines.tensorflow.cluster import collective


def test_numbers_depend_on_names_alone():
    assert [collective.Numbers().of("a"), collective.Numbers().of("b")] == [collective.Numbers().of(n) for n in "ab"]
    assert 0 <= collective.Numbers().of("a") <= collective.LARGEST


@pytest.mark.parametrize("hashed", [3, collective.LARGEST])
def test_names_that_hash_alike_get_numbers_of_their_own(monkeypatch, hashed):
    monkeypatch.setattr(collective, "_hashed", lambda name: hashed)
    numbers = collective.Numbers()
    given = {name: numbers.of(name) for name in "abc"}
    assert len(set(given.values())) == 3
    assert {name: numbers.of(name) for name in "cba"} == given
