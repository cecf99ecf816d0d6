"""Lost workers: nobody waits for one that is gone, and the error names it."""

import contextlib
import threading
import time
from collections.abc import Iterator

import tensorflow as tf
from tensorflow.python.eager import context  # there is no public way to ask whether a worker is alive

from multigpu.cluster.description import Cluster

ATTEMPTS = 3  # questions within `answer_seconds`


class WorkerLostError(RuntimeError):
    """A worker is gone, or did not come to where the others waited for it."""


def watch(cluster: Cluster) -> None:
    """Asks the other workers, all the time, whether they are alive; ends this one's waiting when one is not."""
    if not _watches():
        _Watch(cluster).start()


@contextlib.contextmanager
def named(cluster: Cluster | None) -> Iterator[None]:
    """Turns an error of a collective op into one that names the worker that is gone.

    Raises:
        WorkerLostError: a collective op failed, and a worker is to blame.
    """
    try:
        yield
    except tf.errors.OpError as error:
        if cluster is None or not _is_of_collective(error):
            raise
        raise WorkerLostError(_message(cluster)) from error


def _is_of_collective(error: tf.errors.OpError) -> bool:
    kinds = (tf.errors.UnavailableError, tf.errors.DeadlineExceededError, tf.errors.AbortedError)
    return isinstance(error, kinds) or "ollective" in error.message or "RecvBuf" in error.message


def _message(cluster: Cluster) -> str:
    lost = [thread.lost for thread in _watches() if thread.lost is not None]
    lost = lost or [number for number in range(cluster.size) if number != cluster.number and _is_lost(number, cluster)]
    if lost:
        what = f"no answer from {', '.join(map(cluster.name, lost))}"
    else:
        what = (
            f"an answer from each, but one of them did not arrive within {cluster.arrive_seconds:g} seconds: it does "
            "something else than the others, or waits for its data"
        )
    return (
        f"Expected all {cluster.size} workers to train together. Received: {what}. Restart all of them; with "
        "`keras.callbacks.BackupAndRestore` training goes on where it stopped, also on another number of workers. "
        f"(This is {cluster.name(cluster.number)}.)"
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

    Attributes:
        lost: the worker that did not answer.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(name="multigpu-watch", daemon=True)
        self.lost: int | None = None
        self._cluster = cluster

    def run(self) -> None:
        others = [number for number in range(self._cluster.size) if number != self._cluster.number]
        while True:
            for number in others:
                if self.lost is None and _is_lost(number, self._cluster):
                    self.lost = number
                    what = f"no answer from {self._cluster.name(number)}"
                    context.context().abort_collective_ops(tf.errors.UNAVAILABLE, what)
            time.sleep(self._cluster.answer_seconds / ATTEMPTS)
