"""Stages: the trace of a replica, cut where it goes from one part of the template to another.

A stage is what one part does in one go, forward or backward. It is a function of its own, so that it runs on the device
of its part in each group, and slices can go through a device one behind the other, as in GPipe: Y. Huang and others,
"GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism", 2019, https://arxiv.org/abs/1811.06965.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import tensorflow as tf

from multigpu.engines.tensorflow.pipeline.stage_function import StageFunction
from multigpu.engines.tensorflow.replicas.parts import Sum


@dataclass(eq=False)
class Stage:
    """Ops of one part that run together.

    Attributes:
        name: tells it from the others.
        part: number of the part.
        backward: whether it is of the backward pass.
        ops: in the order in which they were made.
        takes: tensors of the trace that are made elsewhere, and not known to all.
        gives: its tensors that others take, or that are results.
        function: of `takes`, for `gives`.
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
    num_forward: int,
    results: Sequence[tf.Tensor],
    gradients: Sequence[tf.Tensor],
    upstream: Sequence[tf.Tensor],
    sums: Sequence[Sum],
) -> list[Stage]:
    """The stages of a trace, in an order in which they can run.

    Args:
        function: the trace.
        parts: of its ops, by name; None for one of no part, which goes where its inputs are.
        num_forward: how many of its ops were made in the forward pass, before all others.
        results: tensors that it makes in the forward pass.
        gradients: tensors that it makes in the backward pass.
        upstream: the gradients that it is given for the backward pass.
        sums: tensors that stand for sums over slices, which are made between stages, as `Parts.sums`.
    """
    captured = _captured(function)
    summed = {total.name: x for total, x, _ in sums}
    outside = {*names(function.inputs), *names(upstream), *summed}
    effects = list(function.graph.control_outputs)
    before = {op.name for op in function.graph.get_operations()[:num_forward]}
    forward = _needed([*(x.op for x in results), *(op for op in effects if op.name in before)], outside, summed)
    of_gradients = [x.op for x in gradients if x.name not in outside]
    needed = forward | _needed([*of_gradients, *effects], outside, summed)
    ops = _in_order([op for op in function.graph.get_operations() if op.name in needed], summed)
    stages = _Dealing(parts, forward, outside, summed).deal(ops)
    _connect(stages, [*results, *gradients, *summed.values()], captured)
    library = StageFunction(function.graph, captured, differentiated=bool(upstream))
    for stage in stages:
        stage.function = library.trace(stage.ops, stage.takes, stage.gives)
    return stages


def _captured(function: tf.types.experimental.ConcreteFunction) -> dict[str, tf.Tensor]:
    """Return the tensors that a trace captures, such as lookup tables, by the names of the tensors inside."""
    outer = function.captured_inputs
    inner = function.inputs[len(function.inputs) - len(outer) :]
    return {x.name: tensor for x, tensor in zip(inner, outer, strict=True)}


def _needed(wanted: Sequence[tf.Operation], outside: Collection[str], summed: Mapping[str, tf.Tensor]) -> set[str]:
    """Names of the ops that others depend on, and of these."""
    seen: set[str] = set()
    pending = [op for op in wanted if op.type != "Placeholder"]
    while pending:
        op = pending.pop()
        if op.name not in seen:
            seen.add(op.name)
            pending += _before(op, outside, summed)
    return seen


def _before(op: tf.Operation, outside: Collection[str], summed: Mapping[str, tf.Tensor]) -> list[tf.Operation]:
    """The ops that come before one, be it with a sum over slices between them."""
    inputs = [summed.get(x.name, x) for x in op.inputs if x.name in summed or x.name not in outside]
    return [before for before in [*(x.op for x in inputs), *op.control_inputs] if before.type != "Placeholder"]


def _in_order(ops: Sequence[tf.Operation], summed: Mapping[str, tf.Tensor]) -> list[tf.Operation]:
    """Ops after all that they depend on. They were made so, but for those that a gradient adds before a loop."""
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


class _Dealing:
    """Deals ops to stages: each goes into the first one of its part in which all of its inputs are known."""

    def __init__(
        self,
        parts: Mapping[str, int | None],
        forward: Collection[str],
        outside: Collection[str],
        summed: Mapping[str, tf.Tensor],
    ) -> None:
        self._parts, self._forward = parts, forward
        self._outside, self._summed = outside, summed
        self._stages: list[Stage] = []
        self._number: dict[str, int] = {}  # of the stage of an op

    def deal(self, ops: Sequence[tf.Operation]) -> list[Stage]:
        """The stages with their ops, which are given in an order in which they can run."""
        for backward in (False, True):
            first = len(self._stages)
            of_pass = [op for op in ops if (op.name not in self._forward) == backward]
            loose = [op for op in of_pass if not self._deal(op, backward, first)]
            self._deal_loose(loose, of_pass, backward, first)
            for op in of_pass:
                self._stages[self._number[op.name]].ops.append(op)
        return self._stages

    def _deal(self, op: tf.Operation, backward: bool, first: int) -> bool:
        """Deals an op, if it is of a part or depends on one."""
        known = [self._number[x.op.name] for x in op.inputs if x.op.name in self._number and x.name not in self._summed]
        sums = [self._summed[x.name].op.name for x in op.inputs if x.name in self._summed]
        known += [self._number[name] + 1 for name in sums]  # after all slices have gone through what is summed
        part = self._parts.get(op.name)
        if part is None and known:
            part = self._stages[min(max(known), len(self._stages) - 1)].part
        if part is not None:
            self._number[op.name] = self._first_of(part, max([first, *known]), backward)
        return part is not None

    def _deal_loose(
        self, loose: Sequence[tf.Operation], ops: Sequence[tf.Operation], backward: bool, first: int
    ) -> None:
        """Deals ops that depend on no part to the stage that needs them first."""
        readers: dict[str, list[int]] = {}
        for op in ops:
            for before in _before(op, self._outside, {}):
                readers.setdefault(before.name, []).append(self._number.get(op.name, -1))
        for op in reversed(loose):
            known = [number for number in readers.get(op.name, []) if number >= 0]
            number = min(known) if known else self._first_of(0, first, backward)
            self._number[op.name] = number
            for before in _before(op, self._outside, {}):
                readers[before.name].append(number)

    def _first_of(self, part: int, least: int, backward: bool) -> int:
        for number in range(least, len(self._stages)):
            if self._stages[number].part == part:
                return number
        self._stages.append(Stage(f"stage {len(self._stages)}", part, backward))
        return len(self._stages) - 1


def _connect(stages: Sequence[Stage], results: Sequence[tf.Tensor], captured: dict[str, tf.Tensor]) -> None:
    """Notes what each stage takes and gives."""
    wanted = {x.name: x for x in results}
    for stage in stages:
        own = {op.name for op in stage.ops}
        taken = {x.name: x for op in stage.ops for x in op.inputs if x.op.name not in own and x.name not in captured}
        stage.takes = list(taken.values())
        wanted.update(taken)
    for stage in stages:
        stage.gives = [x for op in stage.ops for x in op.outputs if x.name in wanted]


def sums_before(stage: Stage, sums: Sequence[Sum]) -> Iterator[Sum]:
    """The sums over slices that a stage takes."""
    taken = {x.name for x in stage.takes}
    return (each for each in sums if each[0].name in taken)


def names(tensors: Sequence[tf.Tensor]) -> list[str]:
    """Names of tensors, by which a trace knows them: a gradient makes the outputs of a loop anew."""
    return [x.name for x in tensors]
