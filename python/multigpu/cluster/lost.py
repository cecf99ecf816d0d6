"""Lost workers: the error that names them, a port that shows that a worker lives, and a check of it."""

import socket
import time

from multigpu.base.refusal import refuse
from multigpu.cluster.config import Cluster

SECONDS_TO_CONNECT = 5.0
ATTEMPTS, PAUSE = 5, 0.5


class WorkerLostError(RuntimeError):
    """A worker is gone, or did not reach the step in which the others waited for it.

    A process cannot train on after it: end it, and start all workers again.

    Example:
        >>> import keras, multigpu
        >>> multigpu.simulate_gpus(2)
        >>> parallel = multigpu.multi_gpu_model(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]), gpus=2)
        >>> parallel.compile("sgd", "mse")
        >>> try:
        ...     history = parallel.fit(keras.ops.ones((8, 4)), keras.ops.ones((8, 1)), verbose=0)
        ... except multigpu.WorkerLostError as error:
        ...     raise SystemExit(f"{error} Start all workers again.")
    """


def lost(received: str, cluster: Cluster) -> WorkerLostError:
    """Return the error for lost workers, with the facts known about them."""
    return refuse(
        f"all {cluster.size} workers to train together",
        received,
        "Restart all of them; with `keras.callbacks.BackupAndRestore` training continues where it stopped, also "
        f"on another number of workers. (This is {cluster.name(cluster.number)}.)",
        WorkerLostError,
    )


def split(address: str) -> tuple[str, int]:
    """Split `"host:port"`. An IPv6 address is in brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def listen(address: str) -> socket.socket:
    """Listen at the port of an address, for IPv4 and, where this machine has it, for IPv6."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    return socket.create_server(("", split(address)[1]), family=family, dualstack_ipv6=both)


def listens(address: str, seconds: float) -> bool:
    """Return whether a process listens at this address, `"host:port"`."""
    try:
        socket.create_connection(split(address), seconds).close()
    except OSError:
        return False
    return True


def silent(cluster: Cluster) -> str:
    """Return the names of the other workers that do not listen.

    A process that ends closes its connections one after the other, so this waits for some time.
    """
    for _ in range(ATTEMPTS):
        gone = [number for number in cluster.others if not listens(cluster.addresses[number], SECONDS_TO_CONNECT)]
        if gone:
            break
        time.sleep(PAUSE)
    return ", ".join(map(cluster.name, gone))
