"""Lost workers: nobody waits for one that is gone, and the error names it."""

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence

import tensorflow as tf
from tensorflow.python.eager import context  # there is no public way to ask whether a worker is alive

from multigpu.cluster.absence import arrived, listens, seconds_elsewhere, seconds_here
from multigpu.cluster.description import Cluster

ATTEMPTS = 3  # questions within `answer_seconds`
SHOWN = 8  # workers that a message lists, at most


class WorkerLostError(RuntimeError):
    """A worker is gone, or did not come to where the others waited for it."""


def wait_for_all(cluster: Cluster) -> None:
    """Waits until every other worker listens.

    TensorFlow would wait as well, but could not tell a worker that never started from one that is late.

    Raises:
        WorkerLostError: one of them does not listen within `arrive_seconds`.
    """
    tf.config.list_logical_devices()  # this one listens from now on, also where its template has no weights
    ends = time.monotonic() + cluster.arrive_seconds
    missing = [number for number in range(cluster.size) if number != cluster.number]
    while missing := [number for number in missing if not listens(cluster.addresses[number])]:
        if time.monotonic() > ends:
            raise WorkerLostError(_message(f"nobody listens as {', '.join(map(cluster.name, missing))}", cluster))
        time.sleep(0.2)


def watch(cluster: Cluster, ports: Sequence[int]) -> None:
    """Asks the other workers, all the time, whether they are alive; ends this one's waiting when one is not.

    Args:
        cluster: the workers.
        ports: where each of them says for how long it has been elsewhere.
    """
    if not _watches():
        _Watch(cluster, ports).start()


@contextlib.contextmanager
def limited(cluster: Cluster) -> Iterator[None]:
    """Ends the wait for a worker that does not arrive within `arrive_seconds`.

    An op's own limit does so as well. But while it still looks for the members of its group, which is in its first
    sum, TensorFlow then forgets what it has asked the chief, and may crash when an answer comes.
    """
    what = f"one of the workers did not arrive within {cluster.arrive_seconds:g} seconds"
    timer = threading.Timer(cluster.arrive_seconds, _abort, [what])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _abort(what: str) -> None:
    """Ends the sums of this worker, now and later, and those of the workers that receive from it."""
    context.context().abort_collective_ops(tf.errors.UNAVAILABLE, what)


@contextlib.contextmanager
def named(cluster: Cluster | None) -> Iterator[None]:
    """Turns an error of a collective op into one that names the worker that is gone.

    Raises:
        WorkerLostError: a collective op failed, and a worker is to blame.
    """
    try:
        with arrived():
            yield
    except tf.errors.OpError as error:
        if cluster is None or not _is_of_collective(error):
            raise
        raise WorkerLostError(_message(_found(cluster), cluster)) from error


def _is_of_collective(error: tf.errors.OpError) -> bool:
    kinds = (tf.errors.UnavailableError, tf.errors.DeadlineExceededError, tf.errors.AbortedError)
    return isinstance(error, kinds) or "ollective" in error.message or "RecvBuf" in error.message


def _message(received: str, cluster: Cluster) -> str:
    return (
        f"Expected all {cluster.size} workers to train together. Received: {received}. Restart all of them; with "
        "`keras.callbacks.BackupAndRestore` training goes on where it stopped, also on another number of workers. "
        f"(This is {cluster.name(cluster.number)}.)"
    )


def _found(cluster: Cluster) -> str:
    """What is wrong: a worker is gone, or says that it has been elsewhere for long, or one of some must have been."""
    others = [number for number in range(cluster.size) if number != cluster.number]
    absent = _absent(others, cluster, cluster.arrive_seconds / 2)
    lost = [thread.lost for thread in _watches() if thread.lost is not None]
    lost = lost or [number for number in others if number not in absent and _is_lost(number, cluster)]
    facts = [f"no answer from {', '.join(map(cluster.name, lost))}"] if lost else []
    facts += [f"{cluster.name(number)} does something else, for {absent[number]:.0f} seconds now" for number in absent]
    if facts:
        return "; ".join(facts)
    who = " or ".join(map(cluster.name, others)) if len(others) <= SHOWN else f"one of the {len(others)} others"
    return (
        f"an answer from each, but {who} did not arrive within {cluster.arrive_seconds:g} seconds: it does something "
        "else than the others, or waits for its data"
    )


def _absent(others: Sequence[int], cluster: Cluster, long: float) -> dict[int, float]:
    """Seconds of those that have been elsewhere for longer than that."""
    ports = next((thread.ports for thread in _watches()), None)
    if ports is None:
        return {}
    told = {number: seconds_elsewhere(cluster.addresses[number], ports[number]) for number in others}
    return {number: seconds for number, seconds in told.items() if seconds and seconds > long}


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

    So is one that is elsewhere while this one waits. An op has a limit of its own, which is the last resort: when that
    ends it, TensorFlow goes on with what the op leaves behind, and may crash.

    Attributes:
        ports: where each worker says for how long it has been elsewhere.
        lost: the worker that did not answer.
    """

    def __init__(self, cluster: Cluster, ports: Sequence[int]) -> None:
        super().__init__(name="multigpu-watch", daemon=True)
        self.ports = ports
        self.lost: int | None = None
        self._cluster = cluster
        self._others = [number for number in range(cluster.size) if number != cluster.number]

    def run(self) -> None:
        limit = self._cluster.arrive_seconds
        while True:
            for number in self._others:
                if self.lost is None and _is_lost(number, self._cluster):
                    self.lost = number
                    _abort(f"no answer from {self._cluster.name(number)}")
            if seconds_here() > limit and _absent(self._others, self._cluster, limit):
                _abort("a worker does something else")
            time.sleep(self._cluster.answer_seconds / ATTEMPTS)
