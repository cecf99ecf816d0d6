"""Absence: for how long a worker has not been where the others wait for it, which it tells whoever asks.

TensorFlow knows whether a worker answers, not what it does; so each has a port of its own for this one number.
"""

import contextlib
import functools
import socket
import threading
import time
from collections.abc import Iterator

PATIENCE = 2.0  # seconds, for an answer


class _Now:
    """What this worker does: "elsewhere" or "here", and since when; None where the others do not expect it."""

    does: tuple[str, float] | None = None


def expected() -> contextlib.AbstractContextManager[None]:
    """A time in which the others wait for this worker, whenever it has not arrived."""
    return _does("elsewhere")


def arrived() -> contextlib.AbstractContextManager[None]:
    """A time in which this worker does what all do together."""
    return _does("here")


@contextlib.contextmanager
def _does(what: str) -> Iterator[None]:
    before, _Now.does = _Now.does, (what, time.monotonic())
    try:
        yield
    finally:
        _Now.does = before and (before[0], time.monotonic())


def seconds_here() -> float:
    """For how long this worker has been doing what all do together; 0 if it does not."""
    return _seconds("here")


def _seconds(what: str) -> float:
    does = _Now.does
    return time.monotonic() - does[1] if does is not None and does[0] == what else 0.0


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
            asking.sendall(f"{_seconds('elsewhere'):.1f}".encode())


def listens(address: str) -> bool:
    """Whether anybody listens at this address, `"host:port"`."""
    host, _, port = address.rpartition(":")
    try:
        _connected(host, int(port)).close()
    except OSError:
        return False
    return True


def seconds_elsewhere(address: str, port: int) -> float | None:
    """For how long the worker at this address has been elsewhere, as it says on a port of its own; None if unknown."""
    try:
        with _connected(address.rpartition(":")[0], port) as asked:
            return float(asked.recv(32))
    except (OSError, ValueError):  # the port is closed between machines, or the worker is too busy: nothing is known
        return None


def _connected(host: str, port: int) -> socket.socket:
    return socket.create_connection((host.strip("[]"), port), PATIENCE)  # which is the limit of what follows, too
