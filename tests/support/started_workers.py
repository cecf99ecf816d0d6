"""Workers on JAX, started as their users start them: each trains as `trained_by_workers.py` says."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from multigpu.cli.launch import free_ports, local_configs

SCRIPT = Path(__file__).parents[1] / "engines" / "jax" / "trained_by_workers.py"


def one(folder, data, workers, **environ):
    """The one process that does what so many workers do together."""
    return _start([sys.executable], folder, data, workers, environ)


def started(how, folder, data, workers, **environ):
    """So many workers, or what starts them."""
    if how == "launch":
        launch = [sys.executable, "-m", "multigpu", "launch", "--processes", str(workers)]
        return [_start(launch, folder, data, workers, environ)]
    port = free_ports(1)[0]
    told = {
        "TF_CONFIG": [{"TF_CONFIG": config} for config in local_configs(workers)],
        "srun": [
            {
                "SLURM_STEP_NODELIST": "localhost",
                "SLURM_STEP_TASKS_PER_NODE": str(workers),
                "SLURM_STEP_NUM_TASKS": str(workers),
                "SLURM_STEP_RESV_PORTS": f"{port}-{port + workers - 1}",
                "SLURM_PROCID": str(rank),
            }
            for rank in range(workers)
        ],
        "mpirun": [
            {
                "OMPI_COMM_WORLD_SIZE": str(workers),
                "OMPI_COMM_WORLD_LOCAL_SIZE": str(workers),
                "OMPI_COMM_WORLD_RANK": str(rank),
                "PMIX_NAMESPACE": str(os.getpid()),
            }
            for rank in range(workers)
        ],
    }
    return [_start([sys.executable], folder, data, workers, {**environ, **each}) for each in told[how]]


def _start(command, folder, data, workers, environ):
    environment = {**os.environ, "KERAS_BACKEND": "jax", "TF_CPP_MIN_LOG_LEVEL": "2", **environ}
    command = [*command, str(SCRIPT), str(folder), data, str(workers)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(processes, timeout=500):
    """Exit status and output of each."""
    try:
        printed = [process.communicate(timeout=timeout)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, text) for process, text in zip(processes, printed, strict=True)]


def values(folder, name):
    """What a process ended with."""
    stored = np.load(f"{folder}/{name}.npz")
    return [stored[each] for each in stored.files]
