"""Replace single calls in functional models, for which Keras has no public way.

A wrapper layer around what is called would do it, but would be a layer of the model: in `model.layers`, in its
configuration and in its files, which have to know nothing of devices. So what is to run is noted on the node of the
graph, and two methods of `keras.Function`, which run a graph and say what a node calls, ask for it.
"""

import contextvars
from collections.abc import Callable
from typing import Any

import keras

_with_values: contextvars.ContextVar[bool] = contextvars.ContextVar("with_values", default=False)


def run_in_place_of(operation: keras.Operation, placed: Callable[..., Any]) -> None:
    """Has functional models run `placed` for the latest symbolic call of a layer or operation."""
    _ask_nodes()
    operation._inbound_nodes[-1].placed = placed


def run_instead(operation: keras.Operation) -> list[Any]:
    """Return the calls that run instead of symbolic calls of this layer or operation."""
    return [node.placed for node in operation._inbound_nodes if hasattr(node, "placed")]


def is_symbolic(arguments: Any) -> bool:
    """Return whether a call with these arguments only notes what is to be called."""
    return any(isinstance(leaf, keras.KerasTensor) for leaf in keras.tree.flatten(arguments))


def _ask_nodes() -> None:
    """Replaces the two methods, once, for the first call that is placed in this process."""
    run, ask = keras.Function._run_through_graph, keras.Function._get_operation_for_node
    if hasattr(run, "of_keras"):
        return

    def run_with_values(self: keras.Function, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        token = _with_values.set(not is_symbolic(inputs))
        try:
            return run(self, inputs, *args, **kwargs)
        finally:
            _with_values.reset(token)

    def placed_or_plain(self: keras.Function, node: Any) -> Any:
        return node.placed if _with_values.get() and hasattr(node, "placed") else ask(self, node)

    run_with_values.of_keras = run  # type: ignore[attr-defined]  # a function takes attributes
    keras.Function._run_through_graph, keras.Function._get_operation_for_node = run_with_values, placed_or_plain
