"""Python processes that start with TensorFlow and Keras imported: forked from one that has imported them.

Importing takes four seconds of a processor, and the tests start a hundred processes. `python()` gives what stands in a
command in the place of `sys.executable`: arguments, environment, folder, streams and exit status are those of a
process that was started anew. What is not: the seed of hashes, which forked processes share. With `FORKED_PYTHON=no`
all of them are started anew.

The command is a small program, which hands its streams to the process that forks and waits for an answer. It ends as
the forked process has ended, and the forked process ends when it does.
"""

import json
import os
import select
import signal
import socket
import sys


def python() -> list[str]:
    """The words of a command that start Python with Keras imported; `-c`, `-m` or a script follow, and `-W error`."""
    if os.environ.get("FORKED_PYTHON") == "no":
        return [sys.executable]
    return [sys.executable, "-I", "-S", __file__, _server()]


def _server() -> str:
    """Where the process listens that forks the others; it ends with this one."""
    import subprocess

    name = f"forked-python-{os.getpid()}"
    if not _servers:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind(f"\0{name}")  # which is not a file
            listening.listen(64)
            command = [sys.executable, __file__, "--serve", str(listening.fileno())]
            # its standard input ends when this process ends
            _servers.append(subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[listening.fileno()]))
    return name


_servers: list = []


def _ask(name: str, arguments: list[str]) -> int:
    """Has Python started with these arguments; its exit status, negative where a signal ended it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        asking.connect(f"\0{name}")
        order = {"arguments": arguments, "environ": dict(os.environ), "folder": os.getcwd()}
        socket.send_fds(asking, [json.dumps(order).encode()], [0, 1, 2])
        return int(asking.recv(16))


def _serve(listening: socket.socket) -> None:
    """Forks a process for each order, until the standard input ends."""
    import gc

    import keras  # noqa: F401

    gc.freeze()  # what is shared stays shared
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those that keep the others are not waited for
    while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
        asking, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _keep(asking)
            return
        asking.close()


def _keep(asking: socket.socket) -> None:
    """Forks the process of an order, and answers with its exit status; ends it when nobody waits any more."""
    order, streams, _, _ = socket.recv_fds(asking, 1 << 20, 3)
    worker = os.fork()
    if worker == 0:
        asking.close()
        _become(streams, **json.loads(order))
        return
    for stream in (0, 1, 2, *streams):
        os.close(stream)
    waiting = os.pidfd_open(worker)
    if waiting not in select.select([asking, waiting], [], [])[0]:
        os.kill(worker, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    asking.send(str(code).encode())
    os._exit(0)


def _become(streams: list[int], arguments: list[str], environ: dict[str, str], folder: str) -> None:
    """Does in this process what Python does when it is started with these arguments."""
    import random
    import runpy
    import types
    import warnings

    import numpy as np

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    random.seed()
    np.random.seed()
    if arguments[0] == "-W":
        warnings.simplefilter(arguments[1])
        arguments = arguments[2:]
    paths = environ.get("PYTHONPATH", "").split(os.pathsep)
    first = {"-c": "", "-m": folder}.get(arguments[0], os.path.dirname(os.path.abspath(arguments[0])))
    sys.path[:1] = [first, *filter(None, paths)]
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    if arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        exec(arguments[1], main.__dict__)
    else:
        sys.argv = arguments
        main.__file__ = arguments[0]
        with open(arguments[0]) as script:
            exec(compile(script.read(), arguments[0], "exec"), main.__dict__)


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        _serve(socket.socket(fileno=int(sys.argv[2])))
    else:
        status = _ask(sys.argv[1], sys.argv[2:])
        if status < 0:
            os.kill(os.getpid(), -status)
        sys.exit(status)
