"""Parse addresses of workers, as `host:port`."""

import itertools
import re
from collections import Counter
from collections.abc import Sequence

from multigpu.base.refusal import refuse

HOST_PATTERN = r"\[[^\s\[\]/]+\]|[^\s:/@,\[\]]+"  # IPv6 in brackets
EXPECTED = "host:port, with a port from 1 to 65535, and IPv6 in brackets as in [::1]:2222"
PORT = 2222  # the port of the first worker of a host without a port


def is_address(value: object) -> bool:
    """Return whether a text is a host and a port, as TensorFlow accepts them."""
    found = re.fullmatch(rf"({HOST_PATTERN}):([0-9]{{1,5}})", value) if isinstance(value, str) else None
    return found is not None and 1 <= int(found[2]) <= 65535


def repeated(addresses: Sequence[str]) -> list[str]:
    """Return the items that occur more than once."""
    return [address for address, number in Counter(addresses).items() if number > 1]


def addresses_of(hosts: Sequence[str]) -> list[str]:
    """Return an address for each host. A host without a port gets a free one, from 2222 on.

    Raises:
        ValueError: a host is not understood, or is named twice with the same port.
    """
    for host in hosts:
        if not (is_address(host) or re.fullmatch(HOST_PATTERN, host)):
            raise refuse(f"hosts as host or {EXPECTED}", f"{host!r} in hosts={list(hosts)}")
    addresses = [host for host in hosts if is_address(host)]
    if repeated(addresses):
        raise refuse("each address once", f"{', '.join(repeated(addresses))} more than once")
    for position, host in enumerate(hosts):
        if not is_address(host):
            free = (f"{host}:{port}" for port in itertools.count(PORT))
            addresses.insert(position, next(address for address in free if address not in addresses))
    return addresses
