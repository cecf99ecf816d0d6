"""Check the first batch: run a replica on some of its rows, once whole and once in two slices, and compare.

A trace does not always show how a layer uses rows: branches, functions and state hide it. Running the layer shows it.
"""

import functools
import os
import sys
import threading
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from multigpu.engines.tensorflow.batches.call_arguments import CallArguments, flatten_composites
from multigpu.engines.tensorflow.parallel.differences import amplified, differences, is_half, last_digit, rounding
from multigpu.engines.tensorflow.parallel.mixing_layer import mixing_layer
from multigpu.engines.tensorflow.parallel.trial_runs import Ran, TrialRuns, num_threads, with_other_last_digits
from multigpu.engines.tensorflow.replicas.row_mixing import IN_ONE_PIECE, WholeBatchError, not_one_by_one
from multigpu.engines.tensorflow.replicas.template import TemplateState
from multigpu.plan.plan import Plan

SWITCH = "MULTIGPU_CHECK"  # an environment variable, 0 to turn the check off
ROWS = 16  # at most: a batch that fits on several devices may not fit on one

_one_at_a_time = threading.Lock()


def is_on() -> bool:
    """Return whether first batches are checked."""
    return os.environ.get(SWITCH, "1") != "0" and not (num_threads() == 1 and _has_r())


def _has_r() -> bool:
    """Return whether layers may have functions of R, which cannot be called while R waits for a step."""
    return "multigpu.r.interface" in sys.modules


class FirstBatchCheck:
    """Compares a replica's results for some rows with its results for two slices of them.

    Attributes:
        of_trace: what a trace shows of runs op by op.
        is_done: whether a comparison was possible, which needs two rows that the template accepts, and showed no
            difference, or was impossible in two batches. Until then each batch is compared.
        seen: the difference between slices and whole in the last comparison, if any.
        num_failed: how many batches could not be compared since a step has failed.
    """

    def __init__(self, template: TemplateState, batch: CallArguments, plan: Plan) -> None:
        """Trace the compared runs, and raise a `WholeBatchError` if a trace is enough to see the difference."""
        self.is_done, self.seen = False, ""
        self._in_gradient = False  # whether the difference was seen in a gradient
        self._template = template.model.name
        self._inputs = _inputs_of(batch)
        self._digit = last_digit(tf.as_dtype(layer.compute_dtype) for layer in [template.model, *template.layers])
        self._runs = TrialRuns(template, batch, plan)
        self.of_trace = self._runs.of_trace
        self._branch: tf.Tensor | None = None
        self._slices = range(0), range(0)
        self._num_slices = max(len(plan.replicas), 2)
        self._limit = 0.0  # of differences by rounding, in the last comparison
        self._error = ""  # of the last comparison that failed
        self.num_failed = 0

    def before_step(self, due: "Due") -> tf.Tensor:
        """Return a tensor for which calls in the traced step wait. It makes the check, once, before any change.

        The check is a branch of the step, because a custom step has its batch nowhere else. It uses all variables
        that are read in it, so TensorFlow runs it after the assignments before the call, and before later ones.
        """
        if self._branch is None:
            number, resources = due.add(), self._runs.resources
            check = functools.partial(self._in_step, lambda: due.remove(number))

            def checked() -> tf.Tensor:
                for resource in resources:
                    with tf.device(resource.device):
                        tf.identity(resource)
                return tf.numpy_function(check, self._inputs, tf.bool)

            with tf.device("CPU:0"):
                self._branch = tf.cond(due.has(number), checked, lambda: True)
        return self._branch

    def _in_step(self, done: Callable[[], None], *arrays: np.ndarray) -> np.bool_:
        if not is_on():  # since the step was traced
            return np.True_
        if not _one_at_a_time.acquire(blocking=False):
            return np.False_  # a check uses one of TensorFlow's threads and needs another: the next step is checked
        try:
            with tf.device("CPU:0"):
                if not self.is_done:  # before, in the same step: `tf.vectorized_map` runs one branch for each element
                    self._check([tf.constant(x) for x in arrays])
        finally:
            _one_at_a_time.release()
        if self.is_done:
            done()
        if self.seen:
            raise self._refusal(f"model {self._template!r}") if _has_r() else self.refusal()
        return np.True_

    def belongs_to(self, batch: CallArguments) -> bool:
        """Return whether this check belongs to another call in the traced step."""
        graphs = [getattr(each[-1], "graph", None) for each in (self._inputs, _inputs_of(batch))]
        return graphs[0] is graphs[1] is not None

    def now(self, batch: CallArguments) -> None:
        """Check a call that runs op by op."""
        self._check(_inputs_of(batch))
        if self.seen:
            raise self.refusal()

    def refusal(self) -> WholeBatchError:
        """Return the error that names the layer. It runs the template op by op."""
        first, last = self._slices
        whole, *slices = [self._runs.calls(rows) for rows in (range(last.stop), first, last)]
        layer = mixing_layer(whole, slices, self._limit)
        if layer is None and self._in_gradient:
            layer = self._runs.with_custom_gradient()
        return self._refusal(f"layer {layer!r}" if layer else f"model {self._template!r}")

    def _refusal(self, who: str) -> WholeBatchError:
        first, last = (f"{rows[0]} to {rows[-1]}" for rows in self._slices)
        return not_one_by_one(
            who,
            f"With rows {first} and {last} of the first batch in separate slices, {self.seen}. Keep the rows "
            "separate in this layer; or compare them in a loss function or with `add_loss()`, which see the "
            f"global batch; or {IN_ONE_PIECE}. With {SWITCH}=0 nothing is checked: each replica then sees its slice "
            "alone.",
        )

    def _check(self, inputs: Sequence[tf.Tensor]) -> None:
        self.seen, rows = "", self._runs.take(inputs)
        sizes = sorted({min(rows, ROWS), rows} - {0, 1})
        if any(self._compare(size) for size in sizes):
            self.is_done = not self.seen
        elif sizes:
            self.is_done = self._is_given_up()
        if self.is_done:
            del self._runs, self._inputs, self._branch  # the graph of the step, and that of the template

    def _compare(self, size: int) -> bool:
        """Compare the first rows. Return whether the template accepts them, whole and in slices."""
        try:
            run = self._runs.run(range(size))
        except WholeBatchError:
            raise
        except Exception as error:  # any error: code that one device cannot run also ends the step
            self._error = _told(error)
            fewer = isinstance(error, tf.errors.ResourceExhaustedError) and size > 3
            return fewer and self._compare(size // 2)  # several devices have the memory for more
        shares = dict.fromkeys((2, self._num_slices, 3, 4))  # rows that form groups fit some of these slices
        return any(self._compare_slices(run, -(-size // share)) for share in shares)

    def _compare_slices(self, run: Ran, middle: int) -> bool:
        """Compare all rows of a run with two slices of them. Return whether the template accepts the slices."""
        rows, whole = run.rows, self._runs.merged([run])
        self._slices = rows[:middle], rows[middle:]
        try:
            found = differences(self._runs.merged([self._runs.run(each) for each in self._slices]), whole)
        except Exception as error:  # any error: slices that cannot run or merge also end the step
            self._error = _told(error)
            return False
        digit, limits = self._digit, {name: rounding(self._digit) for name in found}
        if any(each.relative > limits[name] for name, each in found.items()):
            digit = max(digit, last_digit(self._runs.types()))  # code may compute in a smaller type than its layer
            for change in (tf.identity, with_other_last_digits(digit)):
                noise = differences(self._runs.merged([self._runs.run(rows, change)]), whole)
                limits = {name: max(limit, amplified(noise[name].relative, digit)) for name, limit in limits.items()}
        for name, each in found.items():
            if each.relative > limits[name] and self._runs.device_computes():
                self._limit = limits[name] if is_half(digit) else min(limits[name], rounding(digit))
                self._in_gradient = name in run.gradients
                self.seen = f"{name} differs by {each.difference:.3g}, where its largest value is {each.largest:.3g}"
                break
        return True

    def _is_given_up(self) -> bool:
        """Warn, and compare no more, if a batch before could not be compared either, though its step ended well."""
        self.num_failed += 1
        if self.num_failed == 2:
            warnings.warn(
                f"The first batches of {self._template!r} could not be checked, and no other batch will be: a run on "
                f"some of their rows ends in {self._error}. Compare the results with those of one device, or set "
                f"{SWITCH}=0 to do without the check.",
                stacklevel=2,
            )
        return self.num_failed == 2


def _told(error: Exception) -> str:
    """Return the type and message of an error: of TensorFlow's, whose first lines are a traceback, the last one."""
    lines = [line for line in str(error).splitlines() if line and not line.lstrip().startswith("[[")]
    message = lines[-1] if lines and isinstance(error, tf.errors.OpError) else str(error)
    return f"{type(error).__name__}: {message}"


def _inputs_of(batch: CallArguments) -> list[tf.Tensor]:
    return [*batch.scalars, *flatten_composites(batch.tensors)]


class Due:
    """The checks that are not made yet, by number, as the steps see them in which they will be made.

    A traced function may not make variables, so all checks share one.
    """

    def __init__(self) -> None:
        with tf.device("CPU:0"):
            self._flags = tf.Variable(np.zeros(0, bool), shape=[None], trainable=False)

    def add(self) -> int:
        """Add one more check, and return its number."""
        with tf.init_scope(), tf.device("CPU:0"):
            flags = np.append(self._flags.numpy(), True)
            self._flags.assign(flags)
        return len(flags) - 1

    def remove(self, number: int) -> None:
        """Remove a check that was made."""
        flags = self._flags.numpy()
        flags[number] = False
        self._flags.assign(flags)

    def has(self, number: int) -> tf.Tensor:
        """Return whether a check is due in the traced step."""
        return self._flags[number]
