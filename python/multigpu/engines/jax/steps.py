"""The step functions that Keras' loops call, running on all devices."""

import itertools
import operator
from collections.abc import Iterator
from typing import Any

import jax
import keras

from multigpu.engines.jax.layout import Layout, gathered, on_mesh
from multigpu.engines.jax.moves import needs_whole_weights
from multigpu.engines.jax.private_api.divided_weights import divided_weights, has_value, is_traced
from multigpu.engines.jax.private_api.losses import fresh_losses
from multigpu.engines.jax.program import run, trace, whole_gradients
from multigpu.engines.jax.refused import named_op_by_op
from multigpu.engines.jax.rows import divide, open_rows, send

KINDS = ("train", "test", "predict")
PARTS = {  # of the state, as Keras' loops take it from a model
    "train": ("trainable_variables", "non_trainable_variables", "optimizer.variables", "metrics_variables"),
    "test": ("trainable_variables", "non_trainable_variables", "metrics_variables"),
    "predict": ("trainable_variables", "non_trainable_variables"),
}

_turns = itertools.count(1)


class StepFunction:
    """A replacement for a model's `train_function`, `test_function` or `predict_function`.

    Keras' loops call it with the state (lists of arrays) and an iterator over batches.

    Attributes:
        run: one compiled step, of a state and of a batch on the mesh.
        turn: a number that is larger the later it was called.
    """

    def __init__(self, model: keras.Model, kind: str, layout: Layout, cpu_merge: bool) -> None:
        # each worker predicts alone
        self._model, self._kind, self._layout = model, kind, layout.alone if kind == "predict" else layout
        self._to_host = cpu_merge and kind == "predict"
        self._jit = bool(model.jit_compile) and not model.run_eagerly
        donated = {"donate_argnums": 0} if kind == "train" else {}  # other steps do not move the weights
        self.turn = 0
        self.run: Any = jax.jit(self._program, **donated)
        self._variables: list[keras.Variable] = []  # whose values the state is
        self._state: Any = None  # after the last step: Keras passes it back unless a callback used it

    def __call__(self, state: Any, iterator: Iterator) -> tuple[Any, Any]:
        """Run one execution: as many steps as the model makes in one, as long as there are batches."""
        with jax.default_device(None):  # the host, outside of steps
            if state is not self._state:
                self._variables = [v for part in PARTS[self._kind] for v in operator.attrgetter(part)(self._model)]
                state = jax.tree.map(lambda x: on_mesh(x, self._layout.mesh), self._layout.alone.place(state))
            self._state, self.turn, results = state, next(_turns), []
            first = next(iterator)  # Keras' loop handles the end of data
            for data in itertools.chain([first], itertools.islice(iterator, self._model.steps_per_execution - 1)):
                outputs, state = self._one(state, data)
                self._state = state
                results.append(outputs)
            if self._kind == "predict" and len(results) > 1:
                outputs = jax.tree.map(lambda *parts: keras.ops.concatenate(parts), *results)
            return outputs, state

    @property
    def _compiled(self) -> bool:
        """Whether steps are compiled. Otherwise, they run op by op."""
        return self._jit and not jax.config.jax_disable_jit

    def forget(self) -> None:
        """Release the last state, which variables may replace between calls of `fit`."""
        self._state = None

    def restore(self) -> None:
        """Give variables their values of the last state, if Keras' loop took them away for a step that failed."""
        for variable, value in zip(self._variables, jax.tree.leaves(self._state), strict=False):  # none if forgotten
            if not has_value(variable) and not value.is_deleted():
                variable.assign(value)

    def _one(self, state: Any, data: Any) -> tuple[Any, Any]:
        # op by op, there is no program to be edited against faults of XLA's partitioner: each device has all rows
        run, at = (self.run, None) if self._compiled else (self._op_by_op, self._on_each)
        try:
            outputs, new = run(state, send(data, self._layout, at))
        except FloatingPointError:  # of `jax_debug_nans`: op by op, the error names the layer
            self._op_by_op(state, send(data, self._layout, self._on_each))
            raise
        return (jax.device_get(outputs) if self._to_host else outputs), new

    def _on_each(self, _: int) -> Any:
        """Return the layout of arrays of so many rows, all on each device."""
        return self._layout.copied

    @fresh_losses()
    def _step(self, state: Any, data: Any) -> tuple[Any, Any]:
        """Run the model's own step."""
        with divided_weights(marked_on=self._layout.mesh if self._compiled else None):
            outputs, new = getattr(self._model, f"{self._kind}_step")(state, data)
        return outputs, (state[0], new) if self._kind == "predict" else new

    def _program(self, state: Any, batch: Any) -> tuple[Any, Any]:
        """Return the step as one program for all devices, from and to the layout between steps."""
        if not is_traced():  # `jax_debug_nans` calls it again: see `_one()`
            raise FloatingPointError("a compiled step has a NaN or an infinite value, which it does not have op by op")
        state, data = self._to_devices(state), open_rows(batch, self._layout)
        program, structure = trace(self._layout.mesh, self._step, state, data)
        # among workers, XLA would divide activations both by workers and by devices
        if needs_whole_weights(program, len(jax.tree.leaves(state[:2]))) or self._layout.mesh != self._layout.own:
            program = whole_gradients(program, self._layout.copied)
            state = (*gathered(state[:2], self._layout), *state[2:])
        outputs, new = run(program, structure, state, data)
        if self._kind == "predict":
            outputs = jax.tree.map(lambda x: divide(x, self._layout), outputs)
        return outputs, self._to_rest(new, jax.lax.with_sharding_constraint)

    def _op_by_op(self, state: Any, batch: Any) -> tuple[Any, Any]:
        """Run the step as it is, each operation on all devices."""
        state = self._to_devices(state)
        state = (*gathered(state[:2], self._layout), *state[2:])
        with named_op_by_op():
            outputs, new = self._step(state, open_rows(batch, self._layout))
        return outputs, self._to_rest(new, jax.device_put)

    def _to_devices(self, state: Any) -> Any:
        if not self._layout.on_host:
            return state
        return jax.tree.map(lambda x: jax.device_put(x, self._layout.in_step(x).with_memory_kind("device")), state)

    def _to_rest(self, state: Any, constrain: Any) -> Any:
        state = jax.tree.map(lambda x: constrain(x, self._layout.in_step(x)), tuple(state))
        if not self._layout.on_host:
            return state
        return jax.tree.map(lambda x: jax.device_put(x, self._layout.at_rest(x)), state)
