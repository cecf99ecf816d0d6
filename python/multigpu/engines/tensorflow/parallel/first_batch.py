"""The first batch is checked: a replica is run on some of its rows, once whole and once in two slices, and compared.

What a layer does with rows cannot be read off every trace: it hides in branches, functions and state. It can be seen.
"""

import functools
import os
import sys
import threading
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from multigpu.base.refusal import refuse
from multigpu.engines.tensorflow.batches.call_arguments import CallArguments, flatten_composites
from multigpu.engines.tensorflow.parallel.differences import differences, last_digit, rounding
from multigpu.engines.tensorflow.parallel.mixing_layer import mixing_layer
from multigpu.engines.tensorflow.parallel.trial_runs import Span, TrialRuns, has_one_thread, with_other_last_digits
from multigpu.engines.tensorflow.replicas.row_mixing import WholeBatchError
from multigpu.engines.tensorflow.replicas.template import TemplateParts
from multigpu.plan.plan import Plan

SWITCH = "MULTIGPU_CHECK"  # an environment variable, 0 where nothing is to be checked
ROWS = 16  # at most: a batch that fits on several devices need not fit on one
AMPLIFIED = 30  # times what another run gives, or one with other last digits: random draws, an ill-conditioned model


_one_at_a_time = threading.Lock()


def is_on() -> bool:
    """Whether first batches are checked. R's functions could not be called while its one thread waits for a step."""
    return os.environ.get(SWITCH, "1") != "0" and not (has_one_thread() and "multigpu.r.interface" in sys.modules)


class FirstBatchCheck:
    """Compares what a replica gives for some rows with what it gives for two slices of them.

    Attributes:
        ways: how rows of weights and tables are looked up, by their ids.
        is_done: whether that was possible: it takes two rows that the template accepts.
        seen: what slices did otherwise, if anything.
    """

    def __init__(self, parts: TemplateParts, batch: CallArguments, plan: Plan) -> None:
        """Traces what is compared, and raises a `WholeBatchError` where that shows enough."""
        self.is_done, self.seen = False, ""
        self._template = parts.template.name
        self._inputs = _inputs_of(batch)
        self._digit = last_digit([parts.template, *parts.layers])
        self._runs = TrialRuns(parts, batch, plan)
        self.ways = self._runs.ways
        self._branch: tf.Tensor | None = None
        self._slices: tuple[Span, Span] = (Span(0, 0), Span(0, 0))

    def before_step(self, due: "Due") -> tf.Tensor:
        """Return a tensor for calls in the traced step to wait for: it checks, once, before anything has changed.

        It is a branch of the step, since a step of somebody's own shows its batch nowhere else.
        """
        if self._branch is None:
            number = due.add()
            check = functools.partial(self._in_step, lambda: due.remove(number))
            with tf.device("CPU:0"):
                self._branch = tf.cond(
                    due.has(number), lambda: tf.numpy_function(check, self._inputs, tf.bool), lambda: True
                )
        return self._branch

    def _in_step(self, done: Callable[[], None], *arrays: np.ndarray) -> np.bool_:
        if not _one_at_a_time.acquire(blocking=False):
            return np.False_  # a check holds one of TensorFlow's threads and needs another: the next step is checked
        try:
            with tf.device("CPU:0"):
                self._check([tf.constant(x) for x in arrays])
        finally:
            _one_at_a_time.release()
        if self.is_done:
            done()
        if self.seen:
            raise self._refusal(f"model {self._template!r}")  # code of layers is for the thread that called the step
        return np.True_

    def belongs_to(self, batch: CallArguments) -> bool:
        """Return whether this checks another call in the step that is being traced."""
        graphs = [getattr(each[-1], "graph", None) for each in (self._inputs, _inputs_of(batch))]
        return graphs[0] is graphs[1] is not None

    def now(self, batch: CallArguments) -> None:
        """Checks a call that is made op by op."""
        self._check(_inputs_of(batch))
        if self.seen:
            raise self.refusal()

    def refusal(self) -> WholeBatchError:
        """The error that names the layer. It runs the template op by op."""
        first, last = self._slices
        whole, *slices = [self._runs.calls(rows) for rows in (Span(first.begin, last.end), first, last)]
        layer = mixing_layer(whole, slices, rounding(self._digit))
        return self._refusal(f"layer {layer!r}" if layer else f"model {self._template!r}")

    def _refusal(self, who: str) -> WholeBatchError:
        first, last = (f"{rows.begin} to {rows.end - 1}" for rows in self._slices)
        return refuse(
            "layers that take the rows of a batch one by one, so that slices of it can be run and merged",
            who,
            f"When rows {first} and {last} of the first batch are run apart, {self.seen}. Keep rows apart there; or "
            "compare them in a loss function or by `add_loss()`, which see the global batch; or run the template on "
            f"one device. With {SWITCH}=0 nothing is checked: each replica then sees its slice alone.",
            error=WholeBatchError,
        )

    def _check(self, inputs: Sequence[tf.Tensor]) -> None:
        rows = self._runs.take(inputs)
        sizes = sorted({min(rows, ROWS), rows} - {1})
        self.is_done = any(self._compare(size) for size in sizes)
        if self.is_done and not self.seen:
            del self._runs, self._inputs, self._branch  # the graph of the step, and that of the template

    def _compare(self, size: int) -> bool:
        """Compares the first rows; returns whether the template accepts so many."""
        middle, rows = (size + 1) // 2, Span(0, size)
        self._slices = Span(0, middle), Span(middle, size)
        try:
            result = self._runs.run(rows)
        except Exception:  # anything: what one device cannot run ends the step as well, which says so
            return False
        whole = self._runs.merged([result], [rows])
        try:
            results = [self._runs.run(each) for each in self._slices]
            found = differences(self._runs.merged(results, self._slices), whole)
        except Exception:  # anything: so does what cannot be run or merged in slices, where all shapes are known
            return True
        limits = {name: rounding(self._digit) for name in found}
        if any(each.relative > limits[name] for name, each in found.items()):
            for change in (tf.identity, with_other_last_digits(self._digit)):
                noise = differences(self._runs.merged([self._runs.run(rows, change)], [rows]), whole)
                limits = {name: max(limit, AMPLIFIED * noise[name].relative) for name, limit in limits.items()}
        for name, each in found.items():
            if each.relative > limits[name] and self._runs.device_computes():
                self.seen = f"{name} differs by {each.difference:.3g}, where its largest value is {each.largest:.3g}"
                break
        return True


def _inputs_of(batch: CallArguments) -> list[tf.Tensor]:
    return [*batch.scalars, *flatten_composites(batch.tensors)]


class Due:
    """The checks that are still to be made, by number, as the steps see it in which they are made.

    A function that is being traced may make no variable, so there is one for all checks.
    """

    def __init__(self) -> None:
        with tf.device("CPU:0"):
            self._flags = tf.Variable(np.zeros(0, bool), shape=[None], trainable=False)

    def add(self) -> int:
        """One more check is due; its number."""
        with tf.init_scope(), tf.device("CPU:0"):
            flags = np.append(self._flags.numpy(), True)
            self._flags.assign(flags)
        return len(flags) - 1

    def remove(self, number: int) -> None:
        """A check was made."""
        flags = self._flags.numpy()
        flags[number] = False
        self._flags.assign(flags)

    def has(self, number: int) -> tf.Tensor:
        """Return whether a check is due, in the step that is being traced."""
        return self._flags[number]
