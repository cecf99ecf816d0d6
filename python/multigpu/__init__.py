"""Multi-GPU training for Keras: one call, the numbers of one device, and plain files of your model."""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from multigpu.base.version import __version__ as __version__

if TYPE_CHECKING:
    from multigpu.cluster.lost import WorkerLostError as WorkerLostError
    from multigpu.engines import join_cluster as join_cluster
    from multigpu.engines import on_device as on_device
    from multigpu.keras2.restore import restore_old_names as restore_old_names
    from multigpu.model.batch_norm import synchronize_batch_norm as synchronize_batch_norm
    from multigpu.model.bring_home import bring_home as bring_home
    from multigpu.model.devices import available_gpus as available_gpus
    from multigpu.model.devices import simulate_gpus as simulate_gpus
    from multigpu.model.replicate import multi_gpu_model as multi_gpu_model
    from multigpu.plan.plan import TooFewGPUsError as TooFewGPUsError
    from multigpu.profiling.estimate import estimate as estimate
    from multigpu.profiling.measure import measure as measure
    from multigpu.profiling.plot_history import plot_history as plot_history
    from multigpu.saving.file_errors import UntrustedFileError as UntrustedFileError
    from multigpu.saving.hdf5_models import clean_parallel_hdf5 as clean_parallel_hdf5
    from multigpu.saving.hdf5_models import load_model_hdf5 as load_model_hdf5
    from multigpu.saving.hdf5_models import save_model_hdf5 as save_model_hdf5
    from multigpu.saving.hdf5_weights import load_model_weights_hdf5 as load_model_weights_hdf5
    from multigpu.saving.hdf5_weights import save_model_weights_hdf5 as save_model_weights_hdf5

MODULES = {  # public name → where it is; imported at first use, because TensorFlow takes seconds
    "TooFewGPUsError": "plan.plan",
    "UntrustedFileError": "saving.file_errors",
    "WorkerLostError": "cluster.lost",
    "available_gpus": "model.devices",
    "bring_home": "model.bring_home",
    "clean_parallel_hdf5": "saving.hdf5_models",
    "estimate": "profiling.estimate",
    "join_cluster": "engines",
    "load_model_hdf5": "saving.hdf5_models",
    "load_model_weights_hdf5": "saving.hdf5_weights",
    "measure": "profiling.measure",
    "multi_gpu_model": "model.replicate",
    "on_device": "engines",
    "plot_history": "profiling.plot_history",
    "restore_old_names": "keras2.restore",
    "save_model_hdf5": "saving.hdf5_models",
    "save_model_weights_hdf5": "saving.hdf5_weights",
    "simulate_gpus": "model.devices",
    "synchronize_batch_norm": "model.batch_norm",
}
__all__ = list(MODULES)


def __getattr__(name: str) -> Any:
    """Return a public name, which is imported at its first use."""
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(importlib.import_module(f"{__name__}.{MODULES[name]}"), name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted([*MODULES, "__version__"])


is_command = getattr(sys, "argv", [])[:1] == ["-m"]  # `python -m multigpu`: the command joins where it has to
r_asks_first = hasattr(sys, "multigpu_waits")  # R has requests that fix devices, and joins with them: see r/start.py
if "TF_CONFIG" in os.environ and not is_command and not r_asks_first:
    importlib.import_module("multigpu.engines").join()  # before TensorFlow starts
