"""Cases of a test: those of `make test`, and the others, which `make soak` runs."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def soak(*case: Any, **options: Any) -> Any:
    """One more case of what others of the test show, for `make soak`."""
    return pytest.param(*case, marks=pytest.mark.soak, **options)


def some(cases: Iterable[Any], chosen: Collection[Any]) -> list[Any]:
    """All cases, of which `make test` runs those that are chosen; a tuple is one of several arguments."""
    found = [case if case in chosen else soak(*case if isinstance(case, tuple) else [case]) for case in cases]
    assert len([case for case in found if case in chosen]) == len(chosen), "chosen cases are not there"
    return found
