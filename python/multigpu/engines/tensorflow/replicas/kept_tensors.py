"""Tensors that a call leaves in attributes of layers, for code that runs after it: a step of the template's own.

A replica leaves those of its slice. With rows they are merged, as outputs are, and put there again. For others the
layer is called once more with its inputs merged, as one that adds a loss is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

ABSENT = object()
DEPTH = 3  # of lists and dicts in each other


class Kept(NamedTuple):
    """An attribute of a layer that a call has set to tensors, or to a list or dict with some.

    Attributes:
        layer: whose attribute it is.
        name: of the attribute.
        value: what it was set to.
        before: what it was.
        tensors: those that the call has made.
    """

    layer: keras.Layer
    name: str
    value: Any
    before: Any
    tensors: Sequence[tf.Tensor]

    @property
    def place(self) -> tuple[int, str]:
        """Where it is, to be compared."""
        return id(self.layer), self.name

    def after(self, other: "Kept") -> "Kept":
        """The same attribute, seen from before another call that set it earlier."""
        left = set(map(id, _leaves(self.value)))
        tensors = {id(x): x for x in [*other.tensors, *self.tensors] if id(x) in left}
        return self._replace(before=other.before, tensors=list(tensors.values()))

    def now(self) -> "Kept":
        """The same attribute, with the tensors that are in it now and were made where this code runs."""
        value = vars(self.layer).get(self.name)
        return self._replace(value=value, tensors=[x for x in _leaves(value) if _is_made(x)])

    def put_back(self) -> None:
        """Gives the layer what it had before."""
        if self.before is ABSENT:
            vars(self.layer).pop(self.name, None)
        else:
            vars(self.layer)[self.name] = self.before

    def give(self, tensors: Sequence[tf.Tensor]) -> None:
        """Gives the layer other tensors in the places of those that the call has made."""
        given = {id(old): new for old, new in zip(self.tensors, tensors, strict=True)}
        vars(self.layer)[self.name] = _with(given, self.value)


class Attributes:
    """The attributes of a layer, before it is called."""

    def __init__(self, layer: keras.Layer) -> None:
        self._layer = layer
        self._before = {name: _copied(value) for name, value in vars(layer).items()}

    def kept(self) -> list[Kept]:
        """Those that have been set to tensors since."""
        found = []
        for name, value in vars(self._layer).items():
            before = self._before.get(name, ABSENT)
            known = set(map(id, _leaves(before)))
            new = {id(x): x for x in _leaves(value) if id(x) not in known and _is_made(x)}
            if new:
                found.append(Kept(self._layer, name, value, before, list(new.values())))
        return found


def _is_made(x: Any) -> bool:
    """Return whether it is a tensor of the graph that is being traced, or, outside of one, a tensor with a value."""
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    parts = tf.nest.flatten(x, expand_composites=True) if tf.is_tensor(x) and not isinstance(x, tf.Variable) else []
    return bool(parts) and all(getattr(part, "graph", None) is graph for part in parts)


def _leaves(value: Any, depth: int = DEPTH) -> Iterator[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else None
    if inner is None or not depth:
        yield value
        return
    for each in list(inner):
        yield from _leaves(each, depth - 1)


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, dict | list) else value


def _with(given: Mapping[int, tf.Tensor], value: Any, depth: int = DEPTH) -> Any:
    """The same with other tensors in it, which are given by the ids of those in their places."""
    again: Callable[[Any], Any] = lambda each: _with(given, each, depth - 1)  # noqa: E731
    if depth and isinstance(value, dict):
        return {name: again(each) for name, each in value.items()}
    if depth and isinstance(value, list | tuple):
        inner = list(map(again, value))
        named = hasattr(value, "_fields")
        return inner if isinstance(value, list) else type(value)(*inner) if named else tuple(inner)
    return given.get(id(value), value)
