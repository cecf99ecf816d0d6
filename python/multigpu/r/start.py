"""What R asks for before TensorFlow starts: done within the import that brings TensorFlow.

Beside keras3, TensorFlow starts as soon as that import has ended: keras3 waits for it, and then makes a tensor.
"""

import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

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
