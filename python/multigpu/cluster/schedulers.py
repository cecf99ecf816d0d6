"""Schedulers: which task this is, and which others there are, as SLURM or MPI say it in variables."""

import os
import re
import warnings
from collections.abc import Mapping, Sequence

from multigpu.cluster.description import configs

PORT = 2222  # of the first worker of a machine
RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")  # as Open MPI, PMIx and MPICH name them
SIZES = {
    "SLURM_STEP_NUM_TASKS": "`srun python -m multigpu launch train.py`",
    "OMPI_COMM_WORLD_SIZE": "`mpirun ... python -m multigpu launch --hosts a,b train.py`",
    "PMI_SIZE": "`mpirun ... python -m multigpu launch --hosts a,b train.py`",
}


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

    tasks, rank = int(os.environ["SLURM_STEP_NUM_TASKS"]), int(os.environ["SLURM_PROCID"])
    # as many "GPUs" as tasks, and hands off: which GPUs a task has is SLURM's to say
    resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
        port_base=PORT, gpus_per_node=tasks, gpus_per_task=1, auto_set_gpu=False
    )
    # TensorFlow sorts by letters, which puts n10 before n9
    addresses = sorted(resolver.cluster_spec().as_dict()["worker"], key=_by_numbers)
    host, here = addresses[rank].rpartition(":")[0], os.environ.get("SLURMD_NODENAME")
    if here not in (None, host):
        raise ValueError(
            "Expected the tasks of the step one node after the other, in the order of the nodes' names. Received: task "
            f"{rank} on {here} rather than on {host}. Use `srun --distribution=block`; or pass `--hosts` in the order "
            "of the tasks, and `--rank $SLURM_PROCID`."
        )
    return configs(addresses)[rank]


def _by_numbers(address: str) -> list[tuple[int, str]]:
    """What puts n9 before n10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", address) if part]


def warn_of_tasks_apart(environ: Mapping[str, str]) -> None:
    """Says that the tasks of a scheduler train apart, where nothing tells that this is wanted; TF_CONFIG does."""
    if "TF_CONFIG" in environ:
        return
    for name, launch in SIZES.items():
        tasks = environ.get(name, "1")
        if tasks.isdecimal() and int(tasks) > 1:
            warnings.warn(
                f"This is one of {tasks} tasks ({name}), which train apart, each a model of its own on GPUs that it "
                f"sees. To train one model together, start them with {launch}; or set TF_CONFIG='{{}}', and nothing "
                "is said.",
                stacklevel=4,  # where `multi_gpu_model()` is called
            )
            return
