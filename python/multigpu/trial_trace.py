"""A trace of a replica that is never run: it shows what a run op by op does not, which has no open axes."""

import contextlib
from collections.abc import Iterator, Sequence

import keras
import tensorflow as tf

from multigpu.batch import Batch
from multigpu.parts import Parts
from multigpu.replica import Replica
from multigpu.row_changes import WholeBatchError


def check_by_trace(parts: Parts, batch: Batch, inputs: Sequence[tf.Tensor]) -> None:
    """Refuses, by name, a template that cannot be run slice by slice, before it is run op by op.

    Args:
        parts: the template.
        batch: the arguments of the call.
        inputs: of a replica.

    Raises:
        WholeBatchError: says which layer mixes rows.
    """
    replica = Replica(parts, batch, alone=False)  # without workers: they would have to be met in a run
    with tf.init_scope(), _unchanged([parts.template, *parts.layers]):  # on no tape
        try:
            replica.trace(inputs)
        except WholeBatchError:
            raise
        except Exception:  # anything: code that needs numbers runs op by op alone, and is not checked
            pass


@contextlib.contextmanager
def _unchanged(layers: Sequence[keras.Layer]) -> Iterator[None]:
    """Gives layers back the attributes that they had: a tensor of the trace, kept for later, has no value."""
    before = [dict(vars(layer)) for layer in layers]
    try:
        yield
    finally:
        for layer, attributes in zip(layers, before, strict=True):
            for new in vars(layer).keys() - attributes.keys():
                del vars(layer)[new]
            vars(layer).update(attributes)
