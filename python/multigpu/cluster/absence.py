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


class _Here:
    """Since when this worker, expected by the others, does something else; None while it waits with them."""

    elsewhere_since: float | None = None


@contextlib.contextmanager
def expected() -> Iterator[None]:
    """A time in which the others wait for this worker, whenever it has not arrived."""
    before, _Here.elsewhere_since = _Here.elsewhere_since, time.monotonic()
    try:
        yield
    finally:
        _Here.elsewhere_since = before and time.monotonic()


@contextlib.contextmanager
def arrived() -> Iterator[None]:
    """A time in which this worker does what all do together."""
    before, _Here.elsewhere_since = _Here.elsewhere_since, None
    try:
        yield
    finally:
        _Here.elsewhere_since = before and time.monotonic()


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
            since = _Here.elsewhere_since
            asking.sendall(f"{time.monotonic() - since if since is not None else 0:.0f}".encode())


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
