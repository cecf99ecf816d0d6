"""Limits of processor time and memory for this process, which ends in them."""

import os
import resource
import signal
import sys
import time


def allow(seconds: float) -> None:
    """Lets this process be killed when it has used so much processor time in all."""
    signal.setitimer(signal.ITIMER_PROF, min(max(seconds - time.process_time(), 0.01), 1e9))


def limit_memory(number: float) -> None:
    """Allows so many bytes more than are in use now, where the system tells how many these are.

    A limit that this process was started under stays.
    """
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if os.path.exists("/proc/self/statm"):
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        limit = int(min(used + number, sys.maxsize))
        resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def lift_limits() -> None:
    """For what is not read from a file: starting TensorFlow."""
    signal.setitimer(signal.ITIMER_PROF, 0)
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
