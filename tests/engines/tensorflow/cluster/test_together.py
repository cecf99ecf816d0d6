"""What workers reduce together: real numbers, in dense tensors."""

import pytest
import tensorflow as tf

from multigpu.cluster.config import Cluster
from multigpu.engines.tensorflow.cluster import together
from multigpu.engines.tensorflow.cluster.together import Step, Together


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("string", lambda: tf.constant(["text"])),
        ("complex64", lambda: tf.constant([1j], tf.complex64)),
        ("SparseTensor", lambda: tf.sparse.from_dense([[1.0]])),
        ("RaggedTensor", lambda: tf.ragged.constant([[1.0], []])),
    ],
)
def test_rows_that_do_not_travel_are_refused_by_name(kind, rows, monkeypatch):
    monkeypatch.setattr(together, "gather", lambda *_: pytest.fail("waits for another worker"))
    cluster = Cluster(("a", "b"), ("a:1", "b:1"), 0)
    workers = Together(cluster, "model", 1, tf.constant(1.0), Step(joint=False))
    with pytest.raises(
        ValueError, match=f"Expected dense real numbers .* Received: {kind}. Compute it in a layer that"
    ):
        workers.all_rows(rows())
