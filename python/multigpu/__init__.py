"""Multi-GPU training for Keras: one call, the numbers of one device, and the template's plain file on disk."""

from multigpu.cluster.join import join, join_cluster
from multigpu.devices.logical import available_gpus, simulate_gpus
from multigpu.keras2.restore import restore_old_names
from multigpu.parallel.bring_home import bring_home
from multigpu.parallel.on_device import on_device
from multigpu.profiling.estimate import estimate
from multigpu.profiling.measure import measure
from multigpu.profiling.plot_history import plot_history
from multigpu.replicate import multi_gpu_model
from multigpu.saving.hdf5_models import clean_parallel_hdf5, load_model_hdf5, save_model_hdf5
from multigpu.saving.hdf5_weights import load_model_weights_hdf5, save_model_weights_hdf5
from multigpu.version import __version__ as __version__

__all__ = [
    "available_gpus",
    "bring_home",
    "clean_parallel_hdf5",
    "estimate",
    "join_cluster",
    "load_model_hdf5",
    "load_model_weights_hdf5",
    "measure",
    "multi_gpu_model",
    "on_device",
    "plot_history",
    "restore_old_names",
    "save_model_hdf5",
    "save_model_weights_hdf5",
    "simulate_gpus",
]

join()  # before TensorFlow starts, where TF_CONFIG describes several machines
