"""Run R's early requests before TensorFlow starts, within the import that loads TensorFlow.

With keras3, TensorFlow starts as soon as that import has ended, because keras3 then makes a tensor.
"""

import importlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from multigpu.cluster.schedulers import check_no_task_is_left_out, config_of_tasks
from multigpu.engines import ENGINES as ENGINES

MODULES = {"join_cluster": "multigpu.engines", "simulate_gpus": "multigpu.model.devices"}  # which bring TensorFlow

_asked: list[tuple[str, tuple]] = []


def ask(name: str, *arguments: Any) -> None:
    """Request that `run()` calls a public function."""
    _asked.append((name, arguments))


def run() -> None:
    """Make the requested calls, once."""
    while _asked:
        name, arguments = _asked.pop()
        getattr(importlib.import_module(MODULES[name]), name)(*arguments)


def nobody_to_join() -> bool:
    """Return whether `join_cluster()` has nothing to do, so that devices can still be simulated after it.

    Raises:
        ValueError: a scheduler has started several tasks, and no variable gives the addresses of the others.
    """
    if "TF_CONFIG" in os.environ or config_of_tasks(os.environ) is not None:
        return False
    check_no_task_is_left_out(os.environ)
    return True


def keep_temporary_files_in(folder: str) -> None:
    """Put Python's temporary files into R's temporary folder, which R deletes at its end.

    R ends without Python's own clean-up, so files that TensorFlow writes for each traced function would stay. If R runs
    inside Python, or another folder was chosen, nothing changes.
    """
    if "rpy2" not in sys.modules and Path(folder).parent == Path(tempfile.gettempdir()):
        tempfile.tempdir = folder


def backend() -> str:
    """Return the backend that Keras has or will have. Importing Keras would fail if it is not installed."""
    if "keras" in sys.modules:
        return sys.modules["keras"].config.backend()
    settings = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras") / "keras.json"
    chosen = json.loads(settings.read_text()).get("backend") if settings.is_file() else None
    return os.environ.get("KERAS_BACKEND") or chosen or "tensorflow"
