"""A trace of a replica that is never run: it shows what a run op by op does not, which has no open axes."""

import contextlib
from collections.abc import Iterator, Sequence

import keras
import tensorflow as tf

from multigpu.batches.call_arguments import CallArguments
from multigpu.cluster.one_worker import OneWorker
from multigpu.devices.plan import Plan
from multigpu.replicas.replica import Replica
from multigpu.replicas.row_mixing import WholeBatchError
from multigpu.replicas.template import TemplateParts
from multigpu.weights.rows import Rows


def check_by_trace(parts: TemplateParts, batch: CallArguments, plan: Plan) -> dict[int, Rows]:
    """Refuses, by name, a template that cannot be run slice by slice, before it is run op by op.

    Args:
        parts: the template.
        batch: the arguments of the call.
        plan: where it is to run.

    Returns:
        How rows of weights and tables are looked up, by their ids, as far as it was traced.

    Raises:
        WholeBatchError: says which layer mixes rows.
    """
    replica = Replica(parts, batch, alone=False, workers=OneWorker(plan.first_devices), plan=plan)  # others would wait
    with tf.init_scope(), _unchanged([parts.template, *parts.layers]):  # on no tape
        try:
            replica.trace()
        except WholeBatchError:
            raise
        except Exception:  # anything: code that needs numbers runs op by op alone, and is not checked
            return {}
    return {**{weight: types.rows for weight, types in replica.types.items() if types.rows}, **replica.rows_of_tables}


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
