"""Cut the trace of a replica into stages, where it goes from one part of the template to another.

A stage is an uninterrupted piece of one part's work, forward or backward. It is a separate function, so that it runs on
the device of its part in each group, and slices can pass a device one behind the other, as in GPipe: Y. Huang and
others, "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism", 2019,
https://arxiv.org/abs/1811.06965.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import tensorflow as tf

from multigpu.engines.tensorflow.pipeline.stage_function import StageFunction
from multigpu.engines.tensorflow.replicas.parts import Sum
from multigpu.engines.tensorflow.replicas.tapes import Gradient


class Passes(NamedTuple):
    """The forward and the backward pass of a replica in one trace.

    Attributes:
        results: the results of the replica.
        num_forward: the number of ops of the forward pass, which are the first ops.
        used: the numbers of the results whose gradients it receives.
        upstream: the gradients of the used results.
        gradients: the gradients of all inputs of the replica.
        of_tables: the gradients of the tables that it reads itself.
    """

    results: list[tf.Tensor]
    num_forward: int
    used: list[int]
    upstream: list[tf.Tensor]
    gradients: list[Gradient]
    of_tables: list[Gradient]


@dataclass(eq=False)
class Stage:
    """Ops of one part that run together.

    Attributes:
        name: a name that no other stage has.
        part: the number of the part.
        backward: whether it belongs to the backward pass.
        ops: the ops, in the order in which they were made.
        takes: its input tensors: made in other stages, and not known to all.
        gives: its output tensors: inputs of other stages, or results.
        function: the function from `takes` to `gives`.
    """

    name: str
    part: int
    backward: bool
    ops: list[tf.Operation] = field(default_factory=list)
    takes: list[tf.Tensor] = field(default_factory=list)
    gives: list[tf.Tensor] = field(default_factory=list)
    function: Callable[..., list[tf.Tensor]] | None = None


def cut(
    function: tf.types.experimental.ConcreteFunction,
    parts: Mapping[str, int | None],
    passes: Passes,
    sums: Sequence[Sum],
) -> list[Stage]:
    """Return the stages of a trace, in an order in which they can run.

    Args:
        function: the trace.
        parts: the parts of its ops, by name. None for an op of no part, which goes to the part of its inputs.
        passes: the passes that it contains.
        sums: placeholders of sums over slices, which are computed between stages, as `Parts.sums`.
    """
    captured, results = _captured(function), passes.results
    gradients = tf.nest.flatten([passes.gradients, passes.of_tables], expand_composites=True)
    gradients = [x for x in gradients if x is not None]
    summed = {total.name: x for total, x, _ in sums}
    outside = {*names(function.inputs), *names(passes.upstream), *summed}
    effects = list(function.graph.control_outputs)
    before = {op.name for op in function.graph.get_operations()[: passes.num_forward]}
    forward = _needed([*(x.op for x in results), *(op for op in effects if op.name in before)], outside, summed)
    of_gradients = [x.op for x in gradients if x.name not in outside]
    needed = forward | _needed([*of_gradients, *effects], outside, summed)
    ops = _in_order([op for op in function.graph.get_operations() if op.name in needed], summed)
    stages = _Dealing(parts, forward, outside, summed).deal(ops)
    _connect(stages, [*results, *gradients, *summed.values()], captured)
    library = StageFunction(function.graph, captured, differentiated=bool(passes.upstream))
    for stage in stages:
        stage.function = library.trace(stage.ops, stage.takes, stage.gives)
    return stages


def _captured(function: tf.types.experimental.ConcreteFunction) -> dict[str, tf.Tensor]:
    """Return the tensors that a trace captures, such as lookup tables, by the names of the tensors inside."""
    outer = function.captured_inputs
    inner = function.inputs[len(function.inputs) - len(outer) :]
    return {x.name: tensor for x, tensor in zip(inner, outer, strict=True)}


def _needed(wanted: Sequence[tf.Operation], outside: Collection[str], summed: Mapping[str, tf.Tensor]) -> set[str]:
    """Return the names of these ops and of the ops on which they depend."""
    seen: set[str] = set()
    pending = [op for op in wanted if op.type != "Placeholder"]
    while pending:
        op = pending.pop()
        if op.name not in seen:
            seen.add(op.name)
            pending += _before(op, outside, summed)
    return seen


def _before(op: tf.Operation, outside: Collection[str], summed: Mapping[str, tf.Tensor]) -> list[tf.Operation]:
    """Return the ops before an op, also if a sum over slices is between them."""
    inputs = [summed.get(x.name, x) for x in op.inputs if x.name in summed or x.name not in outside]
    return [before for before in [*(x.op for x in inputs), *op.control_inputs] if before.type != "Placeholder"]


def _in_order(ops: Sequence[tf.Operation], summed: Mapping[str, tf.Tensor]) -> list[tf.Operation]:
    """Return ops after all ops on which they depend. Only ops that a gradient adds before a loop are out of order."""
    made = {op.name: op for op in ops}
    order: dict[str, tf.Operation] = {}
    for op in ops:
        pending = [op]
        while pending:
            missing = [b for b in _before(pending[-1], (), summed) if b.name in made and b.name not in order]
            if missing:
                pending += missing
            else:
                last = pending.pop()
                order[last.name] = last
    return list(order.values())


@dataclass(eq=False)
class _Dealing:
    """Assigns ops to stages: each op to the first stage of its part in which all of its inputs are known."""

    parts: Mapping[str, int | None]
    forward: Collection[str]
    outside: Collection[str]
    summed: Mapping[str, tf.Tensor]
    stages: list[Stage] = field(default_factory=list)
    number: dict[str, int] = field(default_factory=dict)  # the stage of an op

    def deal(self, ops: Sequence[tf.Operation]) -> list[Stage]:
        """Return the stages with their ops. The ops are given in an order in which they can run."""
        for backward in (False, True):
            first = len(self.stages)
            of_pass = [op for op in ops if (op.name not in self.forward) == backward]
            loose = [op for op in of_pass if not self._deal(op, backward, first)]
            self._deal_loose(loose, of_pass, backward, first)
            for op in of_pass:
                self.stages[self.number[op.name]].ops.append(op)
        return self.stages

    def _deal(self, op: tf.Operation, backward: bool, first: int) -> bool:
        """Assign an op to a stage, if it belongs to a part or depends on one."""
        known = [self.number[x.op.name] for x in op.inputs if x.op.name in self.number and x.name not in self.summed]
        sums = [self.summed[x.name].op.name for x in op.inputs if x.name in self.summed]
        known += [self.number[name] + 1 for name in sums]  # after all slices have passed the stages that are summed
        part = self.parts.get(op.name)
        if part is None and known:
            part = self.stages[min(max(known), len(self.stages) - 1)].part
        if part is not None:
            self.number[op.name] = self._first_of(part, max([first, *known]), backward)
        return part is not None

    def _deal_loose(
        self, loose: Sequence[tf.Operation], ops: Sequence[tf.Operation], backward: bool, first: int
    ) -> None:
        """Assign ops that depend on no part to the stage that needs them first."""
        readers: dict[str, list[int]] = {}
        for op in ops:
            for before in _before(op, self.outside, {}):
                readers.setdefault(before.name, []).append(self.number.get(op.name, -1))
        for op in reversed(loose):
            known = [number for number in readers.get(op.name, []) if number >= 0]
            number = min(known) if known else self._first_of(0, first, backward)
            self.number[op.name] = number
            for before in _before(op, self.outside, {}):
                readers[before.name].append(number)

    def _first_of(self, part: int, least: int, backward: bool) -> int:
        for number in range(least, len(self.stages)):
            if self.stages[number].part == part:
                return number
        self.stages.append(Stage(f"stage {len(self.stages)}", part, backward))
        return len(self.stages) - 1


def _connect(stages: Sequence[Stage], results: Sequence[tf.Tensor], captured: dict[str, tf.Tensor]) -> None:
    """Record the inputs and outputs of each stage. Each has the constants that it reads: some ops need their values."""
    wanted = {x.name: x for x in results}
    for stage in stages:
        constants = (x.op for op in stage.ops for x in op.inputs if x.op.type == "Const")
        own = {op.name: op for op in [*stage.ops, *constants]}
        stage.ops = list(own.values())
        taken = {x.name: x for op in stage.ops for x in op.inputs if x.op.name not in own and x.name not in captured}
        stage.takes = list(taken.values())
        wanted.update(taken)
    for stage in stages:
        stage.gives = [x for op in stage.ops for x in op.outputs if x.name in wanted]


def names(tensors: Sequence[tf.Tensor]) -> list[str]:
    """Return the names of tensors, by which a trace knows them: a gradient makes the outputs of a loop again."""
    return [x.name for x in tensors]
