"""A process joins the cluster that TF_CONFIG, a resolver or a scheduler describes, or says why it cannot."""

import pytest
import tensorflow as tf
from cluster_variables import MPICH, OPEN_MPI, SLURM, TWO_WORKERS, set_variables, tf_config
from equality import dense_model

import multigpu
from multigpu.cluster.config import described
from multigpu.engines.tensorflow.cluster import join


def test_a_tf_config_that_is_not_understood_is_refused_when_a_model_is_made_not_before(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "{")
    join.join()  # as the import does
    assert len(multigpu.available_gpus()) == 8
    with pytest.raises(ValueError, match=r"Received: TF_CONFIG='{', which is not JSON"):
        multigpu.multi_gpu_model(dense_model(), gpus=2)


def test_a_cluster_described_after_tensorflow_has_started_is_refused(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", tf_config()["TF_CONFIG"])
    multigpu.available_gpus()
    join.join()  # as the import does: too late, and silent until a model is made
    with pytest.raises(
        ValueError, match=r"Expected to join before TensorFlow .* TF_CONFIG describes 2 .* Received: TensorFlow started"
    ):
        join.check_joined()


def resolver(jobs=TWO_WORKERS, kind="worker", index=1):
    spec = tf.train.ClusterSpec(jobs)
    return tf.distribute.cluster_resolver.SimpleClusterResolver(spec, task_type=kind, task_id=index)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (
            resolver(),
            r"since the resolver finds 2 workers: .* Received: TensorFlow started first, on worker 1 of 2\. Call",
        ),
        (
            resolver(kind="", index=None),
            r"knows which task .* SimpleClusterResolver with task_type='' and task_id=None\.",
        ),
        (
            resolver({**TWO_WORKERS, "ps": ["c:3"]}),
            r"Expected the resolver to name .* Received: {.*}, with parameter servers \(`ps`\), .*\. Correct it\.$",
        ),
        (resolver({"worker": {0: "a:1", 2: "c:3"}}), r"with the address null, rather than host:port"),
        *[
            (each, r"Expected `resolver` to be one of .* Received: resolver=.*\. Call")
            for each in (1, "slurm", TWO_WORKERS, [], object())
        ],
    ],
)
def test_what_a_resolver_finds_is_refused_where_it_cannot_be_joined(found, message):
    multigpu.available_gpus()
    with pytest.raises(ValueError, match=message):
        multigpu.join_cluster(found)


def test_a_resolver_that_finds_one_worker_changes_nothing():
    multigpu.join_cluster(resolver({"worker": ["a:1"]}, index=0))
    assert join.joined() is None


def test_a_cluster_that_was_joined_is_joined_once_more(monkeypatch):
    monkeypatch.setattr(join, "joined", lambda: described(tf_config(index=1)))
    multigpu.join_cluster(resolver())


def test_another_cluster_than_the_one_that_was_joined_is_refused(monkeypatch):
    monkeypatch.setattr(join, "joined", lambda: described(tf_config({"worker": ["c:3", "d:4"]})))
    with pytest.raises(ValueError, match=r"Expected one cluster\. Received: worker 1 of 2, with a:1, b:2, and before"):
        multigpu.join_cluster(resolver())


def test_this_process_has_joined_no_cluster():
    assert join.joined() is None


@pytest.mark.parametrize(("environ", "number"), [(SLURM, 2), (OPEN_MPI, 1), (MPICH, 1), (tf_config(index=1), 1)])
def test_join_cluster_asks_tf_config_slurm_or_mpi(monkeypatch, environ, number):
    listening = []
    set_variables(monkeypatch, environ)
    monkeypatch.setattr(join, "has_started", lambda: False)
    monkeypatch.setattr(join, "_listen", listening.append)
    multigpu.join_cluster()
    assert [cluster.number for cluster in listening] == [number]


def test_a_step_of_slurm_that_joins_too_late_is_refused(monkeypatch):
    set_variables(monkeypatch, SLURM)
    multigpu.available_gpus()
    with pytest.raises(
        ValueError,
        match=r"variables of SLURM or MPI describe 4 workers.* on worker 2 of 4\. Call `multigpu.join_cluster",
    ):
        multigpu.join_cluster()
