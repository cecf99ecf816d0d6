"""Engines: each spreads a model over devices, for one backend of Keras, under the same names.

| name | what it is |
|---|---|
| `visible_devices`, `present_device`, `device_table`, `simulate`, `hide_gpus` | which devices there are |
| `join`, `join_cluster`, `joined_cluster`, `synchronize_workers` | the workers that train together |
| `place_weights`, `move`, `holders`, `on_one_device` | where variables are |
| `Training`, `MultiWorkerTraining` | a model's calls, steps and verbs, spread over the devices |
| `check_rows` | refuses, by name, what the engine cannot split |
| `on_device`, `part_devices` | parts of one model on several devices |
| `fit_arguments`, `arguments_with_batches`, `batches_without_lookahead` | arrays and functions as batches |
| `estimate_devices`, `estimate_layers` | what a model takes of each device, and each of its layers |
| `OUT_OF_MEMORY`, `start_with_one_thread` | limits within which files are read |

The backend of Keras selects the engine, once.
"""

import importlib
from typing import TYPE_CHECKING, Any

from multigpu.base.refusal import refuse

if TYPE_CHECKING:  # all engines have the same types as this one
    from multigpu.engines.tensorflow.batches.fit_arguments import arguments_with_batches as arguments_with_batches
    from multigpu.engines.tensorflow.batches.fit_arguments import fit_arguments as fit_arguments
    from multigpu.engines.tensorflow.batches.without_lookahead import (
        batches_without_lookahead as batches_without_lookahead,
    )
    from multigpu.engines.tensorflow.cluster.join import join as join
    from multigpu.engines.tensorflow.cluster.join import join_cluster as join_cluster
    from multigpu.engines.tensorflow.devices.gpu_table import device_table as device_table
    from multigpu.engines.tensorflow.devices.gpu_table import hide_gpus as hide_gpus
    from multigpu.engines.tensorflow.devices.logical import present_device as present_device
    from multigpu.engines.tensorflow.devices.logical import simulate as simulate
    from multigpu.engines.tensorflow.devices.logical import visible_devices as visible_devices
    from multigpu.engines.tensorflow.multi_worker.handshake import synchronize_workers as synchronize_workers
    from multigpu.engines.tensorflow.multi_worker.training import MultiWorkerTraining as MultiWorkerTraining
    from multigpu.engines.tensorflow.parallel.joined_cluster import joined_cluster as joined_cluster
    from multigpu.engines.tensorflow.parallel.on_device import on_device as on_device
    from multigpu.engines.tensorflow.parallel.row_checks import check_rows as check_rows
    from multigpu.engines.tensorflow.parallel.training import Training as Training
    from multigpu.engines.tensorflow.profiling.device_estimates import estimate_devices as estimate_devices
    from multigpu.engines.tensorflow.profiling.layer_estimates import estimate_layers as estimate_layers
    from multigpu.engines.tensorflow.profiling.one_device import on_one_device as on_one_device
    from multigpu.engines.tensorflow.weights.home_parts import part_devices as part_devices
    from multigpu.engines.tensorflow.weights.limits import OUT_OF_MEMORY as OUT_OF_MEMORY
    from multigpu.engines.tensorflow.weights.limits import start_with_one_thread as start_with_one_thread
    from multigpu.engines.tensorflow.weights.move import holders as holders
    from multigpu.engines.tensorflow.weights.move import move as move
    from multigpu.engines.tensorflow.weights.owners import place_weights as place_weights

ENGINES = ("tensorflow", "jax")


def __getattr__(name: str) -> Any:
    """Return a name of the engine, imported at its first use."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    engine = importlib.import_module(f"{__name__}.{_backend()}")
    if name not in engine.MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(importlib.import_module(f"{engine.__name__}.{engine.MODULES[name]}"), name)
    return globals()[name]


def _backend() -> str:
    """Return the backend of Keras, if there is an engine for it.

    Raises:
        ValueError: there is no engine for the backend.
    """
    import keras  # imported here, because commands name no engine

    backend = keras.backend.backend()
    if backend not in ENGINES:
        raise refuse(
            "Keras to run on TensorFlow or JAX",
            f"backend {backend!r}",
            "Set the environment variable KERAS_BACKEND=tensorflow or KERAS_BACKEND=jax before the first `import "
            "keras`.",
        )
    return backend
