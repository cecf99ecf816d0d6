"""Write and read how a model in an HDF5 file was compiled, and the state of its optimizer."""

import inspect
import re
from typing import Any

import h5py
import keras
import numpy as np

from multigpu.private_api.warn_caller import warn
from multigpu.saving.allowed_objects import scope_of
from multigpu.saving.weight_lists import listed_names
from multigpu.saving.weight_matching import assign

RESOLVED_BY_COMPILE = ("accuracy", "acc", "crossentropy", "ce")  # chosen by the shape of the output
KEPT = ("loss_weights", "run_eagerly", "steps_per_execution", "jit_compile", "auto_scale_loss")


def loadable(training_config: dict[str, Any], compiled_with: dict[str, Any]) -> dict[str, Any]:
    """Return losses under names that Keras finds again: it writes "mse" and then looks for a function of that name.

    A function of the user's own that has the name of one of Keras is written as a function.

    Args:
        training_config: what Keras has written.
        compiled_with: the arguments of `compile()`.
    """
    functions = {f.__name__: f for f in keras.tree.flatten(compiled_with.get("loss")) if inspect.isfunction(f)}

    def full_name(part: Any) -> Any:
        if not isinstance(part, str):
            return part if isinstance(part, dict) and "class_name" in part else None  # None: look into it
        try:
            found = keras.losses.get(part)
        except ValueError:  # a custom loss
            return part
        if functions.get(part, found) is not found:
            return keras.saving.serialize_keras_object(functions[part])
        return found.__name__ if inspect.isfunction(found) else part

    return {**training_config, "loss": keras.tree.traverse(full_name, training_config.get("loss"))}


def compile_arguments_of(training_config: dict[str, Any], custom_objects: dict[str, Any] | None) -> dict[str, Any]:
    """Return the arguments to compile a loaded model with, as it was when it was saved.

    Raises:
        ValueError: a loss, metric or optimizer is unknown.
    """
    with scope_of(custom_objects):
        arguments = {name: training_config[name] for name in KEPT if training_config.get(name) is not None}
        arguments["optimizer"] = _optimizer(training_config["optimizer_config"])
        for name, module in (("loss", keras.losses), ("metrics", keras.metrics), ("weighted_metrics", keras.metrics)):
            arguments[name] = _restored(training_config.get(name), module)
    return arguments


def _restored(config: Any, module: Any) -> Any:
    """Return nested losses or metrics of `keras.losses` or `keras.metrics`."""
    if isinstance(config, str):
        return _known(config, module)
    if isinstance(config, dict) and "class_name" in config:
        restored = _of_keras_3(config)
        made = restored if isinstance(restored, str) else module.deserialize(restored)
        if isinstance(made, str):
            return _known(made, module)  # Keras returns a name that it does not know
        if not callable(made):
            raise ValueError(f"{made!r} is not a loss or metric.")
        return made
    if isinstance(config, dict):
        return {name: _restored(each, module) for name, each in config.items()}
    return [_restored(each, module) for each in config] if isinstance(config, list | tuple) else config


def _known(name: str, module: Any) -> Any:
    """Return the caller's object of a name, or the name itself if `compile()` will find it."""
    if name not in RESOLVED_BY_COMPILE and keras.saving.get_registered_object(name) is None:
        module.get(name)  # raises if there is none
    return keras.saving.get_registered_object(name) or name


def _of_keras_3(config: dict[str, Any]) -> Any:
    """Return the configuration of a loss or metric in the form of Keras 3. Keras 2 wrapped functions as metrics."""
    inner = config.get("config")
    if not isinstance(inner, dict):
        return config
    if config["class_name"] == "MeanMetricWrapper" and isinstance(inner.get("fn"), str):
        return inner["fn"]
    changed = {"reduction": "sum_over_batch_size"} if inner.get("reduction") == "auto" else {}
    return {**config, "config": {**inner, **changed}}


def _optimizer(config: dict[str, Any]) -> keras.Optimizer:
    """Make an optimizer from a configuration. Keras 2 prefixed the class, and wrote arguments that Keras 3 lacks."""
    name = re.sub("^(Custom|Experimental)>", "", str(config["class_name"]))
    known = getattr(keras.optimizers, name, None)
    is_registered = keras.saving.get_registered_object(config["class_name"]) is not None
    if is_registered or not inspect.isclass(known) or not isinstance(config.get("config"), dict):
        made = keras.optimizers.deserialize(config)
    else:
        takes = {*inspect.signature(known).parameters, *inspect.signature(keras.Optimizer).parameters}
        given = config["config"].items()
        kind: Any = known
        made = kind.from_config({key: value for key, value in given if key in takes or (key == "decay" and value)})
    if not isinstance(made, keras.Optimizer):
        raise ValueError(f"{made!r} is not an optimizer.")
    return made


# State of the optimizer ----------------------------------------------------------------------------------------------


def restore_optimizer(file: h5py.File, model: keras.Model) -> None:
    """Give a model's optimizer the state in a file, for the trainable weights.

    State that does not fit, as from an optimizer of Keras 2 that Keras 3 has changed, is skipped with a warning. The
    optimizer then starts with new state.
    """
    group = file.get("optimizer_weights")
    if not isinstance(group, h5py.Group):
        return
    names = listed_names(group, "weight_names")
    before = list(model.optimizer.variables)
    model.optimizer.build(model.trainable_variables)
    wanted = list(model.optimizer.variables)
    if any(name.endswith(":0") for name in names):  # Keras 2, which kept the learning rate elsewhere
        names = _in_order_of_keras_3(names)
        before, wanted = ([v for v in some if v.name != "learning_rate"] for some in (before, wanted))
    arrays = [group.get(name) for name in names]
    shapes = [getattr(array, "shape", None) for array in arrays]
    if len(shapes) == len(before) > 0 and np.all(np.asarray(arrays[0]) == 0):  # saved before the first step
        wanted = before
    if shapes != [tuple(variable.shape) for variable in wanted]:
        warn(
            f"Expected the state of the optimizer to have {len(wanted)} variables of the shapes that "
            f"{type(model.optimizer).__name__} has. Received {len(shapes)} of other shapes. The state is not "
            "loaded: training would start with a new optimizer, from the weights in the file."
        )
        return
    assign([(variable, np.asarray(array)) for variable, array in zip(wanted, arrays, strict=True)], model)


def _in_order_of_keras_3(names: list[str]) -> list[str]:
    """Return the names in Keras 3's order: steps, then slots by weight. Until 2.10, slots were sorted by kind."""
    steps = [name for name in names if name.rsplit("/", 1)[-1] in ("iter:0", "iteration:0", "iterations:0")]
    slots = [
        name for name in names if name not in steps and "learning_rate" not in name and not name.endswith("decay:0")
    ]
    by_weight: dict[str, list[str]] = {}
    for name in slots:
        by_weight.setdefault(name.rsplit("/", 1)[0] if _kind_comes_last(slots) else name, []).append(name)
    return [*steps, *(name for group in by_weight.values() for name in group)]


def _kind_comes_last(slots: list[str]) -> bool:
    """Return whether names are as until 2.10, "Adam/dense/kernel/m:0", and not "Adam/m/dense/kernel:0"."""
    return len({name.rsplit("/", 1)[-1] for name in slots} - {"m:0", "v:0", "vhat:0", "momentum:0", "rms:0"}) == 0
