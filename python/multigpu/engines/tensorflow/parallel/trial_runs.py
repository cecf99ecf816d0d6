"""Run a replica on some rows of a batch, on one device, outside of the step: without assignments and tapes."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from multigpu.engines.tensorflow.batches.call_arguments import CallArguments, flatten_composites
from multigpu.engines.tensorflow.batches.split_merge import count_rows, merge, take_rows
from multigpu.engines.tensorflow.cluster.one_worker import OneWorker
from multigpu.engines.tensorflow.replicas.layer_calls import LayerCall, LayerCalls
from multigpu.engines.tensorflow.replicas.outputs import Result
from multigpu.engines.tensorflow.replicas.outside_state import changes_refused
from multigpu.engines.tensorflow.replicas.position import Position
from multigpu.engines.tensorflow.replicas.replica import Function, Replica, complete_trace
from multigpu.engines.tensorflow.replicas.row_mixing import WholeBatchError
from multigpu.engines.tensorflow.replicas.state import weighted_mean
from multigpu.engines.tensorflow.replicas.sync_batch_norm import HeldStatistics
from multigpu.engines.tensorflow.replicas.template import TemplateParts, refuse_new_weights
from multigpu.engines.tensorflow.weights.place_locate import read
from multigpu.engines.tensorflow.weights.rows import Rows
from multigpu.plan.plan import Plan

Change = Callable[[tf.Tensor], tf.Tensor]


class Span(NamedTuple):
    """A span of a batch, from `begin` up to but not including `end`."""

    begin: int
    end: int


class TrialRuns:
    """Runs a template on slices of a batch, one after the other.

    BatchNormalization uses its moving statistics, because the statistics of slices are known to differ.
    """

    def __init__(self, parts: TemplateParts, batch: CallArguments, plan: Plan) -> None:
        """Trace a replica. If it cannot be traced, or a trace would wait for a thread, all runs are op by op.

        Args:
            parts: the parts of the template.
            batch: the arguments of the call, with tensors or types.
            plan: the plan of the call. Trials run on its first device.

        Raises:
            WholeBatchError: the trace shows that a layer mixes rows.
        """
        self._parts = dataclasses.replace(parts, statistics=HeldStatistics(parts.layers), jit_compile=False)
        self._plan = dataclasses.replace(plan, groups=(), parts=())
        self._workers = OneWorker(self._plan.first_devices)
        self._batch = batch
        self._replica = self._made(batch)
        specs = [*(tf.TensorSpec((), x.dtype) for x in batch.scalars), *self._replica.specs]
        self._function: Function = self._run_replica
        with self._apart():
            try:
                trace = complete_trace(self._run_replica, specs, self._replica.carried)
                self._function = self._function if has_one_thread() else trace
                self._replica.note_captured(trace)
            except WholeBatchError:
                raise
            except Exception:  # any error of code that needs numbers
                pass

    @property
    def ways(self) -> dict[int, Rows]:
        """Return how rows of weights and tables are looked up, by their ids, as far as a trace shows it."""
        types = getattr(self._replica, "types", {})
        return {**{weight: each.rows for weight, each in types.items() if each.rows}, **self._replica.rows_of_tables}

    def take(self, inputs: Sequence[tf.Tensor]) -> int:
        """Store values of the call's inputs: scalars, then components of tensors. Return the number of rows."""
        number = len(self._batch.scalars)
        self._scalars, components = list(inputs[:number]), list(inputs[number:])
        self._tensors = tf.nest.pack_sequence_as(self._batch.types(None), components, expand_composites=True)
        self._total = int(count_rows(self._tensors[:1]))
        return self._total

    def run(self, rows: Span, change: Change = tf.identity) -> Result:
        """Return the template's results for some rows, after a change to each tensor of its input."""
        op_by_op = self._function == self._run_replica
        refused = changes_refused([self._parts.template, *self._parts.layers])
        with self._apart(), refused if op_by_op else contextlib.nullcontext():
            results = self._function(*self._taken(rows, change))
            return self._replica.layout.open(results)  # run op by op, it is known only now

    def merged(self, results: Sequence[Result], slices: Sequence[Span]) -> dict[str, tf.Tensor]:
        """Merge the results of slices, by kind: outputs, added losses, and assigned values."""
        kept = [tf.constant(rows.end - rows.begin) for rows in slices]
        with self._apart():
            outputs = [merge(pieces) for pieces in zip(*(result.with_rows for result in results), strict=True)]
            losses = [weighted_mean(each, kept) for each in zip(*(result.losses for result in results), strict=True)]
            state = list(self._replica.updates.combined([result.updates for result in results], kept, self._workers))
        return {
            **self._named(outputs),
            **{f"added loss {number}": x for number, x in enumerate(losses)},
            # otherwise its user chooses how the values of slices are combined
            **{f"variable {v.path!r}": x for v, x in state if v.aggregation == "none"},
        }

    def _named(self, outputs: Sequence[tf.Tensor]) -> dict[str, tf.Tensor]:
        """Return outputs and inner layers' tensors by name, then those of attributes, which may be positions."""
        kept = self._replica.kept_with_rows
        places = [(f"{each.name!r} of layer {each.layer.name!r}", n) for each in kept for n in range(len(each.tensors))]
        first = len(outputs) - len(places)
        return {
            **{f"output {number}": x for number, x in enumerate(outputs[:first])},
            **{
                f"tensor {n} of {name}": x
                for (name, n), x in zip(places, outputs[first:], strict=True)
                if x.dtype.is_floating
            },
        }

    def device_computes(self) -> bool:
        """Return whether the device computes numbers. A fake GPU that only counts copies returns anything."""
        with self._apart():
            return np.array_equal(tf.square(tf.constant([2.0, 3.0])), [4.0, 9.0])

    def calls(self, rows: Span) -> LayerCall:
        """Return the calls of layers and operations in a run op by op, up to an error."""
        graphs = [self._parts.template, *self._parts.layers]
        called = [*self._parts.layers, *(each for graph in graphs for each in getattr(graph, "operations", []))]
        calls = LayerCalls(self._parts.template)
        # any error may be raised: the failed call has no result
        with self._apart(), calls.noted(list(dict.fromkeys(called))), contextlib.suppress(Exception):
            scalars, others = len(self._scalars), self._taken(rows, tf.identity)
            self._made(self._batch.with_scalars(self._scalars))(*others[scalars:])
        return calls.root

    def _made(self, batch: CallArguments) -> Replica:
        return Replica(self._parts, batch, alone=False, workers=self._workers, plan=self._plan)

    def _run_replica(self, *inputs: tf.Tensor) -> list[tf.Tensor]:
        number = len(self._batch.scalars)
        replica = self._made(self._batch.with_scalars(inputs[:number]))
        replica.carried, replica.draws = self._replica.carried, self._replica.draws
        self._replica = replica
        return replica(*inputs[number:])

    def _position(self, rows: Span) -> Position:
        """Return the position of some rows in a batch of all rows that are run."""
        return Position(*map(tf.constant, (rows.end - rows.begin, 0, rows.begin, self._total)))

    def _taken(self, rows: Span, change: Change) -> list[tf.Tensor]:
        """Return the inputs of the replica for some rows."""
        variables = [read(variable) for variable in (*self._parts.weights, *self._parts.state)]
        slices = [take_rows(x, rows.begin, rows.end - rows.begin) for x in self._tensors]
        numbers = [change(x) for x in [*variables, *flatten_composites(slices)]]
        return [*self._scalars, *numbers, *self._position(rows)]

    @contextlib.contextmanager
    def _apart(self) -> Iterator[None]:
        """Run outside of any function and tape, on the first device. Layers keep no tensor of it."""
        layers = [self._parts.template, *self._parts.layers]
        before, known = [dict(vars(layer)) for layer in layers], set(map(id, self._parts.template.variables))
        eagerly = tf.config.functions_run_eagerly()
        tf.config.run_functions_eagerly(eagerly or has_one_thread())
        try:
            with tf.init_scope(), tf.device(self._plan.first_devices[0]):
                yield
        finally:
            tf.config.run_functions_eagerly(eagerly)
            refuse_new_weights(self._parts.template, known)  # these do not move
            for layer, attributes in zip(layers, before, strict=True):
                for new in vars(layer).keys() - attributes.keys():
                    del vars(layer)[new]
                vars(layer).update(attributes)


def has_one_thread() -> bool:
    """Return whether TensorFlow has one thread for ops: an op that waits for a function would wait for ever."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    asked = tf.config.threading.get_inter_op_parallelism_threads() or int(os.environ.get("TF_NUM_INTEROP_THREADS", 0))
    return (asked or cores) == 1


def with_other_last_digits(digit: float) -> Change:
    """Return floating-point numbers changed by about their last digit, up or down."""
    random = np.random.default_rng(0)

    def change(x: tf.Tensor) -> tf.Tensor:
        return x * tf.cast(1 + digit * random.choice([-1, 1], x.shape), x.dtype) if x.dtype.is_floating else x

    return change
