"""`python -m multigpu launch`: start the workers of one machine, or this machine's worker of a scheduler."""

import argparse
import contextlib
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from multigpu.base.refusal import refuse
from multigpu.cli.argument_types import script, whole_number
from multigpu.cluster.config import configs, described
from multigpu.cluster.schedulers import config_of

HELP = """\
Run a script as several workers that train one model together.

  --processes N               start N workers on this machine
  under srun                  run this command once in each task
  under mpirun, --hosts A,B   run this command once in each task
  --hosts A,B --rank R        run this command once on each host"""
WARNING = (
    "multigpu: each worker listens on all network interfaces, without a password: anyone who can reach its ports can "
    "change what is trained, or even read and write files as you. Keep it behind a firewall, see "
    "docs/multi-worker.md.\n"
)
ENDING = (signal.SIGTERM, signal.SIGHUP)
SAVING_SECONDS = 20.0  # time for workers to save something when they are told to end; Kubernetes grants 30
LEFT_SECONDS = 60.0  # time for the other workers to notice that one has failed, and to report it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `launch`."""
    parser.add_argument("--processes", type=whole_number(1), metavar="N", help="start N workers on this machine")
    parser.add_argument("--hosts", metavar="A,B", help="hosts of all workers, as host or host:port")
    parser.add_argument(
        "--rank", type=whole_number(0, 99_999), help="position of this host in --hosts, from 0; not needed under mpirun"
    )
    parser.add_argument("script", type=script, help="a script in Python or R")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")


def main(arguments: argparse.Namespace) -> int:
    """Run the script as one worker or several. Return the status of the first one that failed, or 0."""
    try:
        configurations = _configurations(arguments)
        command = [_interpreter(arguments.script), str(arguments.script), *arguments.arguments]
    except ValueError as error:
        arguments.parser.error(str(error))
    if described({"TF_CONFIG": configurations[0]}) is not None:  # a single worker does not listen
        sys.stderr.write(WARNING)
    environments = [{**os.environ, "TF_CONFIG": config} for config in configurations]
    return _run_all(environments, command)


def _configurations(arguments: argparse.Namespace) -> list[str]:
    """Return a TF_CONFIG for each worker to start here."""
    if not arguments.processes:
        hosts = arguments.hosts.split(",") if arguments.hosts is not None else []
        return [config_of(os.environ, hosts, arguments.rank)]
    if arguments.hosts is not None or arguments.rank is not None:
        raise refuse(
            "either `--processes N`, for workers on this machine, or `--hosts` and `--rank`",
            f"--processes {arguments.processes} with hosts={arguments.hosts!r}, rank={arguments.rank}",
            "Leave one out.",
        )
    return local_configs(arguments.processes)


def _interpreter(script: Path) -> str:
    if script.suffix.lower() != ".r":
        return sys.executable
    found = shutil.which("Rscript")
    if found is None:
        raise refuse(
            "`Rscript` on the PATH for a script in R", f"{script}, on a machine without `Rscript`", "Install R."
        )
    return found


def local_configs(processes: int) -> list[str]:
    """Return a TF_CONFIG for each of several workers on this machine, with ports that are free now."""
    return configs([f"127.0.0.1:{port}" for port in free_ports(processes)])


def _run_all(environments: Sequence[dict[str, str]], command: Sequence[str]) -> int:
    """Run the command in every environment. When one fails, the others get some time to end by themselves."""
    before = {number: signal.getsignal(number) for number in ENDING}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:  # as `nohup` sets it
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    workers = [subprocess.Popen(command, env=environment) for environment in environments]
    try:
        return _wait(workers)
    except KeyboardInterrupt:  # which they have received, too
        return _wait(workers)
    except SystemExit:
        for worker in workers:
            worker.terminate()
        _wait(workers, SAVING_SECONDS)
        raise
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.kill()
            worker.wait()
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(workers: Sequence[subprocess.Popen], seconds: float = math.inf) -> int:
    failed, since, begun = 0, 0.0, time.monotonic()
    while any(worker.poll() is None for worker in workers) and time.monotonic() - begun < seconds:
        if not failed:
            failed, since = next((worker.returncode for worker in workers if worker.poll()), 0), time.monotonic()
        if failed and time.monotonic() - since > LEFT_SECONDS:
            break
        time.sleep(0.05)
    failed = failed or next((worker.returncode for worker in workers if worker.returncode), 0)
    return 128 - failed if failed < 0 else failed  # as shells report it: 128 plus the number of the signal


def free_ports(number: int) -> list[int]:
    """Return ports of this machine on which no process listens."""
    with contextlib.ExitStack() as bound:
        sockets = [bound.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
