"""Run a replica on some rows of a batch, on one device, outside of the step and its tapes: without assignments."""

import contextlib
import dataclasses
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from multigpu.base.replaced import ONE_AT_A_TIME
from multigpu.engines.tensorflow.batches.call_arguments import CallArguments, flatten_composites
from multigpu.engines.tensorflow.batches.split_merge import Position, count_rows, take_rows
from multigpu.engines.tensorflow.cluster.reduction import Reduction
from multigpu.engines.tensorflow.private_api.gradients import dense, tapes_of_their_own
from multigpu.engines.tensorflow.private_api.graph_passes import optimized_once
from multigpu.engines.tensorflow.private_api.variables import backing_variable
from multigpu.engines.tensorflow.replicas.kept_tensors import Contents, Kept
from multigpu.engines.tensorflow.replicas.layer_calls import LayerCall, LayerCalls, callables
from multigpu.engines.tensorflow.replicas.outputs import Result
from multigpu.engines.tensorflow.replicas.outside_state import changes_refused
from multigpu.engines.tensorflow.replicas.parts import scopes_noted
from multigpu.engines.tensorflow.replicas.replica import Replica
from multigpu.engines.tensorflow.replicas.row_mixing import WholeBatchError
from multigpu.engines.tensorflow.replicas.state import weighted_mean
from multigpu.engines.tensorflow.replicas.sync_batch_norm import HeldStatistics
from multigpu.engines.tensorflow.replicas.template import OfTrace, TemplateState, refuse_new_weights
from multigpu.engines.tensorflow.replicas.trace import trace
from multigpu.engines.tensorflow.replicas.traced import Traced, with_facts
from multigpu.engines.tensorflow.replicas.xla import not_clustered
from multigpu.engines.tensorflow.weights.place_locate import read
from multigpu.engines.tensorflow.weights.rows import Rows
from multigpu.plan.plan import Plan
from multigpu.private_api.default_generator import as_default_generator, default_generator

Change = Callable[[tf.Tensor], tf.Tensor]


class Ran(NamedTuple):
    """The results for some rows, what the run has shown, and gradients by name, which add up over slices."""

    rows: range
    results: Result
    traced: Traced
    gradients: Mapping[str, tf.Tensor]


class TrialRuns:
    """Runs a template on slices of a batch, one after the other.

    BatchNormalization uses its moving statistics, because the statistics of slices are known to differ.

    Attributes:
        of_trace: what a trace shows of runs op by op.
    """

    def __init__(self, template: TemplateState, batch: CallArguments, plan: Plan) -> None:
        """Trace a replica. If it cannot be traced, or a trace would wait for a thread, all runs are op by op.

        Args:
            template: the state of the template.
            batch: the arguments of the call, with tensors or types.
            plan: the plan of the call. Trials run on its first device.

        Raises:
            WholeBatchError: the trace shows that a layer mixes rows.
        """
        self._template = dataclasses.replace(template, statistics=HeldStatistics(template.layers), jit_compile=False)
        self._workers = Reduction()
        plan = dataclasses.replace(plan, groups=(), parts=())
        self._replica = Replica(self._template, batch, alone=False, workers=self._workers, plan=plan)
        self._batch = batch
        self._traced: Traced | None = None
        self._generator = default_generator()
        self.of_trace = OfTrace()
        self._op_by_op = num_threads() < (3 if is_within_op() else 2)  # with a function, the check would wait for ever
        with self._apart():
            try:
                with tapes_of_their_own():
                    self._replica, traced = trace(self._replica)
                self._traced = None if self._op_by_op else traced
                ways = self._replica.template.by_weight([types.rows or Rows.APART for types in traced.types])
                ways |= {table: [rows] for table, rows in traced.rows_of_tables.items()}
                self.of_trace = OfTrace(ways, traced.layout.same, traced.layout.without_rank)
                self._replica = dataclasses.replace(self._replica, of_trace=self.of_trace)
            except WholeBatchError:
                raise
            except Exception:  # any error of code that needs numbers
                pass
        self._generator = default_generator()  # that of the trace: the thread of a check would make another
        self._gradients = tf.function(self._gradients_of_weights, self._replica.specs, autograph=False)

    @property
    def resources(self) -> list[tf.Tensor]:
        """The handles of the variables that the runs read, also of those unknown to Keras, if a trace shows them."""
        of_noise = [self._generator.state] if self._generator else []
        others = self._traced.function.captured_inputs if self._traced and self._traced.function else []
        known = [backing_variable(variable).handle for variable in [*self._template.model.variables, *of_noise]]
        return [*known, *(x for x in others if x.dtype == tf.resource)]

    def take(self, inputs: Sequence[tf.Tensor]) -> int:
        """Store values of the call's inputs: scalars, then components of tensors. Return the number of rows."""
        number = len(self._batch.scalars)
        self._scalars, components = list(inputs[:number]), list(inputs[number:])
        self._tensors = tf.nest.pack_sequence_as(self._batch.types(None), components, expand_composites=True)
        self._total = int(count_rows(self._tensors[:1]))
        return self._total

    def run(self, rows: range, change: Change = tf.identity) -> Ran:
        """Return the template's results for some rows, after a change to each tensor of its input."""
        traced = self._traced
        refused = changes_refused([self._template.model, *self._template.layers])
        with self._apart(), contextlib.nullcontext() if traced else refused:
            inputs = self._taken(rows, change)
            if traced and traced.function:
                results = traced.function(*inputs)
                with tapes_of_their_own():  # a part of `keras.remat` takes its gradient from one
                    graph = self._gradients.get_concrete_function  # also where functions run op by op
                    gradients = graph()(*inputs) if self.with_custom_gradient() else {}
            else:
                with tapes_of_their_own():
                    (results, traced), gradients = with_facts(self._replica, *inputs), {}
                self._replica = dataclasses.replace(self._replica, draws=traced.draws)
            return Ran(rows, traced.layout.open(results), traced, gradients)

    def _gradients_of_weights(self, *inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the gradients of weights, by name, of outputs in which each number has a weight of its own.

        A gradient that is a new value of its variable does not add up over slices. It is a graph without a tape,
        because none records what runs outside of all tapes.
        """
        position = Position.at_end_of(inputs)
        assert self._traced
        assert self._traced.function
        results = self._traced.layout.open(self._traced.function(*inputs)).with_rows
        of_rows = [x for n, x in enumerate(results) if n not in self.of_trace.same]
        outputs = [x for x in of_rows if isinstance(x, tf.Tensor) and x.dtype.is_floating]
        upstream = [_weights_of_rows(x, position) for x in outputs]
        given = zip(self._replica.variables, inputs, strict=False)
        weights = [(v, x) for v, x in given if x.dtype.is_floating and not v.overwrite_with_gradient]
        found = tf.gradients(outputs, [x for _, x in weights], upstream, unconnected_gradients="zero")
        gradients: dict[str, tf.Tensor] = {}
        for (variable, _), gradient in zip(weights, map(dense, found), strict=True):  # of each copy of it
            name = f"the gradient of {variable.path!r}"
            gradients[name] = gradients.get(name, 0) + gradient
        return gradients

    def merged(self, runs: Sequence[Ran]) -> dict[str, tf.Tensor]:
        """Merge the results of slices, by kind: outputs, added losses, and assigned values."""
        results, traced = [each.results for each in runs], runs[-1].traced
        kept = [tf.constant(len(each.rows)) for each in runs]
        with self._apart():
            outputs = traced.layout.merge(results)
            losses = [weighted_mean(each, kept) for each in zip(*(result.losses for result in results), strict=True)]
            state = list(traced.updates.combined([result.updates for result in results], kept, self._workers))
        return {
            **_named(outputs, traced.calls.kept_with_rows),
            **{f"added loss {number}": x for number, x in enumerate(losses)},
            **{name: tf.add_n([each.gradients[name] for each in runs]) for name in runs[0].gradients},
            # otherwise its user chooses how the values of slices are combined
            **{f"variable {v.path!r}": x for v, x in state if v.aggregation == "none"},
        }

    def with_custom_gradient(self) -> str | None:
        """Return the name of the first layer with a custom gradient of the user's, if a gradient may be taken."""
        layers = self._traced.calls.with_custom_gradient if self._traced and self._batch.training is not False else []
        return layers[0].name if layers else None

    def types(self) -> set[tf.DType]:
        """Return the types of all tensors of the trace. Without one, return those of the batch."""
        if self._traced is None or self._traced.function is None:
            return {x.dtype for x in flatten_composites(self._tensors)}
        graph = self._traced.function.graph.as_graph_def()
        nodes = itertools.chain(graph.node, *(each.node_def for each in graph.library.function))
        return {tf.as_dtype(value.type) for node in nodes for value in node.attr.values() if value.type}

    def device_computes(self) -> bool:
        """Return whether the device computes numbers. A fake GPU that only counts copies returns anything."""
        with self._apart():
            return np.array_equal(tf.square(tf.constant([2.0, 3.0])), [4.0, 9.0])

    def calls(self, rows: range) -> LayerCall:
        """Return the calls of layers and operations in a run op by op, up to an error."""
        template = self._template.model
        calls, (_, *called) = LayerCalls(template), callables([template, *self._template.layers])
        # any error may be raised: the failed call has no result
        with self._apart(), calls.noted(called), contextlib.suppress(Exception):
            inputs = self._taken(rows, tf.identity)
            with tapes_of_their_own():
                with_facts(self._replica, *inputs)
        return calls.root

    def _taken(self, rows: range, change: Change) -> list[tf.Tensor]:
        """Return the inputs of the replica for some rows of the batch of all rows that are run."""
        variables = [_without_zeros(read(v)) if v.trainable else read(v) for v in self._replica.variables]
        slices = [take_rows(x, rows.start, len(rows)) for x in self._tensors]
        numbers = [change(x) for x in [*variables, *flatten_composites(slices)]]
        return [*numbers, *self._scalars, *Position(*map(tf.constant, (len(rows), 0, rows.start, self._total)))]

    @contextlib.contextmanager
    def _apart(self) -> Iterator[None]:
        """Run outside of any function and tape, on the first device. Layers keep no tensor of it."""
        with ONE_AT_A_TIME:
            yield from self._alone()

    def _alone(self) -> Iterator[None]:
        layers = [self._template.model, *self._template.layers]
        before, known = list(map(Contents, layers)), set(map(id, self._template.model.variables))
        eagerly = tf.config.functions_run_eagerly()
        tf.config.run_functions_eagerly(eagerly or self._op_by_op)
        noise = as_default_generator(self._generator) if self._generator else contextlib.nullcontext()
        in_one_part = scopes_noted(lambda device: contextlib.nullcontext())  # whatever `on_device()` names
        try:
            device = tf.device(self._replica.plan.replicas[0][0])
            with tf.init_scope(), device, noise, in_one_part, optimized_once(training=True):
                yield
        finally:
            tf.config.run_functions_eagerly(eagerly)
            refuse_new_weights(self._template.model, known)  # these do not move
            for contents in before:
                contents.put_back()


def _named(outputs: Sequence[tf.Tensor], kept: Sequence[Kept]) -> dict[str, tf.Tensor]:
    """Return outputs and inner layers' tensors by name, then those of attributes, which may be positions."""
    places = [(f"{each.name!r} of layer {each.layer.name!r}", n) for each in kept for n in range(len(each.tensors))]
    first = len(outputs) - len(places)
    of_places = zip(places, outputs[first:], strict=True)
    return {
        **{f"output {number}": x for number, x in enumerate(outputs[:first])},
        **{f"tensor {n} of {name}": x for (name, n), x in of_places if x.dtype.is_floating},
    }


def _weights_of_rows(output: tf.Tensor, position: Position) -> tf.Tensor:
    """Return random weights for the output of a slice, which are those of its rows in any slice."""
    shape = tf.shape(output)
    each = shape[0] // position.kept
    with not_clustered():
        of_batch = tf.random.stateless_normal(tf.concat([[position.total * each], shape[1:]], 0), [0, 0])
    return tf.cast(of_batch[position.first * each :][: shape[0]], output.dtype)


def _without_zeros(weight: tf.Tensor) -> tf.Tensor:
    """Return another weight in place of zeros, which would hide the layers before, or what they are added to."""
    if weight.dtype not in (tf.float16, tf.bfloat16, tf.float32, tf.float64) or tf.reduce_any(weight != 0):
        return weight
    return tf.random.stateless_uniform(weight.shape, [0, 0], 0.05, 0.1, weight.dtype)


def num_threads() -> int:
    """Return the number of TensorFlow's threads for ops."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    asked = tf.config.threading.get_inter_op_parallelism_threads() or int(os.environ.get("TF_NUM_INTEROP_THREADS", 0))
    return asked or cores or 1


def is_within_op() -> bool:
    """Return whether an op runs this code, as `tf.py_function` does, in a thread that Python has not started."""
    return threading.current_thread().name.startswith("Dummy-")


def with_other_last_digits(digit: float) -> Change:
    """Return floating-point numbers changed by about their last digit, up or down."""
    random = np.random.default_rng(0)

    def change(x: tf.Tensor) -> tf.Tensor:
        return x * tf.cast(1 + digit * random.choice([-1, 1], x.shape), x.dtype) if x.dtype.is_floating else x

    return change
