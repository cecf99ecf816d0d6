"""Check at the first import that Keras, and an engine's library, have the names that this package needs.

A version without them would fail in the middle of a step, or of a save. The check makes no variable and starts no
device, so `simulate_gpus()` can still be called.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from multigpu.base.refusal import refuse
from multigpu.base.version import __version__

Names = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Required:
    """The private names that are needed from one library.

    Attributes:
        library: its name, as people write it.
        package: its name, as it is imported and installed.
        lowest: the lowest version that was tested.
        newest: the newest version that was tested. `make test-versions` tests both.
        attributes: the needed attributes of modules, classes and objects.
        names_in_code: the names that must occur in the code of classes and functions: for attributes of objects that
            are not made for the check.
    """

    library: str
    package: str
    lowest: str
    newest: str
    attributes: Names
    names_in_code: Names

    def missing(self) -> list[str]:
        """Return the required names that do not exist."""
        lacking = []
        for owner, names in self.attributes.items():
            found = _found(owner)
            lacking += [_dotted(owner, name) for name in names if not hasattr(found, name)]
        for owner, names in self.names_in_code.items():
            known = _names_in(_found(owner))
            lacking += [_dotted(owner, name) for name in names if name not in known]
        return lacking

    def check(self) -> None:
        """Raise an ImportError if a version lacks required names.

        Raises:
            ImportError: something is missing. The message names all of it.
        """
        lacking = self.missing()
        if not lacking:
            return
        tested = self.lowest + f" to {self.newest}" * (self.newest != self.lowest)
        raise refuse(
            f"a {self.library} with the private names that multigpu {__version__} uses. It was tested with "
            f"{self.package} {tested}",
            f"{self.package} {importlib.import_module(self.package).__version__}, which lacks "
            f"{', '.join(map(repr, lacking))}",
            f"Run `pip install '{self.package}=={self.newest}'`, start again, and report this error.",
            error=ImportError,
        )


def _dotted(owner: str, name: str) -> str:
    return f"{owner.replace(':', '.')}.{name}"


def _found(owner: str) -> Any:
    """Return a module, class or object by its path. None if it does not exist."""
    try:
        return pkgutil.resolve_name(owner)
    except (ImportError, AttributeError):
        return None


def _names_in(owner: Any) -> set[str]:
    """Return the names and texts in the code of a function, or of all methods of a class."""
    kinds = owner.__mro__ if isinstance(owner, type) else ()
    functions = [owner, *(member for kind in kinds for member in vars(kind).values())]
    codes = [inspect.unwrap(each).__code__ for each in functions if isinstance(each, FunctionType)]
    return {name for code in codes for name in (*code.co_names, *code.co_consts) if isinstance(name, str)}
