"""The methods with which Keras saves, copies and describes a parallel model: they answer as its template."""

import os
from typing import Any

import keras

from multigpu.base.arguments import shown
from multigpu.base.refusal import refuse
from multigpu.base.shared import Shared
from multigpu.private_api.callers import PICKLES, SKLEARN, called_by
from multigpu.private_api.hooks import AnswersAsTemplate
from multigpu.saving.atomic_write import atomic_write, check_overwrite, expanded
from multigpu.saving.hdf5_format import write_model
from multigpu.saving.hdf5_writer import write_unlisted
from multigpu.saving.load_weights import load_into

HDF5_ENDINGS = (".h5", ".hdf5")
PARTS = (keras.Layer, keras.Metric, keras.Loss, keras.Optimizer, list, tuple, dict)


class TemplateFacade(AnswersAsTemplate):
    """Answer as the template would when Keras saves, copies or describes the parallel model.

    So `keras.saving.save_model(parallel, …)` and `keras.models.clone_model(parallel)` give the plain template, without
    a change in Keras: they use `__class__`, the names that `dir()` lists, and these methods.
    """

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The template's class, so that `isinstance(parallel, keras.Sequential)` answers as for the template."""
        return type(self.__dict__.get("template", self))

    @__class__.setter
    def __class__(self, value: type) -> None:
        raise AttributeError("Expected `__class__` to stay as it is: a parallel model is of its template's class.")

    def __dir__(self) -> list[str]:
        return dir(self.__dict__.get("template", type(self)))

    get_config, to_json, get_build_config = Shared(), Shared(), Shared()
    save_own_variables, load_own_variables = Shared(), Shared()  # those that belong to none of the template's layers
    export = Shared()

    def get_compile_config(self) -> dict[str, Any]:
        """Return the configuration of the template's `compile()`."""
        if called_by(SKLEARN):
            raise self._left_behind(
                "trained by a wrapper for scikit-learn, which trains clones",
                "Use `model=lambda X, y: multi_gpu_model(build())`, and compile the model in it",
            )
        if called_by(PICKLES):
            raise self._left_behind(
                "pickled, or copied inside of another model",
                "Pickle `parallel.template`, and pass the unpickled model to `multi_gpu_model()`",
            )
        return self.template.get_compile_config()

    def _left_behind(self, what: str, use: str) -> ValueError:
        return refuse(f"a plain model, such as the template, to be {what}", f"{self!r}", f"{use}.")

    def save(self, filepath: Any, overwrite: bool = True, zipped: bool | None = None, **kwargs: Any) -> None:
        """Save the template, for Keras without this package. One file (`.keras`, `.h5`) is written whole.

        Keras writes a folder, or to a remote place.
        """
        if not _is_here(filepath) or zipped is False or not str(filepath).endswith((".keras", *HDF5_ENDINGS)):
            _check_overwrite(filepath, overwrite)
            keras.Model.save(self.template, filepath, zipped=zipped, **kwargs)
        elif str(filepath).endswith(HDF5_ENDINGS):
            kwargs.pop("save_format", None)  # the path tells it
            write_model(self.template, filepath, overwrite, **kwargs)
        else:
            atomic_write(
                filepath,
                lambda path: keras.Model.save(self.template, path, zipped=zipped, **kwargs),
                ".keras",
                overwrite,
            )

    def save_weights(self, filepath: Any, overwrite: bool = True, max_shard_size: float | None = None) -> None:
        """Save the template's weights, and the state of the optimizer. One file is written whole.

        Keras writes several files, with `max_shard_size`, or to a remote place.
        """
        if not _is_here(filepath) or max_shard_size is not None or not str(filepath).endswith(".weights.h5"):
            _check_overwrite(filepath, overwrite)
            keras.Model.save_weights(self.template, filepath, max_shard_size=max_shard_size)
        else:
            atomic_write(filepath, lambda path: write_unlisted(self.template, path), ".weights.h5", overwrite)

    def load_weights(self, filepath: Any, skip_mismatch: bool = False, **kwargs: Any) -> None:
        """Load weights into the template, from any file that it accepts. On an error, nothing changes."""
        load_into(self.template, filepath, bool(kwargs.pop("by_name", False)), skip_mismatch, **kwargs)


def is_part(template: keras.Model, name: str) -> bool:
    """Return whether a private attribute contains parts of the template, which Keras looks for when it saves."""
    return isinstance(getattr(template, name, None), PARTS)


def _is_here(filepath: Any) -> bool:
    """Return whether a path is on this machine. Keras also accepts open files and remote places, as `hf://`."""
    return isinstance(filepath, str | os.PathLike) and "://" not in str(filepath)


def _check_overwrite(filepath: Any, overwrite: bool) -> None:
    if _is_here(filepath):
        check_overwrite(expanded(filepath), overwrite)


def check_model(name: str, model: object) -> None:
    """Raise a ValueError unless a value is a Keras 3 model.

    Args:
        name: of the argument.
        model: its value.
    """
    if isinstance(model, keras.Model):
        return
    if any(cls.__module__.startswith("tf_keras") for cls in type(model).__mro__):
        raise refuse(
            f"`{name}` to be a Keras 3 model",
            f"{type(model).__name__} from `tf_keras`, which is Keras 2",
            "Build the model with `import keras` (and unset TF_USE_LEGACY_KERAS if `tf.keras` is used).",
        )
    raise refuse(
        f"`{name}` to be a Keras model",
        f"{shown(model)} of type {type(model).__name__}",
        "Pass a built `keras.Sequential`, functional or subclassed `keras.Model`.",
    )


def template_of(name: str, model: keras.Model) -> keras.Model:
    """Return the template of a parallel model, or any other model itself.

    Raises:
        ValueError: the argument of this name is not a Keras model.
    """
    check_model(name, model)
    return model.template if isinstance(model, TemplateFacade) else model
