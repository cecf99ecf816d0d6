"""`python -m multigpu launch`: starts the workers of one machine, or this one's as a scheduler describes it."""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

HELP = """\
Run a script as several workers that train one model together. With --processes they are processes of this machine;
under srun, or under mpirun with --hosts, run this once in each task; by hand, once on each host, with --hosts and
--rank."""
PORT = 2222  # of the first worker of a machine, where a scheduler started it
RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")  # as Open MPI, PMIx and MPICH name them
LEFT_SECONDS = 60.0  # for the other workers to find out that one has failed, and to say so


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the words may be."""
    parser.add_argument("--processes", type=int, metavar="N", help="start N workers on this machine")
    parser.add_argument("--hosts", metavar="A,B", help="hosts of all workers, as host or host:port")
    parser.add_argument("--rank", type=int, help="which of the hosts this is, from 0; mpirun says it by itself")
    parser.add_argument("script", help="in Python, or in R")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")


def main(arguments: argparse.Namespace) -> int:
    """Runs the script as one worker or several, and gives the status of the first that failed, or else 0."""
    interpreter = "Rscript" if arguments.script.lower().endswith(".r") else sys.executable
    command = [interpreter, arguments.script, *arguments.arguments]
    if arguments.processes:
        return _run_all([{**os.environ, "TF_CONFIG": text} for text in local_configs(arguments.processes)], command)
    hosts = arguments.hosts.split(",") if arguments.hosts else []
    try:
        config = config_of(os.environ, hosts, arguments.rank)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return subprocess.call(command, env={**os.environ, "TF_CONFIG": config})


def local_configs(processes: int) -> list[str]:
    """A TF_CONFIG for each of several workers on this machine, with ports that are free now."""
    return configs([f"127.0.0.1:{port}" for port in _free_ports(processes)])


def configs(addresses: Sequence[str]) -> list[str]:
    """A TF_CONFIG for each worker."""
    cluster = {"worker": list(addresses)}
    return [
        json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}}) for index in range(len(addresses))
    ]


def config_of(environ: Mapping[str, str], hosts: Sequence[str], rank: int | None) -> str:
    """The TF_CONFIG of this process, from what a scheduler says, or from a list of hosts and a rank.

    Raises:
        ValueError: neither says which worker this is, or which others there are.
    """
    if not hosts and "SLURM_STEP_NODELIST" in environ:
        return _config_of_slurm()
    if rank is None:
        rank = next((int(environ[name]) for name in RANKS if name in environ), None)
    if not hosts or rank is None or not 0 <= rank < len(hosts):
        raise ValueError(
            "Expected `--processes N` for workers on this machine, or `--hosts a,b` with the rank of this one, by "
            f"`--rank` or as mpirun says it, or a SLURM step. Received: hosts={list(hosts)}, rank={rank}. "
            "For instance `python -m multigpu launch --hosts 10.0.0.1,10.0.0.2 --rank 0 train.py`."
        )
    seen: dict[str, int] = {}
    addresses = []
    for host in hosts:
        name, _, port = host.partition(":")
        addresses.append(f"{name}:{port or PORT + seen.get(name, 0)}")
        seen[name] = seen.get(name, 0) + 1
    return configs(addresses)[rank]


def _config_of_slurm() -> str:
    import tensorflow as tf  # only here: the workers import it anyway, the launcher of one machine need not

    tasks = int(os.environ["SLURM_STEP_NUM_TASKS"])
    # as many "GPUs" as tasks, and hands off: which GPUs a task has is SLURM's to say
    resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
        port_base=PORT, gpus_per_node=tasks, gpus_per_task=1, auto_set_gpu=False
    )
    addresses = resolver.cluster_spec().as_dict()["worker"]
    return configs(addresses)[int(os.environ["SLURM_PROCID"])]


def _run_all(environments: Sequence[dict[str, str]], command: Sequence[str]) -> int:
    """Runs the command in every environment; when one fails, the others have a while to end by themselves."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the workers as well
    workers = [subprocess.Popen(command, env=environment) for environment in environments]
    try:
        return _wait(workers)
    except KeyboardInterrupt:  # which they have got as well
        return _wait(workers)
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.kill()
            worker.wait()
        signal.signal(signal.SIGTERM, before)


def _wait(workers: Sequence[subprocess.Popen]) -> int:
    failed, since = 0, 0.0
    while any(worker.poll() is None for worker in workers):
        if not failed:
            failed, since = next((worker.returncode for worker in workers if worker.poll()), 0), time.monotonic()
        if failed and time.monotonic() - since > LEFT_SECONDS:
            break
        time.sleep(0.05)
    failed = failed or next((worker.returncode for worker in workers if worker.returncode), 0)
    return 128 - failed if failed < 0 else failed  # as a shell says it: 128 and the number of the signal


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
