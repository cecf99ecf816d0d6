"""Keras starts without the packages that it imports if they are there, which take a third of its time.

Python imports this file at each start, where its folder is in PYTHONPATH. Once Keras is there they can be imported as
ever: by what plots, and by examples.
"""

import sys
from collections.abc import Sequence
from types import ModuleType


class LeftOut:
    """Finds no module, and says of some, while Keras is being imported, that there is none."""

    packages = ("matplotlib", "sklearn")

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        """Python asks this first. `keras.version` is the last line of Keras."""
        if name in cls.packages and not hasattr(sys.modules.get("keras", sys), "version"):
            raise ModuleNotFoundError(f"No module named {name!r}, while Keras is being imported for a test", name=name)


sys.meta_path.insert(0, LeftOut)
