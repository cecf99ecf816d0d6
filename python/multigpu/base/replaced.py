"""Replace attributes, functions, or the value of a context variable, temporarily."""

import contextlib
import contextvars
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set `owner.name` to `value` inside a `with` block, then restore the old attribute or its absence.

    Args:
        owner: a class, a module, or an object. The `__dict__` of an object is written directly, because Keras would
            track an assigned value as part of a layer.
        name: the attribute's name.
        value: its value inside the block.
    """
    of_class = isinstance(owner, type)
    write = functools.partial(setattr, owner) if of_class else vars(owner).__setitem__
    delete = functools.partial(delattr, owner) if of_class else vars(owner).__delitem__
    had, before = name in vars(owner), vars(owner).get(name)
    write(name, value)
    try:
        yield
    finally:
        if had:
            write(name, before)
        else:
            delete(name)


@contextlib.contextmanager
def entered(scopes: Iterable[contextlib.AbstractContextManager[Any]]) -> Iterator[None]:
    """Enter all of these scopes for a `with` block, each before the next one is made."""
    with contextlib.ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(scope)
        yield


@contextlib.contextmanager
def set_to(variable: contextvars.ContextVar[T], value: T) -> Iterator[None]:
    """Give a context variable this value inside a `with` block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def wrapped(original: Callable[..., Any], handle: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function like the original whose calls a handler receives: the original, and the arguments."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return handle(original, *args, **kwargs)

    return call


@contextlib.contextmanager
def intercepted(seams: Iterable[tuple[Any, str, Callable[..., Any]]], applies: Callable[[], bool]) -> Iterator[None]:
    """Let handlers intercept calls of functions inside a `with` block.

    Args:
        seams: for each function its owner and name, and the handler, which receives the function and its arguments.
        applies: returns whether the running code is affected, and not code of another thread.
    """

    def handled(handle: Callable[..., Any], original: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return handle(original, *args, **kwargs) if applies() else original(*args, **kwargs)

    of_all = ((owner, name, functools.partial(handled, handle)) for owner, name, handle in seams)
    instead = (replaced(owner, name, wrapped(getattr(owner, name), handle)) for owner, name, handle in of_all)
    with ONE_AT_A_TIME, entered(instead):
        yield


ONE_AT_A_TIME = threading.RLock()  # two threads must not mistake each other's replacements for the originals
