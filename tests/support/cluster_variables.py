"""Variables of the environment that describe a cluster, as a user or a scheduler sets them."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

TWO_WORKERS = {"worker": ["a:1", "b:2"]}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "3"}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "3", "MPI_LOCALNRANKS": "3"}
SLURM = {  # a step on two nodes, of which this is the third task
    "SLURM_STEP_NODELIST": "n[9-10]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_PROCID": "2",
}


def tf_config(cluster: Any = TWO_WORKERS, kind: Any = "worker", index: Any = 0, **environ: str) -> dict[str, str]:
    """An environment with TF_CONFIG, and more."""
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}}), **environ}


def set_variables(monkeypatch: pytest.MonkeyPatch, environ: Mapping[str, str]) -> None:
    """Sets variables for one test."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
