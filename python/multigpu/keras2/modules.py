"""Old module names of Keras 2, and the modules that have their contents now."""

import importlib
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from multigpu.keras2.copied_dict import multi_gpu_model
from multigpu.keras2.removed_names import GONE, removed_name

ROOTS = ("keras", "keras._tf_keras.keras", "tensorflow.keras")  # trees of modules with the same classes
OTHER_ROOTS = ("tensorflow.python.keras", "tensorflow.compat.v1.keras", "tensorflow.compat.v2.keras")  # not of Keras 3
DEAD = "tensorflow.python.keras"  # the rest of Keras 2 in TensorFlow, whose models this package cannot train
TWIN = "keras._tf_keras.keras"  # has names that `keras` has removed

LAYERS = (
    *("core", "convolutional", "convolutional_recurrent", "pooling", "local", "recurrent", "cudnn_recurrent"),
    *("embeddings", "merge", "noise", "normalization", "advanced_activations", "wrappers"),
)
ENGINE = ("topology", "base_layer", "training", "sequential", "network", "input_layer", "input_spec")
UTILS = ("np_utils", "generic_utils", "data_utils", "vis_utils", "layer_utils", "training_utils", "multi_gpu_utils")
MOVED: dict[str, tuple[str, ...]] = {  # module of Keras 2 → modules that have its names
    **{f"layers.{name}": ("layers",) for name in LAYERS},
    "engine": ("layers", "models", "utils"),
    **{f"engine.{name}": ("layers", "models", "utils") for name in ENGINE},
    **{f"utils.{name}": ("utils",) for name in UTILS},
    "utils.io_utils": ("utils",),
    "utils.test_utils": (),
    "objectives": ("losses",),
    "backend.tensorflow_backend": ("backend",),
    "wrappers.scikit_learn": ("wrappers",),
    "preprocessing.text": (),
}
OPTIMIZERS = ("adadelta", "adagrad", "adam", "adamax", "ftrl", "gradient_descent", "nadam", "optimizer_v2", "rmsprop")
DEAD_MODULES: dict[str, tuple[str, ...]] = {  # modules of `DEAD` alone → modules that have their names
    **{f"engine.{name}": ("layers", "models", "utils") for name in ("functional", "training_v1", "base_layer_v1")},
    **dict.fromkeys(("optimizer_v1", "optimizer_v2"), ("optimizers",)),
    **{f"optimizer_v2.{name}": ("optimizers",) for name in OPTIMIZERS},
    "optimizer_v2.learning_rate_schedule": ("optimizers.schedules",),
    "callbacks_v1": ("callbacks",),
    "backend_config": ("backend",),
    "mixed_precision": ("mixed_precision",),
    "mixed_precision.policy": ("mixed_precision",),
    "mixed_precision.loss_scale_optimizer": ("mixed_precision",),
    **dict.fromkeys(("saving", "saving.save", "saving.model_config"), ("models",)),
    "saving.hdf5_format": (),
}
SHARED = (
    *("layers", "models", "utils", "losses", "metrics", "callbacks", "optimizers", "backend", "applications"),
    *("datasets", "initializers", "regularizers", "constraints", "activations", "wrappers", "preprocessing"),
    *("preprocessing.image", "preprocessing.sequence", "preprocessing.text"),
)
ALIASES = {  # module → its old name → the name of the same thing today
    "layers": {"CuDNNLSTM": "layers.LSTM", "CuDNNGRU": "layers.GRU"},
    "models": {"Input": "layers.Input", "Layer": "layers.Layer"},
    "constraints": {name.lower(): f"constraints.{name}" for name in ("MaxNorm", "NonNeg", "UnitNorm")},
    "optimizers": {
        name.lower(): f"optimizers.{name}"
        for name in ("SGD", "RMSprop", "Adagrad", "Adadelta", "Adam", "Adamax", "Nadam")
    },
}


class Moved(ModuleType):
    """A module of Keras 2 that contains the names of today's modules."""

    def __init__(self, name: str, sources: Sequence[ModuleType]) -> None:
        super().__init__(name, f"Names of {', '.join(source.__name__ for source in sources)}, under an old path.")
        self.__path__: list[str] = []  # makes its submodules importable
        self._sources = sources

    def __getattr__(self, name: str) -> Any:
        for source in self.__dict__.get("_sources", ()):
            if not name.startswith("__") and hasattr(source, name):
                return getattr(source, name)
        if name == "__all__":
            return self.__dir__()
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        names = {name for source in self._sources for name in dir(source)} | set(self.__dict__)
        return sorted(name for name in names if not name.startswith("_"))


def is_restored() -> bool:
    """Return whether the old names exist already."""
    return "keras.utils.multi_gpu_utils" in sys.modules


def restore() -> None:
    """Make old modules importable, and give today's modules back the names that they have lost."""
    for root in ROOTS:
        importlib.import_module(root)
        _add_names(root)
        _add_modules(root)
    for root in OTHER_ROOTS:
        if "compat" in root:
            _put(root, sys.modules["tensorflow.keras"])
        for name in [*SHARED, *MOVED]:
            _put(f"{root}.{name}", sys.modules[f"tensorflow.keras.{name}"])
    _revive()


def _revive() -> None:
    """Replace TensorFlow's rest of Keras 2 by Keras 3: two kinds of models in one script do not mix."""
    for name in ("Input", "Model", "Sequential"):
        setattr(sys.modules[DEAD], name, getattr(sys.modules["tensorflow.keras"], name))
    for name, sources in DEAD_MODULES.items():
        modules = [importlib.import_module(f"tensorflow.keras.{source}") for source in sources]
        _put(f"{DEAD}.{name}", Moved(f"{DEAD}.{name}", modules))


def put_name(module: str, name: str, thing: Any) -> None:
    """Add a name to a module of Keras, given by its path below `keras`, in all trees of modules."""
    for root in ROOTS:
        setattr(importlib.import_module(f"{root}.{module}"), name, thing)


def _add_names(root: str) -> None:
    for name in SHARED:
        module = _module(f"{root}.{name}")
        twin = importlib.import_module(f"{TWIN}.{name}")
        for each in [each for each in dir(twin) if not each.startswith("_") and not hasattr(module, each)]:
            setattr(module, each, getattr(twin, each))
    for name, aliases in ALIASES.items():
        for old, new in aliases.items():
            source, thing = new.rsplit(".", 1)
            setattr(sys.modules[f"{root}.{name}"], old, getattr(sys.modules[f"{root}.{source}"], thing))
    sys.modules[f"{root}.utils"].multi_gpu_model = multi_gpu_model  # type: ignore[attr-defined]


def _add_modules(root: str) -> None:
    for name, sources in MOVED.items():
        if f"{root}.{name}" not in sys.modules:
            _put(f"{root}.{name}", Moved(f"{root}.{name}", [sys.modules[f"{root}.{source}"] for source in sources]))
    for path, instead in GONE.items():
        module, name = path.rsplit(".", 1)
        setattr(sys.modules[f"{root}.{module}"], name, removed_name(f"keras.{path}", instead))


def _module(path: str) -> ModuleType:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        _put(path, Moved(path, []))
        return sys.modules[path]


def _put(path: str, module: ModuleType) -> None:
    """Make a module importable under a path."""
    sys.modules[path] = module
    parent, name = path.rsplit(".", 1)
    setattr(importlib.import_module(parent), name, module)
