"""What R asks for before TensorFlow starts: done within the import that brings TensorFlow.

Beside keras3, TensorFlow starts as soon as that import has ended: keras3 waits for it, and then makes a tensor.
"""

import importlib
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
