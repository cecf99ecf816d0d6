"""Build a model from a file for the first time, in a process with limits that may be killed."""

import contextlib
import json
import math
import time
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import h5py
import keras

from multigpu.base.arguments import shown
from multigpu.base.refusal import refuse
from multigpu.engines import OUT_OF_MEMORY, start_with_one_thread
from multigpu.saving.allowed_objects import callers_objects
from multigpu.saving.build_model import OUT_OF_LIMITS, build, configurations, safely
from multigpu.saving.legacy_config import model_from_legacy_config
from multigpu.saving.process_limits import allow, limit_memory

BYTES_PER_WEIGHT_BYTE = 4  # the weights, and the computation of their initial values
KINDS = {
    kind.__name__: kind
    for kind in (
        *(keras.Layer, keras.Loss, keras.Metric, keras.Optimizer, keras.optimizers.schedules.LearningRateSchedule),
        *(keras.initializers.Initializer, keras.regularizers.Regularizer, keras.constraints.Constraint, object),
    )
}


class Trial(NamedTuple):
    """How to build a model, and within which limits. It is sent to another process as JSON."""

    names: dict[str, str]  # the kinds of the caller's objects, by name
    compile: bool
    max_seconds: float
    max_gigabytes: float
    settings: dict[str, str]
    backend: str  # the backend of Keras

    @classmethod
    def of(cls, custom_objects: dict[str, Any] | None, compile: bool, max_seconds: float, max_gigabytes: float) -> Self:
        """Return the trial for a caller's arguments.

        Raises:
            ValueError: a limit is not a positive number.
        """
        for name, limit in (("max_seconds", max_seconds), ("max_gigabytes", max_gigabytes)):
            if isinstance(limit, bool) or not isinstance(limit, int | float) or not limit > 0:
                raise refuse(f"`{name}` to be a positive number", f"{name}={shown(limit)}")
        names = {str(name): kind_of(each) for name, each in callers_objects(custom_objects).items()}
        config = keras.config
        settings = {"floatx": config.floatx(), "image_data_format": config.image_data_format()}
        return cls(names, bool(compile), max_seconds, max_gigabytes, settings, keras.backend.backend())

    def run(self, copy: str, shown: str) -> dict[str, Any]:
        """Build the model in this process, which may be killed meanwhile. Return why it cannot be built."""
        for name, value in self.settings.items():
            getattr(keras.config, f"set_{name}")(value)
        start_with_one_thread()
        with h5py.File(copy, "r") as file:
            limit_memory(self.max_gigabytes * 1e9 + BYTES_PER_WEIGHT_BYTE * _num_bytes(file))
            allow(time.process_time() + self.max_seconds)
            try:
                self._build(file, shown)
            except OUT_OF_MEMORY:
                return {"memory": True}
            except Exception as error:
                return {"unbuildable": str(error)}
        return {}

    def _build(self, file: h5py.File, shown: str) -> None:
        """Build the model. If it contains the caller's objects, which are not here, also build each of its parts."""
        configs = list(configurations(file, shown))
        texts = {leaf for leaf in keras.tree.flatten(configs) if isinstance(leaf, str)}
        own = {name: kind for name, kind in self.names.items() if {name, name.rsplit(">", 1)[-1]} & texts}
        if not own:
            build(file, shown, None, self.compile, safe_mode=True)
            return
        objects = {name: stand_in(kind) for name, kind in own.items()}
        with _limits_only():
            build(file, shown, objects, self.compile, safe_mode=True)
        for part in _objects(configs):
            for make in (_layer, keras.metrics.deserialize, keras.losses.deserialize, keras.optimizers.deserialize):
                with _limits_only(), safely(objects, True, math.inf):
                    make(json.loads(json.dumps(part)))  # Keras changes its argument


def kind_of(found: Any) -> str:
    """Return the kind of an object that the caller passed, or ""."""
    return next((name for name, kind in KINDS.items() if isinstance(found, type) and issubclass(found, kind)), "")


def stand_in(kind: str) -> Any:
    """Return a substitute for an object of the caller: a layer or function that does nothing."""
    if not kind:
        return lambda *args, **kwargs: args[-1] if args else None
    run = "call" if kind == "Layer" else "__call__"
    methods = {"from_config": classmethod(lambda cls, config: cls()), run: lambda self, *args, **kwargs: args[0]}
    return type(kind, (KINDS[kind],), methods)


@contextlib.contextmanager
def _limits_only() -> Iterator[None]:
    """Ignore errors of a single part, except those that the limits raise."""
    try:
        yield
    except OUT_OF_LIMITS:
        raise
    except Exception:
        pass


def _layer(config: dict[str, Any]) -> Any:
    build = keras.saving.deserialize_keras_object if "module" in config else model_from_legacy_config
    return build(config)


def _objects(config: Any) -> Iterator[dict[str, Any]]:
    """Return all parts of a configuration that have a class, the outermost first."""
    if isinstance(config, dict) and "class_name" in config:
        yield config
    inner = config.values() if isinstance(config, dict) else config if isinstance(config, list) else ()
    for each in inner:
        yield from _objects(each)


def _num_bytes(file: h5py.File) -> int:
    sizes: list[int] = []
    file.visititems(lambda _, item: sizes.append(item.nbytes) if isinstance(item, h5py.Dataset) else None)
    return sum(sizes)
