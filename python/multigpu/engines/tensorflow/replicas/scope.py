"""The template's variables in one replica: the values sent to it, and assigned values kept aside."""

import contextlib
import contextvars
import copy
from collections.abc import Iterator, Mapping, Sequence

import keras
import tensorflow as tf

from multigpu.base.replaced import replaced, set_to
from multigpu.engines.tensorflow.private_api.gradients import dense, with_gradient
from multigpu.engines.tensorflow.private_api.graphs import around_xla
from multigpu.engines.tensorflow.private_api.variables import backing_variable, is_seed
from multigpu.engines.tensorflow.replicas.layer_calls import LayerCalls
from multigpu.engines.tensorflow.weights.buckets import Types
from multigpu.engines.tensorflow.weights.place_locate import read, stored_dtype

_in_replica: contextvars.ContextVar[bool] = contextvars.ContextVar("in_replica", default=False)


def in_replica() -> bool:
    """Return whether a replica runs this code."""
    return _in_replica.get()


def inside_replica() -> contextlib.AbstractContextManager[None]:
    """Mark the code of a `with` block as run by a replica."""
    return set_to(_in_replica, True)


class ReplicaScope(keras.StatelessScope):
    """Maps variables to the values sent to a replica, and records what the template assigns.

    If several copies of a variable were sent, each read gives the next one, until the variable is assigned.

    Attributes:
        updated: the variables that were assigned, in order.
        carried: the variables whose values enter and leave each branch and loop, because a branch or loop assigns them.
        found: the variables that a branch or loop assigns, and that are not carried: the run must be repeated.
        calls: records added losses and assigned variables.
        dense_gradients: whether the gradients of variables are dense, even if rows of them are taken.
    """

    def __init__(
        self, variables: Sequence[keras.Variable], values: Sequence[tf.Tensor], carried: Sequence[keras.Variable] = ()
    ):
        super().__init__(collect_losses=True)
        self.state_mapping: dict[int, tf.Tensor] = {}
        self.updated: list[keras.Variable] = []
        self.carried, self.found = list(carried), list[keras.Variable]()
        self.calls: LayerCalls | None = None
        self.dense_gradients = False
        self._graph = tf.compat.v1.get_default_graph()
        self._reads: dict[int, list[tuple[tf.DType, bool]]] = {}  # the type, and whether in a loop
        self._before: dict[int, tf.Tensor] = {}
        self._copies: dict[int, list[tf.Tensor]] = {}  # values of a variable, in the order of its reads
        for variable, value in zip(variables, values, strict=True):
            self._begin_with(variable, value)

    def get_current_value(self, variable: keras.Variable) -> tf.Tensor | None:
        """Return the value in this replica, or None for a variable of another model: Keras reads the real one."""
        value = super().get_current_value(variable)
        if value is None and is_seed(variable):  # Keras' default seed generator belongs to no model
            value = self._begin(variable)
        elif value is not None and value is self._before.get(id(variable)):
            value = self._next_copy(id(variable))
        self._note_read(variable, tf.as_dtype(variable.dtype))  # under autocast, this is the type to read in
        dense_gradient = self.dense_gradients and variable.trainable and value is not None
        return with_gradient(value, dense) if dense_gradient else value

    def types(self, variable: keras.Variable) -> Types:
        """Return the types in which a variable and its gradient can be sent without a change in any number.

        A weight that the template reads only in a smaller type can be sent in that type. So can its gradient, if it was
        read once: several gradients are summed in the stored type of the weight.
        """
        stored, reads = stored_dtype(variable), self._reads.get(id(variable), [])
        if len({dtype for dtype, _ in reads}) != 1 or reads[0][0].size >= stored.size:
            return Types(stored, stored, stored)
        sent, in_loop = reads[0]
        return Types(stored, sent, stored if in_loop or len(reads) > 1 else sent)

    def add_loss(self, loss: tf.Tensor) -> None:
        """Keep a loss that a layer adds."""
        super().add_loss(loss)
        if self.calls:
            self.calls.note_loss()

    def add_update(self, update: tuple[keras.Variable, tf.Tensor]) -> None:
        """Keep an assigned value. As with a real variable, no gradient flows into it, and reading it is a read."""
        variable, value = update
        before = self.value_before(variable)
        if self.calls:
            self.calls.note_assigned(variable)
        if all(known is not variable for known in self.updated):
            self.updated.append(variable)
        if value.dtype.is_floating:
            value = tf.stop_gradient(value)
            if variable.trainable:
                value += before - tf.stop_gradient(before)
        super().add_update((variable, value))

    def value_before(self, variable: keras.Variable) -> tf.Tensor:
        """Return the value with which the template started."""
        self._note_read(variable, stored_dtype(variable))
        before = self._before.get(id(variable))
        return self._begin(variable) if before is None else before

    def value_now(self, variable: keras.Variable) -> tf.Tensor:
        """Return the value that the template would leave behind."""
        value = self.state_mapping.get(id(variable))
        return self.value_before(variable) if value is None else value

    def drawn(self) -> dict[int, tf.Tensor]:
        """Return the states of the generators from which the template has drawn, by the ids of their variables."""
        known = self.state_mapping
        return {id(v): known[id(v)] for v in self.updated if is_seed(v) and id(v) in known}

    @property
    def carried_values(self) -> list[tf.Tensor]:
        """Return the values of the carried variables, which enter or leave a branch or loop."""
        return [self.value_now(variable) for variable in self.carried]

    @carried_values.setter
    def carried_values(self, values: Sequence[tf.Tensor]) -> None:
        self.state_mapping.update({id(v): value for v, value in zip(self.carried, values, strict=True)})

    @contextlib.contextmanager
    def inner_graph(self) -> Iterator[None]:
        """Trace a branch or loop inside a `with` block. Its assignments end with it: its tensors are local."""
        outside = dict(self.state_mapping), dict(self._before)
        yield
        carried = set(map(id, [*self.carried, *self.found]))
        assigned = [v for v in self.updated if self.state_mapping.get(id(v)) is not outside[0].get(id(v))]
        self.found += [variable for variable in assigned if id(variable) not in carried]
        self.state_mapping, self._before = outside

    def again(self, values: Mapping[int, tf.Tensor]) -> "ReplicaScope":
        """Return a scope for a second run of a part: with values by id of the variable, otherwise the initial ones."""
        other = copy.copy(self)
        other.state_mapping = {**self._before, **values}
        other.updated, other.losses, other.calls, other._reads = [], [], None, {}
        return other

    def num_reads(self) -> dict[int, int]:
        """Return how often each variable has been read, by its id."""
        return {number: len(reads) for number, reads in self._reads.items()}

    def is_inner(self) -> bool:
        """Return whether code runs in a branch or loop of the replica."""
        return tf.compat.v1.get_default_graph() is not self._graph

    def _next_copy(self, number: int) -> tf.Tensor:
        """Return the copy that the next read of a variable gives, by the variable's id. The last one is left over."""
        copies, num_reads = self._copies[number], len(self._reads.get(number, ()))
        return copies[min(num_reads, len(copies) - 1)]

    def _note_read(self, variable: keras.Variable, dtype: tf.DType) -> None:
        self._reads.setdefault(id(variable), []).append((dtype, self.is_inner()))

    def _begin(self, variable: keras.Variable) -> tf.Tensor:
        """Return the initial value of a variable that was not sent."""
        if backing_variable(variable) is None:
            self._initialize_new()
        with around_xla():
            return self._begin_with(variable, read(variable))

    def _initialize_new(self) -> None:
        """Give variables that code has made in this scope their values now, as Keras does at the scope's end."""
        with tf.init_scope(), tf.device("CPU:0"), replaced(self, "original_scope", None):
            self.__exit__()
            self.__enter__()

    def _begin_with(self, variable: keras.Variable, value: tf.Tensor) -> tf.Tensor:
        """Set the value with which the template starts, or one more copy of it."""
        self._copies.setdefault(id(variable), []).append(value)
        self._before[id(variable)] = value
        self.state_mapping[id(variable)] = value
        return value
