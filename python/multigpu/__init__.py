"""Multi-GPU training for Keras: one call, the numbers of one device, and the template's plain file on disk."""

from multigpu.cluster.start import join, join_cluster
from multigpu.device_scope import on_device
from multigpu.devices import available_gpus, simulate_gpus
from multigpu.estimation import estimate
from multigpu.files.hdf5_models import clean_parallel_hdf5, load_model_hdf5, save_model_hdf5
from multigpu.files.hdf5_weights import load_model_weights_hdf5, save_model_weights_hdf5
from multigpu.history_plot import plot_history
from multigpu.home import bring_home
from multigpu.measuring import measure
from multigpu.old_names.restore import restore_old_names
from multigpu.replicate import multi_gpu_model

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
__version__ = "0.1.0"
join()  # before TensorFlow starts, where TF_CONFIG describes several machines
