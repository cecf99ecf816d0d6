"""Choose how a call runs: inside a function that is being traced, as a separate function, or op by op."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from multigpu.base.arguments import by_name
from multigpu.base.refusal import is_refusal, refuse
from multigpu.engines.tensorflow.batches.call_arguments import CallArguments
from multigpu.engines.tensorflow.cluster.reduction import Reduction
from multigpu.engines.tensorflow.cluster.together import Step, Together
from multigpu.engines.tensorflow.parallel.batch_statistics import synchronized_layers, warn_of_slices
from multigpu.engines.tensorflow.parallel.call_as_function import CallAsFunction
from multigpu.engines.tensorflow.parallel.data_parallel import Given, Merged, data_parallel
from multigpu.engines.tensorflow.parallel.first_batch import Due, FirstBatchCheck, is_on
from multigpu.engines.tensorflow.parallel.python_values import are_same, as_number, is_number, python_values
from multigpu.engines.tensorflow.parallel.row_changes import OpenRowsError, WholeBatchError, name_layer
from multigpu.engines.tensorflow.private_api.graphs import within_xla
from multigpu.engines.tensorflow.replicas.layer_calls import all_calls
from multigpu.engines.tensorflow.replicas.noise import Draw
from multigpu.engines.tensorflow.replicas.template import OfTrace, TemplateState, refuse_new_weights
from multigpu.engines.tensorflow.weights.buckets import Types
from multigpu.engines.tensorflow.weights.place_locate import memory
from multigpu.plan.plan import Plan
from multigpu.private_api.default_generator import default_generator, is_default
from multigpu.private_api.layers import sublayers, wants_jit
from multigpu.private_api.warn_caller import warn

NEED_VALUES = (TypeError, AttributeError, NotImplementedError, ValueError)  # errors of code that needs a tensor's value
ERRORS = (ValueError, TypeError, tf.errors.InvalidArgumentError)  # errors of shapes that do not fit
_models = itertools.count()  # all workers create the same models in the same order


class DataParallelCall:
    """Calls of a template, spread over the devices of a plan.

    Attributes:
        types: the types of each copy in which weights are sent, by their ids, from the last sending.
        step: the step of Keras' loop in which the call is made, if any.
        without_rows: the outputs of the last call in a step of all workers that no row reaches.
        assigned: the ids of the variables that calls in steps of all workers assign. All workers have the same values.
        slices: slices of inputs that were sent ahead, by the ids of the inputs.
    """

    def __init__(self, template: keras.Layer, plan: Plan):
        self.types: Mapping[int, Sequence[Types]] = {}
        self.step: Step | None = None
        self.without_rows: list[tf.Tensor] = []
        self.assigned: set[int] = set()
        self.slices: dict[int, list[tf.Tensor]] = {}
        self._called_with: tuple[CallArguments, int | None] | None = None  # and how many rows it had
        self._draws: dict[tuple, Sequence[Draw]] = {}  # in calls that are made op by op
        self._warned = False
        is_spread = len(plan.replicas) > 1 or plan.cluster is not None
        self._due = Due() if is_spread else None  # made here, because a traced function may not make variables
        self._checks: dict[tuple, FirstBatchCheck] = {}  # of each kind of call
        self._model = f"model {next(_models)}"
        self._template = template
        self._plan = plan
        self._values: list[Any] | None = None  # in Python, after the last call
        self._draws_by_default = False  # from Keras' default generator of noise
        self._needs_numbers = False  # whether code of the template needs the values of numbers that direct calls pass
        self._needs_values = False  # whether it needs values of tensors, or numbers of rows, in Python
        self._as_function = CallAsFunction(self)

    def __call__(self, args: tuple, kwargs: dict[str, Any], run_eagerly: bool = False) -> Given:
        """Return outputs and added losses for one batch."""
        batch, eager = CallArguments(args, kwargs), tf.executing_eagerly()
        if eager and not (run_eagerly or tf.config.functions_run_eagerly()):
            return self._outside_of_functions(batch)
        if not eager:
            self._refuse_one_program()
        self._forget_what_changed()
        template, known = TemplateState.of(self._template, self._plan), set(map(id, self._template.variables))
        self._called_with = batch.without_tensors(), batch.known_rows
        kind = (batch.kind, self._fingerprint())
        with self.layer_named():
            workers = self._workers(batch)
            with tf.control_dependencies(workers.begun):
                after = self._check(kind, template, batch, eager)
            of_trace = self._checks[kind].of_trace if eager and kind in self._checks else OfTrace()
            draws = self._draws.get(kind, ())
            copied = template.with_copies({number: len(of_copies) for number, of_copies in of_trace.ways.items()})
            merged = data_parallel(copied, batch, self._plan, eager, workers, self.slices, of_trace, draws, after)
        self._draws[kind] = merged.traced.draws
        refuse_new_weights(self._template, known)
        self._note(merged)
        self._values = self._python_values()
        return merged

    def _outside_of_functions(self, batch: CallArguments) -> Given:
        """Make a call as a function of its own, in whose trace this object is called again.

        It runs op by op if code of the template needs values in Python, as it has them on one device.
        """
        arguments = batch.rebuild(batch.tensors)
        with self.layer_named():
            self._forget_what_changed()
            if self._needs_values:
                return self(*arguments, run_eagerly=True)
            try:
                given = self._call_function(*arguments)
            except NEED_VALUES as error:
                if self._plan.cluster or (is_refusal(error) and not isinstance(error, OpenRowsError)):
                    raise  # all workers run one program
                self._checks.clear()  # those of the trace that failed
                given = self(*arguments, run_eagerly=True)
                self._needs_values = True
                received = vars(error).get("received", f"code that needs values of tensors in Python: {error}")
                warn(
                    "Expected layers that can be traced, so that replicas run at the same time in direct calls, too. "
                    f"Received: {received}. These calls run op by op, one replica after another."
                )
            self._values = self._python_values()
            return given

    def _forget_what_changed(self) -> None:
        """Forget what was traced and checked with other values in Python. Only other tensors need no new check."""
        before, self._values = self._values, self._python_values()
        if before is None or are_same(before, self._values):
            return
        self._as_function = CallAsFunction(self)
        if not are_same(*([x for x in values if not tf.is_tensor(x)] for values in (before, self._values))):
            self._checks.clear()
            self._draws.clear()

    def _call_function(self, args: tuple, kwargs: dict[str, Any]) -> Given:
        """Call the traced function. Numbers are tensors in it, unless its code needs their values, as `range(n)`."""
        key = self._fingerprint()
        if not self._needs_numbers:
            try:
                return self._as_function(args, kwargs, key)
            except NEED_VALUES:
                if not any(is_number(x) for x in keras.tree.flatten((args, kwargs))):
                    raise
        named = by_name(self._template.call, args, kwargs)  # Keras takes no number by position
        given = self._as_function((), keras.tree.map_structure(as_number, named), key)
        self._needs_numbers = True
        return given

    def _note(self, merged: Merged) -> None:
        """Note what a call has shown, and warn of statistics of slices, once for each parallel model."""
        traced = merged.traced
        self.types = merged.template.by_weight(traced.types)
        if self.step and self.step.joint:
            self.without_rows = traced.layout.without_rows(merged.outputs)
            self.assigned |= {id(variable) for call in all_calls(traced.calls.root) for variable in call.assigned}
        self._draws_by_default |= any(map(is_default, traced.updates.variables))
        if traced.of_slices and not self._warned:
            self._warned = True
            warn_of_slices(traced.of_slices)

    def _python_values(self) -> list[Any]:
        """Return the values in Python that a trace keeps, and on which a call depends."""
        return [*python_values(self._template), default_generator() if self._draws_by_default else None]

    def _refuse_one_program(self) -> None:
        if within_xla():
            raise refuse(
                "a function that XLA does not compile as a whole: its program would run on one device",
                f"a call of {self._template.name!r}, which runs on several, in a `tf.function` with `jit_compile=True`",
                "Remove it there, and compile the model with `jit_compile=True`. XLA then compiles each replica.",
            )

    @contextlib.contextmanager
    def layer_named(self, kinds: tuple[type[Exception], ...] = ERRORS) -> Iterator[None]:
        """Make an error of a layer that needs its batch in one piece name the layer, in a `with` block."""
        try:
            yield
        except WholeBatchError:
            raise
        except Exception as error:  # any error: it is raised again, and a comparison fails where the step fails
            for check in self._checks.values():
                check.num_failed = 0
                if isinstance(error, kinds) and check.seen and check.seen in str(error):
                    raise check.refusal() from error
            if isinstance(error, kinds) and self._called_with:
                name_layer(error, self._template, *self._called_with, len(self._plan.replicas))
            raise

    def _check(self, kind: tuple, template: TemplateState, batch: CallArguments, eager: bool) -> list[tf.Tensor]:
        """Check the first batch of each kind of call, now or in the traced step, which has to wait for it."""
        known = self._checks.get(kind)
        if self._due is None or (known and known.is_done) or not (eager or is_on()):
            return []
        if known is None or (known.seen if eager else not known.belongs_to(batch)):  # layers may have changed since
            known = FirstBatchCheck(template, batch, self._plan)
        self._checks[kind] = known
        if not eager:
            return [known.before_step(self._due)]
        if is_on():
            known.now(batch)
        return []

    def _workers(self, batch: CallArguments) -> Reduction:
        """Return the workers in this call. Outside of a step, all workers make it if it trains or takes a gradient."""
        cluster = self._plan.cluster
        if cluster is None:
            return Reduction()
        step = self.step or Step(joint=batch.training is True)
        with tf.device("CPU:0"):
            rows = batch.count_rows()
        return Together(cluster, self._model, len(self._plan.replicas), rows, step)

    def _fingerprint(self) -> tuple:
        """Return the values besides arguments on which a trace depends: frozen layers, devices, compilation."""
        template = self._template
        frozen = [layer.trainable for layer in sublayers(template)]
        synchronized = synchronized_layers(template)
        variables = [(variable.trainable, memory(variable)) for variable in template.variables]
        return (wants_jit(template), *frozen, *synchronized, *variables)
