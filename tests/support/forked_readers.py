"""Files are read by processes that are forked from one which has imported Keras: starting each anew takes seconds.

They run the same function under the same limits as the processes that are started for a user.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from unittest import mock

import pytest

from multigpu.saving import sandbox

FORKING = """
import importlib.util, json, os, sys, types
import h5py
spec = importlib.util.spec_from_file_location("sandbox", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
if len(sys.argv) > 2:  # for models too
    sys.modules["multigpu"] = package = types.ModuleType("multigpu")
    package.__path__ = [sys.argv[2]]
    import multigpu.saving.sandboxed_build
for line in sys.stdin:
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(out)
        os.dup2(into, 1)
        code = module.main(**json.loads(line))
        os._exit(code)
    os.close(into)
    answer = os.fdopen(out).read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([status, answer]), flush=True)
"""


@contextlib.contextmanager
def reading_servers() -> Iterator[list[subprocess.Popen]]:
    """Two processes that fork one for each file: without Keras, and with Keras, for models."""
    package = os.path.dirname(os.path.dirname(sandbox.__file__))
    servers = [
        subprocess.Popen(
            [sys.executable, "-c", FORKING, sandbox.__file__, *more],
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for more in ([], [package])
    ]
    try:
        yield servers
    finally:
        for server in servers:
            server.kill()
            server.communicate()


@contextlib.contextmanager
def read_by_forks(servers: list[subprocess.Popen]) -> Iterator[None]:
    """Has files read by forked processes."""
    start = subprocess.run

    def run(arguments, **kwargs):
        if list(arguments[:3]) != [sys.executable, "-I", sandbox.__file__]:
            return start(arguments, **kwargs)
        server = servers[json.loads(arguments[-1])["trial"] is not None]
        server.stdin.write(arguments[-1] + "\n")
        server.stdin.flush()
        status, answer = json.loads(server.stdout.readline())
        return subprocess.CompletedProcess(arguments, status, answer.encode(), b"")

    with mock.patch.object(subprocess, "run", run):
        yield


@pytest.fixture(scope="session")
def servers():
    with reading_servers() as started:
        yield started


@pytest.fixture
def forked(servers):
    with read_by_forks(servers):
        yield
