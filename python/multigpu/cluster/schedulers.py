"""Read from the variables of SLURM or MPI which task this process is, and which others there are."""

import functools
import itertools
import re
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence

from multigpu.base.refusal import refuse
from multigpu.cluster.addresses import addresses_of
from multigpu.cluster.config import Cluster, configs, described, too_late
from multigpu.cluster.slurm_nodes import nodes_of, tasks_of

PORTS, TASKS = range(15_000, 31_000), 16  # first port of workers, and number of ports of a job on a host
SLURM = ("SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE", "SLURM_PROCID")
MPI = (  # rank, number of tasks, and number of tasks on this host, as Open MPI and MPICH name them
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
)
RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
SIZES = {
    "OMPI_COMM_WORLD_SIZE": "`mpirun ... python -m multigpu launch --hosts a,b train.py`",
    "PMI_SIZE": "`mpirun ... python -m multigpu launch --hosts a,b train.py`",
    "SLURM_STEP_NUM_TASKS": "`srun python train.py` rather than in a shell",
}


def known_here(environ: Mapping[str, str]) -> tuple[str, Cluster | None]:
    """Return the source and the cluster: TF_CONFIG, which has priority even if it is `{}`, or a scheduler's tasks.

    Raises:
        ValueError: a scheduler has started several tasks, but its variables do not contain the addresses of the others.
    """
    if "TF_CONFIG" in environ:
        return "TF_CONFIG describes", described(environ)
    config = config_of_tasks(environ)
    if config is None:
        check_no_task_is_left_out(environ)
        return "", None
    cluster = described({**environ, "TF_CONFIG": config}, "the variables of SLURM or MPI")
    return "variables of SLURM or MPI describe", cluster


def config_of_tasks(environ: Mapping[str, str]) -> str | None:
    """Return the TF_CONFIG of this task if a scheduler has started it and names the others. Otherwise None.

    Raises:
        ValueError: the tasks cannot be located from SLURM's variables, or the variables contradict each other.
    """
    of_mpi = next((names for names in MPI if all(name in environ for name in names)), None)
    if of_mpi:  # also within a step of SLURM, which belongs to mpirun's helpers
        rank, size, here = (_number(environ, name) for name in of_mpi)
        return _config_of_one_host(rank, size, environ) if size == here > rank else None
    if all(name in environ for name in SLURM) and "SLURM_PTY_PORT" not in environ:  # a shell is its step's only task
        return _config_of_slurm(environ)
    return None


def config_of(environ: Mapping[str, str], hosts: Sequence[str], rank: int | None) -> str:
    """Return the TF_CONFIG of this process, from a list of hosts and a rank, or from a scheduler's variables.

    Raises:
        ValueError: neither of them tells which worker this is and which others there are, or their values are not
            understood.
    """
    if not hosts and (config := config_of_tasks(environ)):
        return config
    if rank is None:
        rank = next((_number(environ, name) for name in RANKS if name in environ), None)
    if not hosts or rank is None or not 0 <= rank < len(hosts):
        raise refuse(
            "`--processes N` for workers on this machine, or `--hosts a,b` with this worker's rank, from 0 to "
            "the number of hosts minus 1, from `--rank` or from mpirun, or a SLURM step",
            f"hosts={list(hosts)}, rank={rank}",
            "For instance `python -m multigpu launch --hosts 10.0.0.1,10.0.0.2 --rank 0 train.py`.",
        )
    return configs(addresses_of(hosts))[rank]


def _config_of_one_host(rank: int, size: int, environ: Mapping[str, str]) -> str:
    """Return the TF_CONFIG of a task that mpirun started. mpirun does not pass the names of other hosts."""
    return configs([f"127.0.0.1:{port}" for port in itertools.islice(_ports(environ), size)])[rank]


def _config_of_slurm(environ: Mapping[str, str]) -> str:
    try:
        addresses, rank = _addresses_in_step(environ), _number(environ, "SLURM_PROCID")
        if not rank < len(addresses):
            raise ValueError(f"there is no task {rank}")
    except ValueError as error:
        received = ", ".join(f"{name}={environ[name]}" for name in SLURM)
        raise refuse(
            "SLURM's variables to agree with each other",
            f"{received}: {error}",
            "Start the tasks with `srun`; or set TF_CONFIG='{}' to train alone.",
        ) from error
    if environ.get("SLURM_DISTRIBUTION", "").startswith("cyclic"):  # the first task of each node, then the second
        addresses.sort(key=lambda address: int(address.rpartition(":")[2]))
    host, here = addresses[rank].rpartition(":")[0], environ.get("SLURMD_NODENAME")
    if here not in (None, host):
        raise refuse(
            "the tasks of the step in the order of the nodes' names, block after block or cyclic",
            f"task {rank} on {here} rather than on {host}",
            "Use `srun --distribution=block`; or start each with `python -m multigpu launch --rank $SLURM_PROCID "
            "--hosts`, in the order of the tasks; or set TF_CONFIG='{}' to train a separate model in each task.",
        )
    return configs(addresses)[rank]


def _addresses_in_step(environ: Mapping[str, str]) -> list[str]:
    """Return the addresses of the tasks, node after node. The ports of each node begin with the same one."""
    nodes, tasks = nodes_of(environ["SLURM_STEP_NODELIST"]), tasks_of(environ["SLURM_STEP_TASKS_PER_NODE"])
    if len(nodes) != len(tasks) or sum(tasks) != _number(environ, "SLURM_STEP_NUM_TASKS"):
        raise ValueError(f"{len(nodes)} nodes, and {sum(tasks)} tasks on {len(tasks)}")
    of_nodes = [zip(range(count), _ports(environ), strict=False) for count in tasks]
    addresses = [f"{node}:{port}" for node, places in zip(nodes, of_nodes, strict=True) for _, port in places]
    return sorted(addresses, key=_by_numbers)


def _ports(environ: Mapping[str, str]) -> Iterator[int]:
    """Return the ports of a host, one for each task: reserved by `srun --resv-ports`, or others for each job."""
    spans = re.findall(r"(\d{1,5})(?:-(\d{1,5}))?", environ.get("SLURM_STEP_RESV_PORTS", ""))
    reserved = [port for first, last in spans for port in range(int(first), int(last or first) + 1)]
    return itertools.chain(reserved, itertools.count(reserved[-1] + 1 if reserved else _first_port(environ)))


def _first_port(environ: Mapping[str, str]) -> int:
    # jobs and steps with neighbouring numbers run at the same time, and never get the same port
    step = 37 * _number(environ, "SLURM_JOB_ID") + _number(environ, "SLURM_STEP_ID")
    job = step + zlib.crc32(environ.get("PMIX_NAMESPACE", "").encode())
    return PORTS[job % (len(PORTS) // TASKS) * TASKS]


def _number(environ: Mapping[str, str], name: str) -> int:
    """Return the number in a scheduler's variable; 0 if it is not set."""
    text = environ.get(name, "0")
    if not re.fullmatch("[0-9]{1,10}", text):
        raise refuse(
            f"{name} to be a whole number from 0, as a scheduler sets it",
            f"{text!r}",
            "Unset it; or set TF_CONFIG='{}' to train alone.",
        )
    return int(text)


def _by_numbers(address: str) -> list[tuple[int, str]]:
    """Return a sort key that puts n9 before n10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", address) if part]


def check_no_task_is_left_out(environ: Mapping[str, str]) -> None:
    """Raise a ValueError if a scheduler has started several tasks and no variable names the others.

    Raises:
        ValueError: the message explains how to start the tasks instead.
    """
    if name := _counted_in(environ):
        raise refuse(
            "environment variables with the addresses of the other tasks",
            f"this is one of {environ[name]} tasks ({name}), and no variable gives the addresses of all others",
            f"Start them with {SIZES[name]}; or set TF_CONFIG='{{}}' for each to train a model of its own.",
        )


def check_alone(environ: Mapping[str, str], engine: str) -> None:
    """Raise a ValueError if this process has not joined the workers of TF_CONFIG.

    Print one line on stderr, once, if a scheduler has started several tasks without TF_CONFIG. This may be intended:
    tasks may be separate trainings, as in a sweep.

    Raises:
        ValueError: TF_CONFIG is not understood, or was read too late.
    """
    cluster = described(environ)
    if cluster is not None:
        raise too_late(cluster, engine)
    name = _counted_in(environ)
    if name and "TF_CONFIG" not in environ:
        cure = (
            "call `join_cluster()` at the top of the script" if _can_join(environ) else f"start them with {SIZES[name]}"
        )
        _say_once(
            f"multigpu: this is one of {environ[name]} tasks ({name}), and trains a model of its own. To train one "
            f"model together, {cure}; TF_CONFIG='{{}}' silences this line.\n"
        )


@functools.cache
def _say_once(line: str) -> None:
    sys.stderr.write(line)


def _can_join(environ: Mapping[str, str]) -> bool:
    """Return whether `join_cluster()` finds the other tasks, or raises an error that explains why not."""
    try:
        return config_of_tasks(environ) is not None
    except ValueError:
        return True


def _counted_in(environ: Mapping[str, str]) -> str:
    """Return the variable in which a scheduler has put the number of tasks, if there are several."""
    return next((name for name in SIZES if re.fullmatch("0*([2-9]|[1-9][0-9]{1,8})", environ.get(name, ""))), "")
