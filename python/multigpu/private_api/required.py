"""Names that this package needs from Keras, and an engine from its library, checked at the first import.

A version that lacks some of it would fail in the middle of a step, or of a save. Nothing here makes a variable or
starts a device, so that `simulate_gpus()` may follow.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from multigpu.version import __version__

Names = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Required:
    """Private names of one library.

    Attributes:
        library: as people write it.
        package: as it is imported and installed.
        lowest: version of it that was tested.
        newest: version of it that was tested: the ends of `make test-versions`.
        attributes: modules, classes and objects, and what they have.
        names_in_code: classes and functions, and the names that their code has: of what they keep on an object, which
            is not made to ask it.
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
        """Refuses versions that lack what is required.

        Raises:
            ImportError: something is missing. All of it is named.
        """
        lacking = self.missing()
        if not lacking:
            return
        tested = self.lowest + f" to {self.newest}" * (self.newest != self.lowest)
        raise ImportError(
            f"Expected a {self.library} with the private names that multigpu {__version__} uses. It was tested with "
            f"{self.package} {tested}. Received: {self.package} {importlib.import_module(self.package).__version__}, "
            f"which lacks {', '.join(map(repr, lacking))}. Run `pip install '{self.package}=={self.newest}'`, start "
            "again, and report this error."
        )


def _dotted(owner: str, name: str) -> str:
    return f"{owner.replace(':', '.')}.{name}"


def _found(owner: str) -> Any:
    """A module, class or object by its path; None, which has nothing that is required, if it is not there."""
    try:
        return pkgutil.resolve_name(owner)
    except (ImportError, AttributeError):
        return None


def _names_in(owner: Any) -> set[str]:
    """Names and texts in the code of a function, or of all methods of a class."""
    kinds = owner.__mro__ if isinstance(owner, type) else ()
    functions = [owner, *(member for kind in kinds for member in vars(kind).values())]
    codes = [inspect.unwrap(each).__code__ for each in functions if isinstance(each, FunctionType)]
    return {name for code in codes for name in (*code.co_names, *code.co_consts) if isinstance(name, str)}
