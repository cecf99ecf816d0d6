"""Send slices of the next batch to their devices while a step still works on the current batch."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from multigpu.engines.tensorflow.batches.device_iterator import iterators_on
from multigpu.engines.tensorflow.batches.split_merge import share_rows, take_rows

ON_HOST = ("int32", "string")  # types that functions accept only on the CPU: they would be copied back


class SlicedBatch(NamedTuple):
    """A batch on the CPU, and slices of its inputs, each on its replica's device.

    Attributes:
        batch: the batch that Keras' loop passes to a step.
        slices: for each device, a slice of each input that is sent ahead.
    """

    batch: Any
    slices: tuple[tuple[tf.Tensor, ...], ...]

    def by_input(self) -> dict[int, list[tf.Tensor]]:
        """Return the slices of an input, by the input's id."""
        leaves = tf.nest.flatten(self.batch)
        inputs = [leaves[position] for position in sent_ahead(self.batch)]
        return {id(x): list(slices) for x, slices in zip(inputs, zip(*self.slices, strict=True), strict=True)}


class SlicedBatches:
    """A dataset whose batches have slices, for Keras' loop to iterate over."""

    def __init__(self, batches: tf.data.Dataset, devices: tuple[str, ...]) -> None:
        self._batches = batches
        self._spec = SlicedIteratorSpec(batches.element_spec, devices)

    def __iter__(self) -> "SlicedIterator":
        return SlicedIterator(self._begin, self._spec)

    def _begin(self) -> list[tf.data.Iterator]:
        """Return iterators for the CPU and for each device, which begin to read."""
        cut, spec = _cut(self._spec), self._spec
        elements = tf.data.experimental.from_variant(cut(tf.data.experimental.to_variant(self._batches)), spec.types[0])
        return iterators_on(("CPU:0", *spec.devices), elements, spec.sent, spec.types)


def can_be_sent(spec: Any) -> bool:
    """Return whether inputs can be sent ahead, and all elements of the batch are dense tensors with rows."""
    leaves = tf.nest.flatten(spec)
    dense = all(isinstance(leaf, tf.TensorSpec) and leaf.shape.rank and leaf.dtype != tf.string for leaf in leaves)
    return dense and len(sent_ahead(spec)) > 0


def sent_ahead(batch: Any) -> tuple[int, ...]:
    """Return the inputs that are sent ahead, as positions among all tensors of a batch."""
    inputs, _, _ = keras.utils.unpack_x_y_sample_weight(batch)
    return tuple(position for position, leaf in enumerate(tf.nest.flatten(inputs)) if leaf.dtype.name not in ON_HOST)


@functools.lru_cache
def _cut(spec: "SlicedIteratorSpec") -> Callable[[tf.Tensor], tf.Tensor]:
    """Return a function from a dataset to one of its batches and slices in turn: traced once, not in each `fit`."""
    spread = type(spec.batch) is tuple  # iterates over the arguments of a function
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # enough batches are prepared already

    @tf.function(input_signature=[tf.TensorSpec([], tf.variant)], autograph=False)
    def cut(batches: tf.Tensor) -> tf.Tensor:
        given = tf.data.experimental.from_variant(batches, spec.batch)
        elements = given.flat_map(lambda *batch: _in_turn(batch if spread else batch[0], len(spec.devices)))
        return tf.data.experimental.to_variant(elements.with_options(options))

    return cut


def _in_turn(batch: Any, num_replicas: int) -> tf.data.Dataset:
    """Return flat tuples of one type: the whole batch, then the slices of each replica."""
    leaves, sent = tf.nest.flatten(batch), sent_ahead(batch)

    def element(turn: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return tuple(_part(x, turn, num_replicas, position in sent) for position, x in enumerate(leaves))

    return tf.data.Dataset.range(num_replicas + 1).map(element)


def _part(x: tf.Tensor, turn: tf.Tensor, num_replicas: int, is_sent: bool) -> tf.Tensor:
    """Return all rows in turn 0, then those of each replica, or no rows of tensors that are not sent."""
    rows = tf.shape(x)[0]
    shares = share_rows(rows, num_replicas)
    begins = tf.stack([0, *(share.begin for share in shares)])
    sizes = tf.stack([rows, *(share.size if is_sent else 0 for share in shares)])
    return take_rows(x, begins[turn], sizes[turn])


class SlicedIterator(tf.data.Iterator):
    """The iterator of Keras' loop: one iterator on the CPU and one on each device, all at the same batch."""

    def __init__(self, begin: Callable[[], list[tf.data.Iterator]], spec: "SlicedIteratorSpec") -> None:
        self._begin = begin
        self._spec = spec

    @functools.cached_property
    def iterators(self) -> list[tf.data.Iterator]:
        """The iterators, which begin with the first batch: Keras' loop makes one more at the end of each epoch."""
        return self._begin()

    def get_next(self) -> SlicedBatch:
        """Return the next batch. Raise `tf.errors.OutOfRangeError` if there is none."""
        elements = [iterator.get_next() for iterator in self.iterators]  # each on the device of its iterator
        return SlicedBatch(tf.nest.pack_sequence_as(self._spec.batch, elements[0]), tuple(elements[1:]))

    def get_next_as_optional(self) -> tf.experimental.Optional:
        """Raise an error, because an optional is on one device. Every iterator of TensorFlow must have this method.

        Keras calls it for several steps at once, and then gets plain batches.
        """
        raise NotImplementedError("call `get_next()` for each step, or set `steps_per_execution` in `compile()`")

    def __next__(self) -> SlicedBatch:
        try:
            return self.get_next()
        except tf.errors.OutOfRangeError:
            raise StopIteration from None

    @property
    def element_spec(self) -> SlicedBatch:
        """The type of the result of `get_next()`."""
        return SlicedBatch(self._spec.batch, self._spec.types[1:])

    @property
    def _type_spec(self) -> "SlicedIteratorSpec":
        return self._spec


class SlicedIteratorSpec(tf.TypeSpec):
    """The type of an iterator, by which TensorFlow decides whether a traced step fits it.

    Attributes:
        batch: the type of a batch in its dataset.
        devices: the devices of the replicas.
        sent: the tensors of a batch that are sent to the CPU (all) and to each of the devices.
        types: the types of these tensors, with a number of rows if it is the same in all batches.
    """

    value_type = SlicedIterator

    def __init__(self, batch: Any, devices: tuple[str, ...]) -> None:
        self.batch, self.devices = batch, devices
        leaves = tf.nest.flatten(batch)
        ahead = sent_ahead(batch)
        self.sent = (tuple(range(len(leaves))), *(ahead for _ in devices))
        slices = [[_of_slice(leaves[n], replica, len(devices)) for n in ahead] for replica in range(len(devices))]
        self.types = (tuple(leaves), *map(tuple, slices))

    def _serialize(self) -> tuple:
        return self.batch, self.devices

    @property
    def _component_specs(self) -> list[tf.data.IteratorSpec]:
        return [tf.data.IteratorSpec(types) for types in self.types]

    def _to_components(self, value: SlicedIterator) -> list[tf.data.Iterator]:
        return value.iterators

    def _from_components(self, components: list[tf.data.Iterator]) -> SlicedIterator:
        return SlicedIterator(lambda: components, self)


def _of_slice(spec: tf.TensorSpec, replica: int, num_replicas: int) -> tf.TensorSpec:
    """Return the type of a replica's slice of tensors of a type."""
    rows = spec.shape[0]
    size = max((rows - replica + num_replicas - 1) // num_replicas, 1) if rows else None  # as in `share_rows`
    return tf.TensorSpec([size, *spec.shape[1:]], spec.dtype)
