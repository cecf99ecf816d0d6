"""The handshake leaves a worker as it is, but for what it takes from the chief."""

import random

import keras
import numpy as np
import pytest

from multigpu.cluster.config import Cluster
from multigpu.engines.tensorflow.multi_worker import handshake
from multigpu.engines.tensorflow.multi_worker.handshake import UNSET_SEED

ALONE = Cluster(("a",), ("a:1",), 0)


@pytest.fixture
def sent(monkeypatch):
    """What the chief sends, which is this process."""
    monkeypatch.setattr(handshake, "all_gather_numbers", lambda numbers, _: np.array([numbers], "float64"))


@pytest.mark.usefixtures("sent")
def test_a_program_that_sets_a_seed_keeps_the_random_numbers_that_follow():
    keras.utils.set_random_seed(1)
    before = random.getstate()
    handshake.broadcast_seed(ALONE)
    assert random.getstate() == before


@pytest.mark.usefixtures("sent")
def test_without_a_seed_all_get_one(monkeypatch):
    given = []
    monkeypatch.setattr(handshake.tf.random, "set_seed", given.append)
    monkeypatch.setattr(handshake.tf.compat.v1, "get_seed", lambda _: (UNSET_SEED, None))
    handshake.broadcast_seed(ALONE)
    assert len(given) == 1
    assert 0 <= given[0] < 2**31
