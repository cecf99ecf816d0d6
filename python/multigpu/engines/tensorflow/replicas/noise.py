"""Draw the noise of a slice: the part for the slice's rows of what one device draws for the global batch.

TensorFlow draws with a counter: number i of a tensor comes from block i ÷ 4 after its start, or i ÷ 2 for 64 bits. So
the part of a slice begins some blocks later. Noise has rows if an axis of its shape would be longer in a larger batch.
Noise without rows is the same in all replicas, which draw from the same seeds.
"""

import contextlib
import contextvars
import functools
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from multigpu.base.replaced import set_to
from multigpu.engines.tensorflow.batches.split_merge import Position, count_rows
from multigpu.engines.tensorflow.private_api.graphs import within_xla
from multigpu.engines.tensorflow.private_api.random_ops import draws_replaced, known_sizes
from multigpu.engines.tensorflow.private_api.tensorflow_names import BY_COUNTER
from multigpu.engines.tensorflow.replicas.open_shapes import ROWS, OpenShapes

PARAMETERS = ("alpha", "counts", "probs", "lam", "means", "stddevs", "minvals", "maxvals")  # which may have rows, too
BLOCK = 16  # bytes
TRIES = 64  # blocks of a truncated normal for each number, unless XLA compiles it
THREEFRY = 2  # another algorithm, which is used only on request

_noise: contextvars.ContextVar["SliceNoise | None"] = contextvars.ContextVar("noise", default=None)


class Rows(NamedTuple):
    """Where noise has rows: the axis, and the number of its elements for each row of the slice."""

    axis: int
    each: int | tf.Tensor


class Draw(NamedTuple):
    """A draw in a run op by op: its function, its number of axes, and the axis with rows, if any."""

    name: str
    rank: int
    axis: int | None


class SliceNoise:
    """Replacements for functions that draw from a seed, while a replica runs.

    Attributes:
        drawn: functions and shapes of the draws so far, if it runs op by op.
        is_sure: whether the axis with rows was known for all of them.
    """

    def __init__(self, slices: Sequence[tf.Tensor], position: Position, known: Sequence[Draw] = ()) -> None:
        """Store how to distinguish rows from other axes.

        Args:
            slices: the template's input tensors with rows.
            position: their position in the global batch.
            known: the coming draws if it runs op by op, when all sizes are numbers.
        """
        self.drawn: list[tuple[str, tuple[int, ...]]] = []
        self.is_sure = True
        self._known = known
        self._first, self._total = position.first, position.total
        self._rows = count_rows(slices[:1])
        self._start = _counter(tf.cast(self._first, tf.uint64))
        self._shapes = None if tf.executing_eagerly() else OpenShapes(slices)

    @contextlib.contextmanager
    def of_slice(self) -> Iterator[None]:
        """Make this thread draw the noise of the slice, inside a `with` block."""
        with draws_replaced(self._draw, lambda: _noise.get() is self), set_to(_noise, self):
            yield

    def _draw(self, name: str, draw: Callable[..., tf.Tensor], /, *args: Any, **kwargs: Any) -> tf.Tensor:
        given = inspect.signature(draw).bind(*args, **kwargs).arguments
        of_rows = "logits" if name == "stateless_multinomial" else "shape"
        taken = tf.convert_to_tensor(given[of_rows])
        shape = tf.shape(taken)[:1] if of_rows == "logits" else tf.cast(taken, tf.int32)
        rows = self._rows_of(shape, self._shapes) if self._shapes else self._rows_by_number(name, shape)
        if rows is None:
            return draw(**given)
        xla = within_xla()
        in_order = name in BY_COUNTER and not (xla and name == "stateless_random_normal_v2")  # there, halves are pairs
        if in_order and rows.axis == 0 and given["alg"] != THREEFRY:
            tries = TRIES if name == "stateless_truncated_normal_v2" and not xla else None
            return self._from_counter(functools.partial(draw, **given), shape, rows.each, tries)
        return self._of_whole_batch(draw, given, of_rows, shape, rows)

    def _rows_of(self, shape: tf.Tensor, shapes: OpenShapes) -> Rows | None:
        """Return where noise of this shape has rows, if it has any."""
        if tf.get_static_value(shape) is not None:
            return None
        sizes = shapes.of(shape)
        if sizes.rank is not None:
            for axis, size in enumerate(sizes):
                if size and size % ROWS == 0:
                    fixed = size == ROWS or not shapes.lengths_open
                    return Rows(axis, size // ROWS if fixed else shape[axis] // self._rows)
        unknown = sizes.rank is None or sizes[0] is None  # in a loop, or from a function: Keras has rows first
        return Rows(0, shape[0] // self._rows) if unknown else None

    def _rows_by_number(self, name: str, shape: tf.Tensor) -> Rows | None:
        """Return the same, op by op: from the known draw with this number, or the first axis if it is as long."""
        sizes, rows = tf.get_static_value(shape), int(self._rows)
        if sizes is None or rows == int(self._total):  # in a separate graph, or for all rows
            self.drawn.append((name, () if sizes is None else tuple(map(int, sizes))))
            return None
        known = self._known[len(self.drawn)] if len(self.drawn) < len(self._known) else None
        self.drawn.append((name, tuple(map(int, sizes))))
        if known and known[:2] == (name, len(sizes)) and (known.axis is None or sizes[known.axis] % rows == 0):
            return None if known.axis is None else Rows(known.axis, int(sizes[known.axis]) // rows)
        self.is_sure = False
        return Rows(0, 1) if len(sizes) and sizes[0] == rows else None

    def _from_counter(
        self, draw: functools.partial[tf.Tensor], shape: tf.Tensor, each: int | tf.Tensor, tries: int | None
    ) -> tf.Tensor:
        """Return the numbers that begin where the first row of the slice has its own.

        Args:
            draw: a function that draws with the given arguments, or with others in their places.
            shape: the shape of the noise.
            each: the number of elements of its first axis for each row.
            tries: the number of blocks for each number, if it needs whole blocks.
        """
        given = draw.keywords
        dtype = tf.as_dtype(given["dtype"]) if "dtype" in given else given["minval"].dtype
        per_block = BLOCK // max(dtype.size, 4)
        scale = tries * per_block if tries else 1
        sizes = known_sizes(shape)[1:]
        known = [] if sizes.rank is None else [size for size in sizes if size is not None]
        width = each * (math.prod(known) if sizes.is_fully_defined() else tf.reduce_prod(shape[1:]))
        if math.prod(known) * (each if isinstance(each, int) else 1) % per_block == 0:
            moved = self._start * tf.cast(width // per_block * scale, tf.uint64)
            return draw(counter=given["counter"] + moved)
        begin = tf.cast(self._first, tf.int64) * tf.cast(width, tf.int64)
        counter = given["counter"] + _counter(tf.cast(begin // per_block * scale, tf.uint64))
        size, skipped = tf.reduce_prod(shape), tf.cast(begin % per_block, tf.int32)
        return tf.reshape(tf.slice(draw(shape=[size + per_block - 1], counter=counter), [skipped], [size]), shape)

    def _of_whole_batch(
        self, draw: Callable[..., tf.Tensor], given: dict[str, Any], of_rows: str, shape: tf.Tensor, rows: Rows
    ) -> tf.Tensor:
        """Draw for the global batch, and return the part of the slice. The values of other slices do not matter."""
        axis, size = rows.axis, shape[rows.axis]
        total, first = self._total * rows.each, self._first * rows.each
        of_slice = tf.clip_by_value(tf.range(total) - first, 0, size - 1)
        whole = dict(given)
        if of_rows == "shape":
            whole["shape"] = tf.concat([shape[:axis], [total], shape[axis + 1 :]], axis=0)
        for name in (of_rows, *PARAMETERS):
            if name in given and name != "shape":
                x = tf.convert_to_tensor(given[name])
                at = axis if name == of_rows else axis + x.shape.rank - shape.shape[0]
                if at >= 0 and x.shape[at] in (None, tf.get_static_value(size)):  # and not one number for all rows
                    whole[name] = tf.gather(x, of_slice, axis=at)
        return tf.gather(draw(**whole), first + tf.range(size), axis=axis)


def draws_by(two: SliceNoise, three: SliceNoise) -> list[Draw]:
    """Return the draws of a run op by op, found from runs with 2 and with 3 rows."""
    draws = []
    for (name, sizes), (other, more) in zip(two.drawn, three.drawn, strict=False):
        if (name, len(sizes)) != (other, len(more)):
            break
        grown = [axis for axis in range(len(sizes)) if sizes[axis] != more[axis]]
        in_rows = [axis for axis in grown if sizes[axis] * 3 == more[axis] * 2]
        draws.append(Draw(name, len(sizes), in_rows[0] if in_rows else None))
    return draws


def _counter(blocks: tf.Tensor) -> tf.Tensor:
    """Return a counter after so many blocks, in TensorFlow's form. From a seed, it begins at 0."""
    return tf.stack([blocks, tf.zeros([], tf.uint64)])
