"""Replace single calls in functional models. Keras has no public way.

A wrapper layer would be part of the model: in `model.layers`, in its configuration and in its files, which must not
depend on devices. So the replacement is stored on the node of the graph. Two methods of `keras.Function`, which run a
graph and return what a node calls, look it up.
"""

import contextvars
from collections.abc import Callable
from typing import Any

import keras

from multigpu.base.replaced import set_to

_with_values: contextvars.ContextVar[bool] = contextvars.ContextVar("with_values", default=False)


def run_in_place_of(operation: keras.Operation, placed: Callable[..., Any]) -> None:
    """Make functional models run `placed` instead of the latest symbolic call of a layer or operation."""
    _ask_nodes()
    operation._inbound_nodes[-1].placed = placed


def run_instead(operation: keras.Operation) -> list[Any]:
    """Return the calls that run instead of symbolic calls of this layer or operation."""
    return [node.placed for node in operation._inbound_nodes if hasattr(node, "placed")]


def is_symbolic(arguments: Any) -> bool:
    """Return whether a call with these arguments only records the call in a graph."""
    return any(isinstance(leaf, keras.KerasTensor) for leaf in keras.tree.flatten(arguments))


def _ask_nodes() -> None:
    """Replace the two methods of `keras.Function`, once, when the first replacement is made in this process."""
    run, ask = keras.Function._run_through_graph, keras.Function._get_operation_for_node
    if hasattr(run, "of_keras"):
        return

    def run_with_values(self: keras.Function, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        with set_to(_with_values, not is_symbolic(inputs)):
            return run(self, inputs, *args, **kwargs)

    def placed_or_plain(self: keras.Function, node: Any) -> Any:
        return node.placed if _with_values.get() and hasattr(node, "placed") else ask(self, node)

    run_with_values.of_keras = run  # type: ignore[attr-defined]  # functions accept attributes
    keras.Function._run_through_graph, keras.Function._get_operation_for_node = run_with_values, placed_or_plain
