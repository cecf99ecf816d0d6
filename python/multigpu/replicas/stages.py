"""Stages: the trace of a replica, cut where it goes from one part of the template to another.

A stage is what one part does in one go, forward or backward. It is a function of its own, so that it runs on the device
of its part in each group, and slices can go through a device one behind the other, as in GPipe: Y. Huang and others,
"GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism", 2019, https://arxiv.org/abs/1811.06965.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import tensorflow as tf

from multigpu.replicas.stage_function import StageFunction


@dataclass(eq=False)
class Stage:
    """Ops of one part that run together.

    Attributes:
        part: number of the part.
        backward: whether it is of the backward pass.
        ops: in the order in which they were made.
        takes: tensors of the trace that are made elsewhere, and not known to all.
        gives: its tensors that others take, or that are results.
        function: of `takes`, for `gives`.
    """

    part: int
    backward: bool
    ops: list[tf.Operation] = field(default_factory=list)
    takes: list[tf.Tensor] = field(default_factory=list)
    gives: list[tf.Tensor] = field(default_factory=list)
    function: Callable[..., list[tf.Tensor]] | None = None


def cut(
    function: tf.types.experimental.ConcreteFunction,
    parts: Sequence[int | None],
    num_forward: int,
    results: Sequence[tf.Tensor],
    given: Sequence[tf.Tensor],
    sums: Sequence[tuple[tf.Tensor, tf.Tensor]],
) -> list[Stage]:
    """The stages of a trace, in an order in which they can run.

    Args:
        function: the trace.
        parts: of each of its ops, in the order in which they were made; None for one of no part, which goes where its
            inputs are.
        num_forward: how many ops are of the forward pass.
        results: tensors that it makes and that are wanted.
        given: tensors that need not be made: inputs, and gradients of results.
        sums: tensors that stand for sums over slices, which are made between stages, each with what is summed.
    """
    ops = function.graph.get_operations()
    captured = _captured(function)
    outside = {id(x) for x in [*given, *(total for total, _ in sums)]} | captured.keys()
    summed = {id(total): x for total, x in sums}
    needed = _needed(ops, [*results, *summed.values()], function.graph.control_outputs, outside)
    stages = _dealt(ops, needed, parts, num_forward, outside, summed)
    _connect(stages, [*results, *summed.values()], captured)
    library = StageFunction(function.graph, captured)
    for stage in stages:
        stage.function = library.trace(stage.ops, stage.takes, stage.gives)
    return stages


def _captured(function: tf.types.experimental.ConcreteFunction) -> dict[int, tf.Tensor]:
    """What a trace takes from around it, such as lookup tables, by the ids of the tensors inside."""
    outer = function.captured_inputs
    inner = function.inputs[len(function.inputs) - len(outer) :]
    return {id(x): tensor for x, tensor in zip(inner, outer, strict=True)}


def _needed(
    ops: Sequence[tf.Operation], wanted: Sequence[tf.Tensor], effects: Sequence[tf.Operation], outside: set[int]
) -> set[int]:
    """Numbers of the ops that tensors, and effects such as `tf.print`, depend on."""
    number = {id(op): position for position, op in enumerate(ops)}
    seen: set[int] = set()
    pending = [x.op for x in wanted if id(x) not in outside] + list(effects)
    while pending:
        op = pending.pop()
        if number[id(op)] in seen or op.type == "Placeholder":
            continue
        seen.add(number[id(op)])
        pending += [x.op for x in op.inputs if id(x) not in outside] + list(op.control_inputs)
    return seen


def _dealt(
    ops: Sequence[tf.Operation],
    needed: set[int],
    parts: Sequence[int | None],
    num_forward: int,
    outside: set[int],
    summed: dict[int, tf.Tensor],
) -> list[Stage]:
    """Stages with their ops. An op goes into the first stage of its part in which all of its inputs are known."""
    stages: list[Stage] = []
    stage_of: dict[int, int] = {}  # of an op, by id
    first_backward = 0
    loose: list[int] = []  # ops of no part that depend on none

    def first_of(part: int, least: int, backward: bool) -> int:
        for number in range(max(least, first_backward if backward else 0), len(stages)):
            if stages[number].part == part:
                return number
        stages.append(Stage(part, backward))
        return len(stages) - 1

    for position in sorted(needed):
        op, backward = ops[position], position >= num_forward
        if backward and not first_backward:
            first_backward = len(stages)
        known = [stage_of[id(x.op)] for x in op.inputs if id(x) not in outside and id(x.op) in stage_of]
        known += [stage_of[id(summed[id(x)].op)] + 1 for x in op.inputs if id(x) in summed and id(summed[id(x)].op) in stage_of]
        part = parts[position]
        if part is None and not known:
            loose.append(position)
            continue
        least = max(known, default=0)
        if part is None:
            part = stages[min(least, len(stages) - 1)].part
        stage_of[id(op)] = first_of(part, least, backward)
    _deal_loose(ops, needed, loose, stage_of, first_of)
    for position in sorted(needed):
        stages[stage_of[id(ops[position])]].ops.append(ops[position])
    return stages


def _deal_loose(
    ops: Sequence[tf.Operation],
    needed: set[int],
    loose: Sequence[int],
    stage_of: dict[int, int],
    first_of: Callable[[int, int, bool], int],
) -> None:
    """Puts ops that depend on no part into the stage that needs them first."""
    readers: dict[int, list[tf.Operation]] = {}
    for position in needed:
        for x in ops[position].inputs:
            readers.setdefault(id(x.op), []).append(ops[position])
    for position in reversed(loose):
        first = [stage_of[id(reader)] for reader in readers.get(id(ops[position]), []) if id(reader) in stage_of]
        stage_of[id(ops[position])] = min(first) if first else first_of(0, 0, False)


def _connect(stages: Sequence[Stage], results: Sequence[tf.Tensor], captured: dict[int, tf.Tensor]) -> None:
    """Notes what each stage takes and gives."""
    wanted = {id(x): x for x in results}
    for stage in stages:
        own = set(map(id, stage.ops))
        taken = {id(x): x for op in stage.ops for x in op.inputs if id(x.op) not in own and id(x) not in captured}
        stage.takes = list(taken.values())
        wanted.update(taken)
    for stage in stages:
        stage.gives = [x for op in stage.ops for x in op.outputs if id(x) in wanted]


def sums_before(stage: Stage, sums: Sequence[tuple[tf.Tensor, tf.Tensor]]) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
    """The sums over slices that a stage takes."""
    taken = set(map(id, stage.takes))
    return ((total, x) for total, x in sums if id(total) in taken)
