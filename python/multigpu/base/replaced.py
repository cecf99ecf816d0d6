"""An attribute that is another one for a while."""

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """While it lasts, `owner.name` is `value`; then it is what it was, or is gone again if `owner` itself had none.

    Args:
        owner: a class, a module, or an object. Of an object, its `__dict__` is written: Keras would take what is
            assigned for a part of a layer.
        name: of the attribute.
        value: what it is meanwhile.
    """
    had, before = name in vars(owner), vars(owner).get(name)
    _write(owner, name, value)
    try:
        yield
    finally:
        if had:
            _write(owner, name, before)
        elif isinstance(owner, type):
            delattr(owner, name)
        else:
            del vars(owner)[name]


def _write(owner: Any, name: str, value: Any) -> None:
    if isinstance(owner, type):
        setattr(owner, name, value)
    else:
        vars(owner)[name] = value
