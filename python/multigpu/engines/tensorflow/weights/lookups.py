"""Find the weights from which a trace takes rows, and the ids of these, from its ops, before there is a gradient."""

import functools
import operator
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.types.experimental import ConcreteFunction

from multigpu.engines.tensorflow.private_api.graphs import CHOICES
from multigpu.engines.tensorflow.weights.rows import Rows, one_way

PASSED_ON = ("Identity", "Cast")  # ops whose gradient is rows if the gradient of their result is
SAME_IDS = ("Identity", "Cast", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "EnsureShape")  # as their input
KEEPING_STATE = ("Random", "Multinomial", "TruncatedNormal", "ParameterizedTruncatedNormal")  # ops that draw
SHIFTS = ("AddV2", "Sub")  # Keras counts negative ids from the end: with such an op, from which it then selects

_Ids = Rows | None  # None for a tensor that depends on no row


def ways_of_lookup(function: ConcreteFunction, known: Collection[int], weights: Sequence[int]) -> dict[int, Rows]:
    """Return how inputs whose gradient may be rows are looked up, in a function or the functions that it calls.

    Args:
        function: the function.
        known: the numbers of its inputs that do not depend on rows of the batch.
        weights: the numbers of the inputs to look for.
    """
    library = {each.signature.name: each for each in function.graph.as_graph_def().library.function}
    num_inputs = len(function.function_def.signature.input_arg)
    ids = [None if number in known else Rows.APART for number in range(num_inputs)]
    body = _Body(function.function_def, ids, library)
    ways = {number: body.lookups(body.inputs[number]) for number in weights}
    return {number: one_way(found) for number, found in ways.items() if found}


class _Body:
    """The body of a function, and how it uses its inputs."""

    def __init__(self, definition: Any, of_inputs: Sequence[_Ids], library: Mapping[str, Any]) -> None:
        self.inputs = [argument.name for argument in definition.signature.input_arg]
        self._outputs = [definition.ret[output.name] for output in definition.signature.output_arg]
        self._library = library
        self._nodes = {node.name: node for node in definition.node_def}
        self._ids: dict[str, _Ids] = dict(zip(self.inputs, of_inputs, strict=True))
        self._called: dict[tuple[str, str], _Body] = {}
        self._readers: dict[str, list[tuple[Any, int]]] = {}
        for node in definition.node_def:
            for position, source in enumerate(node.input):
                self._readers.setdefault(source.partition(":")[0], []).append((node, position))

    def lookups(self, name: str) -> Counter[Rows]:
        """Return how often rows are taken from a tensor, its copies, and from it as an argument of functions."""
        found = Counter[Rows]()
        for node, position in self._readers.get(name, []):
            if position == 0 and _takes_rows(node):
                found[Rows.BY_ID if _sums_rows(node) else self._ids_of(node.input[1]) or Rows.BY_PLACE] += 1
            elif node.op.startswith(PASSED_ON):
                found += self.lookups(node.name)
            branches = node.op in CHOICES  # of which one runs
            places = [(inner, position - branches) for inner in self._functions_of(node)]
            inside = [each.lookups(each.inputs[n]) for each, n in places if 0 <= n < len(each.inputs)]
            found += functools.reduce(operator.or_ if branches else operator.add, inside, Counter[Rows]())
        return found

    def output(self, number: int) -> _Ids:
        """Return how an output depends on rows."""
        return self._ids_of(self._outputs[number])

    def _ids_of(self, source: str) -> _Ids:
        """Return how a tensor depends on rows. It does not recurse, because ids may come from a deep network."""
        pending = [source]
        while pending:
            last = pending[-1]
            name = last.partition(":")[0]
            known = name if name in self.inputs else last
            missing = [] if known in self._ids else [x for x in self._asked(self._nodes[name]) if not self._is_known(x)]
            if known not in self._ids and not missing:
                self._ids[last] = self._found(self._nodes[name], last)
            pending = [*pending, *missing] if missing else pending[:-1]
        return self._ids[source if source in self._ids else source.partition(":")[0]]

    def _is_known(self, source: str) -> bool:
        return source in self._ids or source.partition(":")[0] in self.inputs

    def _asked(self, node: Any) -> list[str]:
        """Return the inputs of an op on which the values of its results depend."""
        if node.op == "StridedSlice" and self._is_length_of_row(node):
            return []
        return [source for source in node.input if not source.startswith("^")]

    def _is_length_of_row(self, node: Any) -> bool:
        """Return whether a tensor is an element of a shape, other than the first, the number of rows."""
        shape, begin = (self._nodes.get(source.partition(":")[0]) for source in node.input[:2])
        if shape is None or shape.op != "Shape" or begin is None or begin.op != "Const":
            return False
        return bool(tf.make_ndarray(begin.attr["value"].tensor)[:1].any())

    def _found(self, node: Any, source: str) -> _Ids:
        """Return how a result of an op depends on rows, given this for its inputs."""
        given = [self._ids.get(x, self._ids.get(x.partition(":")[0])) for x in self._asked(node)]
        if node.op.startswith(KEEPING_STATE):
            return Rows.APART  # each replica draws its own
        if all(each is None for each in given):
            return None
        if node.op.startswith("Unique"):
            return Rows.BY_ID if source.split(":")[1:2] == ["y"] else Rows.APART
        if node.op in SAME_IDS:
            return given[0]
        if (node.op in SHIFTS and set(given) == {None, Rows.BY_ID}) or (
            node.op == "SelectV2" and {*given[1:]} == {Rows.BY_ID}
        ):
            return Rows.BY_ID
        if _takes_rows(node) and given[1] is not None:  # such as the ids again, from the unique ones
            return given[1]
        if node.op.endswith("PartitionedCall"):
            inner = next(self._functions_of(node))
            return inner.output(int(source.rpartition(":")[-1]))
        return Rows.APART if set(given) <= {None, Rows.APART} else Rows.UNCLEAR

    def _functions_of(self, node: Any) -> Iterator["_Body"]:
        """Return the functions that an op calls."""
        for value in node.attr.values():
            for name in (each.name for each in (value.func, *value.list.func) if each.name in self._library):
                if (node.name, name) not in self._called:
                    definition = self._library[name]
                    data = self._asked(node)[node.op in CHOICES :]
                    ids = [*map(self._ids_of, data), *[None] * len(definition.signature.input_arg)]
                    ids = ids[: len(definition.signature.input_arg)]
                    self._called[node.name, name] = _Body(definition, ids, self._library)
                yield self._called[node.name, name]


def _takes_rows(node: Any) -> bool:
    return "Gather" in node.op or _sums_rows(node)


def _sums_rows(node: Any) -> bool:
    """Return whether the op adds rows, so that its gradient contains each of them once."""
    return node.op.startswith("SparseSegment") and node.attr["sparse_gradient"].b
