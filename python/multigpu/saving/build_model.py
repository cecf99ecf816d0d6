"""Build a model from the configuration in an HDF5 file, without its weights. It may name only parts of models."""

import contextlib
import json
import math
import time
from collections.abc import Iterator
from typing import Any

import h5py
import keras

from multigpu.base.refusal import refuse
from multigpu.engines import OUT_OF_MEMORY
from multigpu.private_api.serialization import SafeModeScope
from multigpu.saving.allowed_objects import CodeInFile, only_allowed, scope_of
from multigpu.saving.file_errors import refused
from multigpu.saving.keras2_parallel_files import nested_config, nested_template
from multigpu.saving.layer_matching import listed_group
from multigpu.saving.legacy_config import model_from_legacy_config
from multigpu.saving.training_config import compile_arguments_of
from multigpu.saving.weight_lists import listed_layers

MAX_DEPTH = 200  # of a configuration: each nested model takes about five levels


class TooLong(ValueError):  # noqa: N818 (it names what happened)
    """Building the model took more time than is allowed."""


OUT_OF_LIMITS = (CodeInFile, TooLong, *OUT_OF_MEMORY)


def build(
    file: h5py.File,
    filepath: Any,
    custom_objects: dict[str, Any] | None,
    compile: bool,
    safe_mode: bool,
    max_seconds: float = math.inf,
) -> keras.Model:
    """Build and compile the model in a file, or the template in the file of an old parallel model.

    Raises:
        ValueError: the model cannot be built or compiled; it is larger than its weights; in safe mode, it names objects
            that are not parts of models, or contains code; or building takes too many seconds.
    """
    model_config, training_config = configurations(file, filepath)
    group = listed_group(file)
    if model_config is None or group is None:
        remedy = "Read weights with `load_model_weights_hdf5(model, filepath)`."
        raise refused(filepath, "which contains no model", remedy, "an HDF5 file of a whole model")
    layers = listed_layers(group)
    num_elements = sum(one.array.size for listed in layers.values() for one in listed)
    with safely(custom_objects, safe_mode, max_seconds):
        with _explained("that can be built", "Classes and functions of your own are passed as"):
            config = nested_config(model_config, nested_template(layers)) or model_config
            model = model_from_legacy_config(config, num_elements if safe_mode else None)
        if compile and training_config is not None:
            what = "Read it by `load_model_hdf5()` with `compile=False` and compile it, or pass the missing objects as"
            with _explained("that can be compiled as it was", what):
                model.compile(**compile_arguments_of(training_config, custom_objects))
    return model


def configurations(file: h5py.File, filepath: Any) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Return the configuration of the model, and the configuration of its `compile()`."""
    return _json(file, "model_config", filepath), _json(file, "training_config", filepath)


@contextlib.contextmanager
def safely(custom_objects: dict[str, Any] | None, safe_mode: bool, max_seconds: float) -> Iterator[None]:
    """Read configurations inside a `with` block under these limits."""
    end = time.thread_time() + max_seconds

    def check_time() -> None:
        if time.thread_time() > end:
            raise refuse(
                f"a model that is built within {max_seconds:g} s",
                "a model that takes longer",
                "Pass a larger `max_seconds`, or `safe_mode=False` if you trust the file.",
                TooLong,
            )

    allowed = only_allowed(check_time) if safe_mode else contextlib.nullcontext()
    with SafeModeScope(safe_mode), scope_of(custom_objects), allowed:
        yield


@contextlib.contextmanager
def _explained(expected: str, remedy: str) -> Iterator[None]:
    """Raise errors of Keras with what was expected. An error that the limits raise is passed on unchanged."""
    try:
        yield
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, OUT_OF_LIMITS):
                raise cause from None
            cause = cause.__cause__ or cause.__context__
        remedy = f"{remedy} `custom_objects={{name: object}}`."
        raise refuse(f"a model {expected}", f"this error: {error}".rstrip("."), remedy) from error


def _json(file: h5py.File, name: str, filepath: Any) -> Any:
    """Return an attribute that contains JSON. None if it is absent."""
    if name not in file.attrs:
        return None
    try:
        config = json.loads(file.attrs[name])
    except (ValueError, TypeError, RecursionError) as error:
        raise refused(filepath, f"whose {name!r} is not JSON ({error})", "Use another copy of it.") from error
    if not isinstance(config, dict):
        raise refused(filepath, f"whose {name!r} is not a configuration", "Use another copy of it.")
    if is_deeper_than(MAX_DEPTH, config):
        raise refused(filepath, f"whose {name!r} is nested more than {MAX_DEPTH} deep", "Use another copy of it.")
    return config


def is_deeper_than(levels: int, config: Any) -> bool:
    """Return whether lists and dicts are nested deeper. It does not recurse: some are too deep for that."""
    level = [config]
    for _ in range(levels):
        inner = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [each for values in inner for each in values]
    return bool(level)
