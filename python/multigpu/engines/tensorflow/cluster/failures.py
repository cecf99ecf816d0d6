"""Detect lost workers: no worker waits for one that is gone, and the error names it."""

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence

import tensorflow as tf

from multigpu.cluster.config import Cluster
from multigpu.cluster.lost import listens, lost
from multigpu.engines.tensorflow.cluster.peer_status import ELSEWHERE, SECONDS_TO_ANSWER, absent, asked_at_once
from multigpu.engines.tensorflow.cluster.rendezvous import seconds_since_barrier, seconds_waiting
from multigpu.engines.tensorflow.private_api.runtime import abort_collective_ops, is_alive

ATTEMPTS = 3  # requests within `answer_seconds`
SHOWN = 8  # maximum number of workers that a message lists


def wait_for_all(cluster: Cluster) -> None:
    """Wait until every other worker listens.

    TensorFlow would wait, too, but could not distinguish a worker that never started from one that is late.

    Raises:
        WorkerLostError: a worker does not listen within `arrive_seconds`.
    """
    seconds_waiting()  # starts TensorFlow: from now on this worker listens, and reports its state
    ends = time.monotonic() + cluster.arrive_seconds
    missing = cluster.others
    while missing := [number for number in missing if not listens(cluster.addresses[number], SECONDS_TO_ANSWER)]:
        if time.monotonic() > ends:
            raise lost(f"no process listens as {', '.join(map(cluster.name, missing))}", cluster)
        time.sleep(0.2)


def watch(cluster: Cluster) -> None:
    """From now on, end this worker's waiting if another worker is dead or does not come.

    It regularly checks that the others are alive, because TensorFlow would not notice a silent worker that keeps its
    connections. It also checks how long this worker has been waiting, because the ops have no limit of their own
    (`collective.py`), and whether another one has ended the step that this one makes.
    """
    if not _watches:
        _watches.append(HeartbeatMonitor(cluster))
        _watches[0].start()


@contextlib.contextmanager
def named(cluster: Cluster | None) -> Iterator[None]:
    """Turn an error of a collective op into one that names the worker that is gone.

    Raises:
        WorkerLostError: a collective op failed because of a worker.
    """
    try:
        yield
    except tf.errors.OpError as error:
        if cluster is None or not _is_of_collective(error):
            raise
        found = next((watching.found for watching in _watches if watching.found), None)
        raise lost(found or _found(cluster, _lost(cluster)), cluster) from error


def _is_of_collective(error: tf.errors.OpError) -> bool:
    kinds = (tf.errors.UnavailableError, tf.errors.DeadlineExceededError, tf.errors.AbortedError)
    return isinstance(error, kinds) or "ollective" in error.message or "RecvBuf" in error.message


def _found(cluster: Cluster, gone: Sequence[int]) -> str:
    """Return the failure in words: lost workers, workers absent for long, or workers that may be absent."""
    facts = [f"no answer from {', '.join(map(cluster.name, gone))}"] if gone else []
    absentees = absent(cluster, cluster.arrive_seconds / 2)
    doing = {number: does for number, does in absentees.items() if number not in gone}
    facts += [f"{cluster.name(number)} {does}" for number, does in doing.items()]
    rest = [number for number in cluster.others if number not in gone]
    if rest and not doing and seconds_waiting() > cluster.arrive_seconds / 2:  # it gave up
        late = f"{_one_of(rest, cluster)} did not arrive within {cluster.arrive_seconds:g} seconds"
        facts.append(f"{late}: it does something else, or waits for its data")
    return "; ".join(facts or [f"{_one_of(rest, cluster)} may have left the step: it failed there, or gave up"])


def _one_of(numbers: Sequence[int], cluster: Cluster) -> str:
    return " or ".join(map(cluster.name, numbers)) if len(numbers) <= SHOWN else f"one of {len(numbers)} others"


def _lost(cluster: Cluster) -> list[int]:
    """Return the workers that do not answer, or that are other processes than before."""
    return [number for number, gone in asked_at_once(lambda number: _is_lost(number, cluster), cluster).items() if gone]


def _is_lost(number: int, cluster: Cluster) -> bool:
    limit = int(1000 * cluster.answer_seconds / ATTEMPTS)
    return not any(is_alive(cluster.tasks[number], limit) for _ in range(ATTEMPTS))


class HeartbeatMonitor(threading.Thread):
    """A thread that ends this worker's waiting if another worker is gone.

    It ends with the main thread, and Python waits for it. A daemon thread that returns from TensorFlow while Python
    ends would be killed inside C++, which aborts the process ("exception not rethrown").

    Attributes:
        found: the failure in words, after it has ended this worker's waiting.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(name="multigpu-watch", daemon=False)
        self.found = ""
        self._cluster = cluster

    def run(self) -> None:
        """Check regularly, until something is wrong or the main thread ends."""
        main = threading.main_thread()
        while not self.found:
            main.join(self._cluster.answer_seconds / ATTEMPTS)
            if not main.is_alive():
                return
            self.found = self._looked()
        abort_collective_ops(self.found)

    def _looked(self) -> str:
        limit = self._cluster.arrive_seconds
        late = seconds_waiting() > limit or (seconds_since_barrier() > limit and self._another_left(limit))
        gone = _lost(self._cluster)
        return _found(self._cluster, gone) if late or gone else ""

    def _another_left(self, seconds: float) -> bool:
        """Return whether a worker has long ended the step that this one makes: it failed there, after the barrier."""
        return any(ELSEWHERE in does for does in absent(self._cluster, seconds).values())


_watches: list[HeartbeatMonitor] = []
