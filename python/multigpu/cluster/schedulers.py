"""Schedulers: which task this is, and which others there are, as SLURM or MPI say it in variables."""

import functools
import re
import sys
import zlib
from collections.abc import Mapping, Sequence

from multigpu.cluster.addresses import addresses_of
from multigpu.cluster.config import configs

PORTS, TASKS = range(15_000, 31_000), 16  # of workers that a scheduler has started, and how many of one job on a host
SLURM = ("SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE", "SLURM_PROCID")
MPI = (  # rank, number of tasks, and how many of them are on this host, as Open MPI and MPICH name them
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
)
RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
SIZES = {
    "OMPI_COMM_WORLD_SIZE": "`mpirun ... python -m multigpu launch --hosts a,b train.py`",
    "PMI_SIZE": "`mpirun ... python -m multigpu launch --hosts a,b train.py`",
    "SLURM_STEP_NUM_TASKS": "`srun python train.py` rather than in a shell",
}


def config_of_tasks(environ: Mapping[str, str]) -> str | None:
    """The TF_CONFIG of this task, where a scheduler has started it and says where the others are, or else None.

    Raises:
        ValueError: SLURM has not put the tasks where its variables let them be found, or variables do not agree.
    """
    of_mpi = next((names for names in MPI if all(name in environ for name in names)), None)
    if of_mpi:  # also within a step of SLURM, which is that of mpirun's helpers
        rank, size, here = (_number(environ, name) for name in of_mpi)
        return _config_of_one_host(rank, size, environ) if size == here > rank else None
    if all(name in environ for name in SLURM) and "SLURM_PTY_PORT" not in environ:  # a shell is alone in its step
        return _config_of_slurm(environ)
    return None


def config_of(environ: Mapping[str, str], hosts: Sequence[str], rank: int | None) -> str:
    """The TF_CONFIG of this process, from a list of hosts and a rank, or else from what a scheduler says.

    Raises:
        ValueError: neither says which worker this is, or which others there are, or what they say is not understood.
    """
    if not hosts and (config := config_of_tasks(environ)):
        return config
    if rank is None:
        rank = next((_number(environ, name) for name in RANKS if name in environ), None)
    if not hosts or rank is None or not 0 <= rank < len(hosts):
        raise ValueError(
            "Expected `--processes N` for workers on this machine, or `--hosts a,b` with the rank of this one, by "
            f"`--rank` or as mpirun says it, or a SLURM step. Received: hosts={list(hosts)}, rank={rank}. "
            "For instance `python -m multigpu launch --hosts 10.0.0.1,10.0.0.2 --rank 0 train.py`."
        )
    return configs(addresses_of(hosts))[rank]


def _config_of_one_host(rank: int, size: int, environ: Mapping[str, str]) -> str:
    """For mpirun, which tells no task the names of other hosts."""
    first = _first_port(environ)
    return configs([f"127.0.0.1:{first + number}" for number in range(size)])[rank]


def _config_of_slurm(environ: Mapping[str, str]) -> str:
    try:
        addresses, rank = _addresses_in_step(environ), _number(environ, "SLURM_PROCID")
        if not rank < len(addresses):
            raise ValueError(f"there is no task {rank}")
    except (ValueError, RuntimeError) as error:  # the resolver raises both
        received = ", ".join(f"{name}={environ[name]}" for name in SLURM)
        raise ValueError(
            f"Expected variables of a SLURM step that agree. Received: {received}: {error}. Start the "
            "tasks with `srun`; or set TF_CONFIG='{}' to train alone."
        ) from error
    if environ.get("SLURM_DISTRIBUTION", "").startswith("cyclic"):  # the first task of each node, then the second
        addresses.sort(key=_port)
    host, here = addresses[rank].rpartition(":")[0], environ.get("SLURMD_NODENAME")
    if here not in (None, host):
        raise ValueError(
            "Expected the tasks of the step in the order of the nodes' names, block after block or cyclic. Received: "
            f"task {rank} on {here} rather than on {host}. Use `srun --distribution=block`; or start each with `python "
            "-m multigpu launch --rank $SLURM_PROCID --hosts`, in the order of the tasks; or set TF_CONFIG='{}' to "
            "train apart."
        )
    return configs(addresses)[rank]


def _addresses_in_step(environ: Mapping[str, str]) -> list[str]:
    """Where the tasks listen, node after node, as TensorFlow reads it in `os.environ`."""
    import tensorflow as tf  # only here: the workers import it anyway, the launcher of one machine need not

    tasks = _number(environ, "SLURM_STEP_NUM_TASKS")
    # as many "GPUs" as tasks, and hands off: which GPUs a task has is SLURM's to say
    resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
        port_base=_first_port(environ), gpus_per_node=tasks, gpus_per_task=1, auto_set_gpu=False
    )
    # TensorFlow sorts by letters, which puts n10 before n9
    return sorted(resolver.cluster_spec().as_dict()["worker"], key=_by_numbers)


def _first_port(environ: Mapping[str, str]) -> int:
    """Of a host: what `srun --resv-ports` has reserved, or else another one for each job, as jobs share hosts."""
    if reserved := re.match(r"\d+", environ.get("SLURM_STEP_RESV_PORTS", "")):
        return int(reserved[0])
    # neighbours among jobs and steps run at the same time, and never get the same
    step = 37 * _number(environ, "SLURM_JOB_ID") + _number(environ, "SLURM_STEP_ID")
    job = step + zlib.crc32(environ.get("PMIX_NAMESPACE", "").encode())
    return PORTS[job % (len(PORTS) // TASKS) * TASKS]


def _number(environ: Mapping[str, str], name: str) -> int:
    """Return the number in a scheduler's variable; 0 if it is not set."""
    text = environ.get(name, "0")
    if not re.fullmatch("[0-9]{1,10}", text):
        raise ValueError(
            f"Expected {name} to be a whole number from 0, as a scheduler sets it. Received: {text!r}. Unset it; "
            "or set TF_CONFIG='{}' to train alone."
        )
    return int(text)


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _by_numbers(address: str) -> list[tuple[int, str]]:
    """Return a sort key that puts n9 before n10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", address) if part]


def check_no_task_is_left_out(environ: Mapping[str, str]) -> None:
    """Refuses to join where a scheduler has started several tasks, and no variable says where the others are.

    Raises:
        ValueError: the message says how to start the tasks instead.
    """
    if name := _counted_in(environ):
        raise ValueError(
            f"Expected variables that say where the other tasks are. Received: this is one of {environ[name]} tasks "
            f"({name}), and no variable says where all the others are. Start them with {SIZES[name]}; or set "
            "TF_CONFIG='{}' for each to train a model of its own."
        )


def say_that_tasks_train_apart(environ: Mapping[str, str]) -> None:
    """One line on stderr, once, where a scheduler has started several tasks and TF_CONFIG does not say what is wanted.

    It may well be wanted: tasks may be trainings of their own, as in a sweep.
    """
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
    """Return whether `join_cluster()` finds the other tasks, or says why it does not."""
    try:
        return config_of_tasks(environ) is not None
    except ValueError:
        return True


def _counted_in(environ: Mapping[str, str]) -> str:
    """The variable in which a scheduler says how many tasks it has started, where there are several."""
    return next((name for name in SIZES if re.fullmatch("0*([2-9]|[1-9][0-9]{1,8})", environ.get(name, ""))), "")
