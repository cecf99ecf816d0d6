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
    from multigpu.engines.tensorflow.names import *  # noqa: F403  # the file has the names of an engine, and no other

ENGINES = ("tensorflow", "jax")


def __getattr__(name: str) -> Any:
    """Return a name of the engine. The first use of one imports them all."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(importlib.import_module(f"{__name__}.{_backend()}.names"), name)
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
