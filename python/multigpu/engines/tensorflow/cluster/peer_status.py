"""Ask other workers for their state, over the port on which TensorFlow listens."""

import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from multigpu.cluster.config import Cluster
from multigpu.engines.tensorflow.cluster.rendezvous import handles_by_name, seconds_waiting, state_of

SECONDS_TO_ANSWER = 2.0

NOT_THERE = "has made no parallel model yet"
WITHIN = "waits for its data, or is in the middle of a step"
ELSEWHERE = "does something else"


def absent(cluster: Cluster, seconds: float) -> dict[int, str]:
    """Return in words what each worker does that has been absent for more than `seconds`, by number, if known."""
    not_there = NOT_THERE if seconds_waiting() > seconds else ""
    states = asked_at_once(lambda number: _asked(cluster, number), cluster)
    told = {
        number: not_there if isinstance(state, tf.errors.FailedPreconditionError) else absence_text(state, seconds)
        for number, state in states.items()
        if state is not None
    }
    return {number: does for number, does in told.items() if does}


def absence_text(state: Any, seconds: float) -> str:
    """Return in words what a worker does if it has been absent for more than `seconds`, otherwise ""."""
    waits, since, within = state
    does = WITHIN if within else ELSEWHERE
    return f"{does}, for {since:.0f} seconds now" if not waits and since > seconds else ""


def _asked(cluster: Cluster, number: int) -> Any:
    """Return the state of another worker, or the error if it has no record, or None if it does not answer."""
    task, address = cluster.tasks[number], cluster.addresses[number]
    config = tf.compat.v1.ConfigProto(operation_timeout_in_ms=int(1000 * SECONDS_TO_ANSWER), device_filters=[task])
    with tf.Graph().as_default():
        with tf.device(f"{task}/device:CPU:0"):
            state = state_of(handles_by_name())
        try:
            with tf.compat.v1.Session(f"grpc://{address}", config=config) as session:
                return session.run(state)
        except tf.errors.OpError as error:
            return error if isinstance(error, tf.errors.FailedPreconditionError) else None


def asked_at_once(question: Callable[[int], Any], cluster: Cluster) -> dict[int, Any]:
    """Ask all other workers in parallel, and return the answers by number."""
    answers = {}

    def ask(number: int) -> None:
        answers[number] = question(number)

    # not daemons: a process that ends would not wait for them (see `HeartbeatMonitor`). Each ends within its time
    # limit.
    asking = [threading.Thread(target=ask, args=(number,), daemon=False) for number in cluster.others]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    return dict(sorted(answers.items()))
