"""Multi-GPU training for Keras: one call, the numbers of one device, and the template's plain file on disk."""

from multigpu.devices import available_gpus, simulate_gpus
from multigpu.home import bring_home
from multigpu.replicate import multi_gpu_model

__all__ = ["available_gpus", "bring_home", "multi_gpu_model", "simulate_gpus"]
__version__ = "0.1.0"
