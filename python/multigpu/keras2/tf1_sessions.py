"""Names of TensorFlow 1 that scripts for Keras 2 use: the settings of a session, which TensorFlow 2 has without one."""

import contextlib
import importlib
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import keras

from multigpu.base.refusal import refuse

GRAPH_ONLY = ("disable_eager_execution", "disable_v2_behavior", "disable_resource_variables", "disable_v2_tensorshape")


class DefaultGraph:
    """The default graph. Entering it changes nothing: Keras 3 computes at once, and a model works in any thread."""

    def __getattr__(self, name: str) -> Any:
        """Return what TensorFlow's own has, such as its operations: none."""
        return getattr(_tensorflow().compat.v1.get_default_graph(), name)

    def as_default(self) -> contextlib.AbstractContextManager:
        """Change nothing inside of a `with` block."""
        return contextlib.nullcontext(self)

    def finalize(self) -> None:
        """Do nothing: there is nothing to finish."""


DEFAULT_GRAPH = DefaultGraph()


class Session:
    """A session that keeps its settings and runs nothing, because Keras 3 computes at once."""

    def __init__(self, target: str = "", graph: Any = None, config: Any = None) -> None:
        self.config = config
        self.graph = graph or DEFAULT_GRAPH

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing: there is no session to end."""

    def as_default(self) -> "Session":
        """Return the session."""
        return self

    def close(self) -> None:
        """Do nothing: there is no session to close."""

    def list_devices(self) -> list[Any]:
        """Return the devices of this machine."""
        return _tensorflow().config.list_logical_devices()

    def run(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise an error: there is no graph to run."""
        raise refuse(
            "code that runs eagerly",
            "`Session.run()`, which ran graphs of TensorFlow 1",
            "Leave out initializers of variables, and call models, layers and functions with tensors instead.",
            error=NotImplementedError,
        )


def restore() -> None:
    """Add the contents of `tensorflow.compat.v1` to `tensorflow`."""
    tf = _tensorflow()
    importlib.import_module("tensorflow.compat.v1")  # before its first import, TensorFlow has a different module there
    for name in [name for name in dir(tf.compat.v1) if not name.startswith("_") and not hasattr(tf, name)]:
        setattr(tf, name, getattr(tf.compat.v1, name))
    for module in (tf, tf.compat.v1):
        module.Session = module.InteractiveSession = Session
    tf.get_default_graph = lambda: DEFAULT_GRAPH  # not that of `tf.compat.v1`, which TensorFlow 2 itself uses
    tf.set_random_seed = keras.utils.set_random_seed
    for name in GRAPH_ONLY:
        setattr(tf.compat.v1, name, _does_nothing(name))
        setattr(tf, name, _does_nothing(name))


def set_session(session: Any) -> None:
    """Apply the settings of a session to this process: which GPUs are visible, and whether their memory grows."""
    from multigpu.engines.tensorflow.private_api.runtime import settings_of

    tf = _tensorflow()
    options = getattr(getattr(session, "config", None) or settings_of(session), "gpu_options", None)
    if options is None:
        return
    gpus = tf.config.list_physical_devices("GPU")
    if options.visible_device_list:
        seen = [gpus[int(number)] for number in options.visible_device_list.split(",")]
        tf.config.set_visible_devices(seen, "GPU")
    for gpu in gpus if options.allow_growth else []:
        tf.config.experimental.set_memory_growth(gpu, True)


def _does_nothing(name: str) -> Callable:
    def ignored(*args: Any, **kwargs: Any) -> None:
        warnings.warn(f"`{name}()` is ignored: Keras 3 has no graph mode of TensorFlow 1.", stacklevel=2)

    return ignored


def _tensorflow() -> Any:
    """Import TensorFlow when old names are asked for. Other engines do not need it."""
    return importlib.import_module("tensorflow")
