"""Lost workers: nobody waits for one that is gone, or that does something else, and the error names it."""

import contextlib
import re
import threading
import time
from collections.abc import Iterator

import tensorflow as tf
from tensorflow.python.eager import context  # there is no public way to ask whether a worker is alive

from multigpu.cluster.description import Cluster

ATTEMPTS = 3  # questions within `answer_seconds`
SHOWN = 8  # workers that a message lists, at most
ABSENT = "did not arrive"  # what a worker says of itself


class WorkerLostError(RuntimeError):
    """A worker is gone, or did not come to where the others waited for it."""


def watch(cluster: Cluster) -> None:
    """Asks the other workers, all the time, whether they are alive; ends this one's waiting when one is not."""
    if not _watches():
        _Watch(cluster).start()


@contextlib.contextmanager
def expected(cluster: Cluster) -> Iterator[None]:
    """A time in which the others wait for this worker whenever it does not wait for them, as in `named()`."""
    before = _Absence.since
    with named(cluster):
        _Absence.since = time.monotonic()
        try:
            yield
        finally:
            _Absence.since = before and time.monotonic()


@contextlib.contextmanager
def named(cluster: Cluster | None) -> Iterator[None]:
    """Turns an error of a collective op into one that names the worker that is gone.

    Raises:
        WorkerLostError: a collective op failed, and a worker is to blame.
    """
    before, _Absence.since = _Absence.since, None
    try:
        yield
    except tf.errors.OpError as error:
        if cluster is None or not _is_of_collective(error):
            raise
        raise WorkerLostError(_message(error.message, cluster)) from error
    finally:
        _Absence.since = before and time.monotonic()


class _Absence:
    """Since when this worker, expected by the others, has not been where they wait; None while it is."""

    since: float | None = None


def _is_of_collective(error: tf.errors.OpError) -> bool:
    kinds = (tf.errors.UnavailableError, tf.errors.DeadlineExceededError, tf.errors.AbortedError)
    return isinstance(error, kinds) or "ollective" in error.message or "RecvBuf" in error.message


def _message(text: str, cluster: Cluster) -> str:
    return (
        f"Expected all {cluster.size} workers to train together. Received: {_received(text, cluster)}. Restart all of "
        "them; with `keras.callbacks.BackupAndRestore` training goes on where it stopped, also on another number of "
        f"workers. (This is {cluster.name(cluster.number)}.)"
    )


def _received(text: str, cluster: Cluster) -> str:
    """What is wrong: a worker is gone, or has said of itself that it was absent, or one of some must have been."""
    others = [number for number in range(cluster.size) if number != cluster.number]
    lost = [thread.lost for thread in _watches() if thread.lost is not None]
    lost = lost or [number for number in others if _is_lost(number, cluster)]
    if lost:
        return f"no answer from {', '.join(map(cluster.name, lost))}"
    absent = re.search(rf"worker \d+ at \S+ {ABSENT}", text)
    if absent is not None:
        what = absent.group()
    elif len(others) <= SHOWN:
        what = f"{' or '.join(map(cluster.name, others))} {ABSENT}"
    else:
        what = f"one of the {len(others)} others {ABSENT}"
    return (
        f"an answer from each, but {what} within {cluster.arrive_seconds:g} seconds: it does something else than the "
        "others, or waits for its data"
    )


def _is_lost(number: int, cluster: Cluster) -> bool:
    """Whether a worker does not answer, or is another process than before."""
    limit = int(1000 * cluster.answer_seconds / ATTEMPTS)
    for _ in range(ATTEMPTS):
        try:
            context.context().check_collective_ops_peer_health(cluster.tasks[number], timeout_in_ms=limit)
        except tf.errors.OpError:
            continue
        return False
    return True


def _watches() -> "list[_Watch]":
    return [thread for thread in threading.enumerate() if isinstance(thread, _Watch)]


class _Watch(threading.Thread):
    """Asks in the background, so that a worker that is silent, but keeps its connections, is noticed.

    A worker that answers, but does not come to where the others wait, is noticed by its own watch: its sums end in an
    error that names it, on the others too.

    Attributes:
        lost: the worker that did not answer.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(name="multigpu-watch", daemon=True)
        self.lost: int | None = None
        self._cluster = cluster

    def run(self) -> None:
        cluster = self._cluster
        others = [number for number in range(cluster.size) if number != cluster.number]
        while True:
            since = _Absence.since
            if since is not None and time.monotonic() - since > cluster.arrive_seconds:
                _abort(f"{cluster.name(cluster.number)} {ABSENT}")
            for number in others:
                if self.lost is None and _is_lost(number, cluster):
                    self.lost = number
                    _abort(f"no answer from {cluster.name(number)}")
            time.sleep(cluster.answer_seconds / ATTEMPTS)


def _abort(what: str) -> None:
    """Ends the waiting of this worker, and of those that wait for what it sends."""
    context.context().abort_collective_ops(tf.errors.UNAVAILABLE, what)
