"""The error of a lost worker says what was received of it, what to do, and which worker says so."""

import socket

import pytest

from multigpu.cluster.config import Cluster
from multigpu.cluster.lost import WorkerLostError, listen, listens, lost, split


def test_the_error_names_the_lost_worker_and_the_one_that_says_so():
    tasks = tuple(f"/job:worker/replica:0/task:{number}" for number in range(2))
    error = lost("no answer from worker 0 at a:1", Cluster(tasks, ("a:1", "b:2"), number=1))
    assert isinstance(error, WorkerLostError)
    assert str(error) == (
        "Expected all 2 workers to train together. Received: no answer from worker 0 at a:1. Restart all of them; with "
        "`keras.callbacks.BackupAndRestore` training continues where it stopped, also on another number of workers. "
        "(This is worker 1 at b:2.)"
    )


@pytest.mark.parametrize(("address", "parts"), [("a:1", ("a", 1)), ("[::1]:22", ("::1", 22))])
def test_an_address_is_a_host_and_a_port(address, parts):
    assert split(address) == parts


def test_a_worker_that_listens_is_found_by_its_address_of_either_kind():
    with listen("[::1]:0") as found:
        port = found.getsockname()[1]
        addresses = [f"127.0.0.1:{port}", *([f"[::1]:{port}"] if socket.has_dualstack_ipv6() else [])]
        assert [listens(address, 5.0) for address in addresses] == [True] * len(addresses)
    assert not listens(addresses[0], 5.0)
