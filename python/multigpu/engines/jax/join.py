"""Join the workers: JAX starts together with the others that TF_CONFIG, SLURM or MPI names."""

import atexit
import inspect
import logging
import multiprocessing
import os
import socket
import sys
import time
from typing import Any

import jax

from multigpu.base.arguments import shown
from multigpu.base.refusal import refuse
from multigpu.cluster.config import Cluster, understood
from multigpu.cluster.lost import listen
from multigpu.cluster.schedulers import check_alone, known_here
from multigpu.engines.jax.refused import TENSORFLOW

_listening: list[socket.socket] = []  # as long as this process lives
SECONDS_TO_TELL = 5.0  # an error that all workers raise is printed by all, before the first of them leaves


def join() -> None:
    """Join the workers that TF_CONFIG describes, if any, and wait for them. JAX needs this before it starts."""
    _join(understood(os.environ))


def join_cluster(resolver: Any = None) -> None:
    """Join the tasks that `srun` or `mpirun` has started, to train one model together.

    Raises:
        ValueError: the argument is a resolver of TensorFlow, or a scheduler's variables do not tell where the tasks
            are.
    """
    if resolver is not None:
        raise refuse(
            "`resolver` to be None on JAX, which reads TF_CONFIG or the variables of SLURM or MPI",
            f"resolver={shown(resolver)}",
            f"Leave it out, or {TENSORFLOW}.",
        )
    _join(known_here(os.environ)[1])


def _join(cluster: Cluster | None) -> None:
    """Start JAX with the other workers, if any. It ends this process if one of them is silent for too long."""
    if cluster is None or jax.distributed.is_initialized():
        return
    limits = {
        "initialization_timeout": int(cluster.arrive_seconds),
        "shutdown_timeout_seconds": int(cluster.arrive_seconds),
        "heartbeat_timeout_seconds": max(1, int(cluster.answer_seconds)),
    }
    known = inspect.signature(jax.distributed.initialize).parameters  # JAX 0.6 has the first alone
    jax.distributed.initialize(
        cluster.addresses[0], cluster.size, cluster.number, **{k: v for k, v in limits.items() if k in known}
    )
    if not cluster.is_chief:  # where JAX itself listens
        _listening.append(listen(cluster.addresses[cluster.number]))
    atexit.register(_leave_after_an_error)


def _leave_after_an_error() -> None:
    """End a process that failed. JAX would wait for the other workers, and they for this one's next step."""
    if hasattr(sys, "last_value") and not hasattr(sys, "ps1"):  # an error ends a script, not a session
        time.sleep(SECONDS_TO_TELL)
        for child in multiprocessing.active_children():  # as Python does after JAX
            child.terminate()
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


def joined_cluster() -> Cluster | None:
    """Return the cluster that this process has joined, or None if it trains alone.

    Raises:
        ValueError: TF_CONFIG was not understood, or was read too late.
    """
    if jax.distributed.is_initialized():
        return known_here(os.environ)[1]
    check_alone(os.environ, "JAX")
    return None
