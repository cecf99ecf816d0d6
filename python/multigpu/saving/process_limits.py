"""Limit the processor time and memory of this process. It ends when it reaches a limit."""

import os
import resource
import signal
import sys
import time


def allow(seconds: float) -> None:
    """Let the system kill this process when it has used this much processor time in all."""
    signal.setitimer(signal.ITIMER_PROF, min(max(seconds - time.process_time(), 0.01), 1e9))


def limit_memory(number: float) -> None:
    """Allow this many bytes more than are in use now, if the system reports how many are in use.

    A limit under which this process was started stays.
    """
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if os.path.exists("/proc/self/statm"):
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        limit = int(min(used + number, sys.maxsize))
        resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def lift_limits() -> None:
    """Remove the limits, for work that does not read the file: starting TensorFlow."""
    signal.setitimer(signal.ITIMER_PROF, 0)
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
