"""Absence: for how long a worker has not been where all meet, which it tells whoever asks.

All meet in the first sum of a step and in each message: nobody leaves before everybody has come. So whoever waits there
for long waits for one that is elsewhere. TensorFlow knows whether a worker answers, not where it is; so each has a port
of its own for that.
"""

import contextlib
import functools
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from multigpu.cluster.description import Cluster

PATIENCE = 2.0  # seconds, for an answer
WITHIN = "waits for its data, or is in the midst of a step"
ELSEWHERE = "does something else"

_now = {"does": ELSEWHERE}  # when it is not where all meet


@functools.cache
def _place() -> tf.Variable:
    """Whether this worker waits for the others, 1 or 0, and since when, in seconds since 1970.

    A variable of TensorFlow, because that writes it in the midst of a step.
    """
    with tf.init_scope(), tf.device("CPU:0"):
        return tf.Variable([0.0, time.time()], dtype=tf.float64, trainable=False)


def meet(x: tf.Tensor, summed: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    """`summed(x)`, a sum in which all workers meet. From when `x` is known until it ends, this one waits."""
    with tf.device("CPU:0"):
        with tf.control_dependencies([x]):
            came = _place().assign(tf.stack([tf.ones([], tf.float64), tf.timestamp()]))
        with tf.control_dependencies([came]):
            met = summed(tf.identity(x))
        with tf.control_dependencies([met]):
            _place().assign(tf.stack([tf.zeros([], tf.float64), tf.timestamp()]))
    return met


@contextlib.contextmanager
def within_step() -> Iterator[None]:
    """A time in which this worker makes a step, which begins with its data."""
    _now["does"] = WITHIN
    try:
        yield
    finally:
        _now["does"] = ELSEWHERE


def seconds_waiting() -> float:
    """For how long this worker has been waiting for the others; 0 if it does not."""
    waits, since = _place().numpy()
    return waits * max(0.0, time.time() - since)


def _seconds_absent() -> float:
    """For how long this worker has not been waiting for the others; 0 if it does."""
    waits, since = _place().numpy()
    return (1 - waits) * max(0.0, time.time() - since)


@functools.cache
def answer_on_port() -> int:
    """Answers from now on, in the background; the number of the port, which the machine chooses."""
    if socket.has_dualstack_ipv6():
        server = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    else:
        server = socket.create_server(("", 0))
    threading.Thread(target=_answer, args=(server,), name="multigpu-absence", daemon=True).start()
    return server.getsockname()[1]


def _answer(server: socket.socket) -> None:
    while True:
        asking, _ = server.accept()
        with asking, contextlib.suppress(OSError):  # whoever asked has gone
            asking.sendall(f"{_seconds_absent():.1f} {_now['does']}".encode())


def absent(cluster: Cluster, ports: Sequence[int], seconds: float) -> dict[int, str]:
    """What those workers do that have been absent for longer than that, as they say on their ports, by number."""
    answers = asked_at_once(lambda number: _asked(cluster.addresses[number], ports[number]), cluster)
    told = {number: answer for number, answer in answers.items() if answer is not None}
    return {number: f"{does}, for {since:.0f} seconds now" for number, (since, does) in told.items() if since > seconds}


def asked_at_once(question: Callable[[int], Any], cluster: Cluster) -> dict[int, Any]:
    """The answer of each other worker, by number, to a question that may take its time."""
    answers = {}

    def ask(number: int) -> None:
        answers[number] = question(number)

    # daemons, which a process that ends does not wait for; those of a pool of Python's it would
    asking = [threading.Thread(target=ask, args=(number,), daemon=True) for number in cluster.others]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    return dict(sorted(answers.items()))


def _asked(address: str, port: int) -> tuple[float, str] | None:
    """For how long the worker at this address has been absent, and what it does; None if it does not say."""
    try:
        with _connected(address.rpartition(":")[0], port) as asked:
            seconds, _, does = asked.makefile().read().partition(" ")
            return float(seconds), does
    except (OSError, ValueError):  # the port is closed between machines, or the worker is too busy: nothing is known
        return None


def listens(address: str) -> bool:
    """Whether anybody listens at this address, `"host:port"`."""
    host, _, port = address.rpartition(":")
    try:
        _connected(host, int(port)).close()
    except OSError:
        return False
    return True


def _connected(host: str, port: int) -> socket.socket:
    return socket.create_connection((host.strip("[]"), port), PATIENCE)  # which is the limit of what follows, too
