"""Actions that R needs before TensorFlow starts: done within the import that brings TensorFlow.

Beside keras3, TensorFlow starts as soon as that import has ended: keras3 waits for it, and then makes a tensor.
"""

import importlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from multigpu.engines import ENGINES as ENGINES

_asked: list[tuple[str, tuple]] = []


def ask(name: str, *arguments: Any) -> None:
    """Has a public function called when `run()` is."""
    _asked.append((name, arguments))


def run() -> None:
    """Calls what was asked for, once."""
    while _asked:
        name, arguments = _asked.pop()
        getattr(importlib.import_module("multigpu"), name)(*arguments)


def keep_temporary_files_in(folder: str) -> None:
    """Python's temporary files go with those of R, whose folder is deleted at its end.

    R ends without Python's own clean-up, so that what TensorFlow writes for each traced function would stay. Where R
    runs inside Python, or another folder was chosen, nothing changes.
    """
    if "rpy2" not in sys.modules and Path(folder).parent == Path(tempfile.gettempdir()):
        tempfile.tempdir = folder


def backend() -> str:
    """The backend that Keras has or will have: its import fails where that is not installed."""
    if "keras" in sys.modules:
        return sys.modules["keras"].config.backend()
    settings = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras") / "keras.json"
    chosen = json.loads(settings.read_text()).get("backend") if settings.is_file() else None
    return os.environ.get("KERAS_BACKEND") or chosen or "tensorflow"
