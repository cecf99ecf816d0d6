"""The methods with which Keras saves, copies and describes a parallel model: they answer as its template."""

from typing import Any

import keras

from multigpu.base.arguments import shown
from multigpu.base.refusal import refuse
from multigpu.base.shared import Shared
from multigpu.private_api.callers import is_for_sklearn, is_pickled
from multigpu.private_api.hooks import AnswersAsTemplate
from multigpu.saving import save as saving

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
        if is_for_sklearn():
            raise self._left_behind(
                "trained by a wrapper for scikit-learn, which trains clones",
                "Use `model=lambda X, y: multi_gpu_model(build())`, and compile the model in it",
            )
        if is_pickled():
            raise self._left_behind(
                "pickled, or copied inside of another model",
                "Pickle `parallel.template`, and pass the unpickled model to `multi_gpu_model()`",
            )
        return self.template.get_compile_config()

    def _left_behind(self, what: str, use: str) -> ValueError:
        return refuse(
            f"a plain model, such as the template, to be {what}",
            f"{self!r}",
            f"{use}.",
        )

    def save(self, filepath: Any, overwrite: bool = True, zipped: bool | None = None, **kwargs: Any) -> None:
        """Save the template: a plain file, written whole, which Keras loads without this package."""
        saving.save(self.template, filepath, overwrite, zipped, **kwargs)

    def save_weights(self, filepath: Any, overwrite: bool = True, max_shard_size: float | None = None) -> None:
        """Save the template's weights, and the state of the optimizer."""
        saving.save_weights(self.template, filepath, overwrite, max_shard_size)

    def load_weights(self, filepath: Any, skip_mismatch: bool = False, **kwargs: Any) -> None:
        """Load weights into the template, from any file that it accepts. On an error, nothing changes."""
        saving.load_weights(self.template, filepath, skip_mismatch, **kwargs)


def is_part(template: keras.Model, name: str) -> bool:
    """Return whether a private attribute contains parts of the template, which Keras looks for when it saves."""
    return isinstance(getattr(template, name, None), PARTS)


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
