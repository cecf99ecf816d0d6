"""Tensors that a call stores in attributes of layers, for code that runs after it, such as a custom step.

A replica stores the tensors of its slice. Tensors with rows are merged, like outputs, and stored again. For others the
layer is called once more with merged inputs, like a layer that adds a loss.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

ABSENT = object()
DEPTH = 3  # nesting of lists and dicts


class Kept(NamedTuple):
    """An attribute of a layer that a call has set to tensors, or to a list or dict with tensors.

    Attributes:
        layer: the layer with the attribute.
        name: the attribute's name.
        value: its value after the call.
        before: its value before the call.
        tensors: the tensors that the call has made.
    """

    layer: keras.Layer
    name: str
    value: Any
    before: Any
    tensors: Sequence[tf.Tensor]

    @property
    def place(self) -> tuple[int, str]:
        """The place of the attribute, to compare."""
        return id(self.layer), self.name

    def after(self, other: "Kept") -> "Kept":
        """Return the same attribute, seen from before another call that set it earlier."""
        left = set(map(id, _held(self.value)))
        tensors = {id(x): x for x in [*other.tensors, *self.tensors] if id(x) in left}
        return self._replace(before=other.before, tensors=list(tensors.values()))

    def now(self) -> "Kept":
        """Return the same attribute, with its current tensors that were made in the current graph."""
        value = vars(self.layer).get(self.name)
        return self._replace(value=value, tensors=[x for x in _held(value) if _is_made(x)])

    def put_back(self) -> None:
        """Give the layer the value before the call."""
        if self.before is ABSENT:
            vars(self.layer).pop(self.name, None)
        else:
            vars(self.layer)[self.name] = self.before

    def give(self, tensors: Sequence[tf.Tensor]) -> None:
        """Give the layer other tensors in the places of those that the call has made."""
        given = {id(old): new for old, new in zip(self.tensors, tensors, strict=True)}
        vars(self.layer)[self.name] = _with(given, self.value)


class Contents:
    """The attributes of a layer, and what their lists and dicts hold, to be put back."""

    def __init__(self, layer: keras.Layer) -> None:
        self._layer, self._attributes = layer, dict(vars(layer))
        held = (each for value in self._attributes.values() for each in _held(value) if isinstance(each, dict | list))
        self._copies = [(each, dict(each) if isinstance(each, dict) else list(each)) for each in held]

    def put_back(self) -> None:
        """Give the layer its attributes back, and its lists and dicts what they held."""
        for new in vars(self._layer).keys() - self._attributes.keys():
            del vars(self._layer)[new]
        vars(self._layer).update(self._attributes)
        for container, copied in self._copies:
            _refill(container, copied)


class Attributes:
    """The attributes of a layer before a call."""

    def __init__(self, layer: keras.Layer) -> None:
        self._layer = layer
        self._before = {name: _with({}, value) for name, value in vars(layer).items()}  # copies of lists and dicts

    def kept(self) -> list[Kept]:
        """Return the attributes that have been set to tensors since."""
        found = []
        for name, value in vars(self._layer).items():
            before = self._before.get(name, ABSENT)
            known = set(map(id, _held(before)))
            new = {id(x): x for x in _held(value) if id(x) not in known and _is_made(x)}
            if new:
                found.append(Kept(self._layer, name, value, before, list(new.values())))
        return found


def _is_made(x: Any) -> bool:
    """Return whether a value is a tensor of the current graph, or outside of graphs, a tensor with a value."""
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    parts = tf.nest.flatten(x, expand_composites=True) if tf.is_tensor(x) and not isinstance(x, tf.Variable) else []
    return bool(parts) and all(getattr(part, "graph", None) is graph for part in parts)


def _held(value: Any, depth: int = DEPTH) -> Iterator[Any]:
    """Return a value, and all that it holds if it is a list or a dict."""
    yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    for each in list(inner) if depth else ():
        yield from _held(each, depth - 1)


def _refill(container: list | dict, copied: Any) -> None:
    """Let a list or dict hold what its copy holds. If it was not changed, Keras need not track it again."""
    held, before = (each.items() if isinstance(each, dict) else enumerate(each) for each in (container, copied))
    if [(key, id(value)) for key, value in held] != [(key, id(value)) for key, value in before]:
        container.clear()
        container.update(copied) if isinstance(container, dict) else container.extend(copied)


def _with(given: Mapping[int, tf.Tensor], value: Any, depth: int = DEPTH) -> Any:
    """Return a copy of a structure with other tensors, given by the ids of the old ones."""
    again: Callable[[Any], Any] = lambda each: _with(given, each, depth - 1)  # noqa: E731
    if depth and isinstance(value, dict):
        copied = value.copy()  # which may have a default
        copied.update({name: again(each) for name, each in value.items()})
        return copied
    if depth and isinstance(value, list | tuple):
        inner = list(map(again, value))
        named = hasattr(value, "_fields")
        return inner if isinstance(value, list) else type(value)(*inner) if named else tuple(inner)
    return given.get(id(value), value)
