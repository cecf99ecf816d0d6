"""For how long a worker has been absent the others can read, and it is nothing while it waits for them."""

import threading
import time

import pytest
import tensorflow as tf

from multigpu.cluster.config import Cluster
from multigpu.cluster.lost import WorkerLostError
from multigpu.engines.tensorflow.cluster import failures, peer_status, rendezvous

CLUSTER = Cluster(("a", "b"), ("localhost:2222", "localhost:2223"), 0, arrive_seconds=60.0)


@pytest.fixture
def asked():
    """What this worker tells of itself."""
    return lambda: peer_status.absence_text(rendezvous.state_of(rendezvous.record()).numpy(), seconds=-1)


@pytest.fixture
def later(monkeypatch):
    clock, now = tf.timestamp, time.time()
    return lambda seconds: monkeypatch.setattr(tf, "timestamp", lambda: clock() + now + seconds - time.time())


def met_at_barrier(during=lambda: None):
    """A barrier of one worker, in which something happens."""

    def summed(x):
        during()
        return 2 * x

    return rendezvous.barrier_sum(tf.constant(3.0), summed)


def test_seconds_count_from_the_last_barrier(asked, later):
    assert met_at_barrier() == 6
    assert rendezvous.seconds_waiting() == 0
    later(70)
    assert asked() == "does something else, for 70 seconds now"
    later(5)
    with rendezvous.within_step():
        assert asked() == "waits for its data, or is in the middle of a step, for 5 seconds now"
    later(12)
    assert asked() == "does something else, for 7 seconds now"


def test_seconds_in_a_step_count_from_its_own_barrier(later):
    met_at_barrier()
    with rendezvous.within_step():
        later(5)  # for its data
        assert rendezvous.seconds_since_barrier() == 0
        met_at_barrier(lambda: later(9))
        later(12)
        assert rendezvous.seconds_since_barrier() == pytest.approx(3, abs=1)
    assert rendezvous.seconds_since_barrier() == 0


def test_who_failed_in_a_step_waits_no_more(later):
    with pytest.raises(tf.errors.UnavailableError), rendezvous.within_step():
        wait_in_vain(later)
    later(90)
    assert rendezvous.seconds_waiting() == 0


def test_who_waits_for_the_others_is_not_absent(asked, later):
    def during():
        later(70)
        assert asked() == ""
        assert rendezvous.seconds_waiting() == pytest.approx(70, abs=1)

    met_at_barrier(during)
    assert rendezvous.seconds_waiting() == 0


def test_a_barrier_in_a_function_begins_when_its_input_is_known():
    known, waited, noted = [], [], []

    def note():
        waited.append(rendezvous.seconds_waiting())
        noted.append(time.time())
        return 1.0

    def slow():
        time.sleep(0.5)
        known.append(time.time())
        return 3.0

    def summed(x):
        return x + tf.py_function(note, [], tf.float32)

    @tf.function
    def step():
        return rendezvous.barrier_sum(tf.py_function(slow, [], tf.float32), summed)

    assert step() == 4
    assert rendezvous.seconds_waiting() == 0
    assert 0 < waited[0] < noted[0] - known[0] + 0.1  # 0.5 more if it had begun before


@pytest.fixture(scope="module")
def worker():
    """A server of TensorFlow, which stands for another worker that listens, and how to make its record."""
    server = tf.distribute.Server({"worker": ["localhost:0"]}, job_name="worker", task_index=0)
    task, address = "/job:worker/replica:0/task:0", server.target.removeprefix("grpc://")

    def record(waits, seconds, within):
        with tf.Graph().as_default(), tf.device(f"{task}/device:CPU:0"):
            barrier, within_step = rendezvous.handles_by_name()
            since = tf.timestamp() - seconds
            writes = (
                tf.raw_ops.AssignVariableOp(resource=barrier, value=tf.stack([tf.constant(waits, tf.float64), since])),
                tf.raw_ops.AssignVariableOp(resource=within_step, value=tf.constant(within, tf.float64)),
            )
            with tf.compat.v1.Session(server.target) as session:
                session.run(writes)

    return Cluster(("/job:worker/replica:0/task:1", task), ("localhost:1", address), 0), record


@pytest.mark.quick
def test_another_worker_tells_where_tensorflow_listens_what_it_does(worker, later):
    cluster, record = worker
    assert peer_status.absent(cluster, seconds=30) == {}

    def during():
        later(70)
        assert peer_status.absent(cluster, seconds=30) == {1: "has made no parallel model yet"}

    met_at_barrier(during)
    record(0.0, 40.0, 0.0)
    assert peer_status.absent(cluster, seconds=30) == {1: "does something else, for 40 seconds now"}
    assert peer_status.absent(cluster, seconds=50) == {}
    record(0.0, 40.0, 1.0)
    assert peer_status.absent(cluster, seconds=30) == {
        1: "waits for its data, or is in the middle of a step, for 40 seconds now"
    }
    record(1.0, 40.0, 1.0)
    assert peer_status.absent(cluster, seconds=30) == {}


def test_nothing_is_known_of_a_worker_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(peer_status, "SECONDS_TO_ANSWER", 0.2)
    cluster = Cluster(
        ("/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1"), ("localhost:1", "localhost:1"), 0
    )
    assert peer_status.absent(cluster, seconds=-1) == {}


def test_telling_takes_no_thread_and_no_port():
    """As it did: TensorFlow itself answers, on the port where it listens for the cluster."""
    before = threading.enumerate()
    rendezvous.record()
    assert met_at_barrier() == 6
    assert threading.enumerate() == before


@pytest.mark.parametrize(
    ("size", "seconds", "expected"),
    [
        (3, 60, "Received: worker 1 at b:1 or worker 2 at b:2 did not arrive within 60 seconds: it does something"),
        (12, 60, "Received: one of 11 others did not arrive within 60 seconds: it does something else"),
        (2, 1, "Received: worker 1 at b:1 may have left the step: it failed there, or gave up\\. Restart"),
    ],
)
def test_where_nobody_says_that_it_was_absent_all_that_may_have_been_are_listed(
    monkeypatch, later, size, seconds, expected
):
    cluster = Cluster(("task",) * size, tuple(f"b:{n}" for n in range(size)), 0, arrive_seconds=60.0)
    monkeypatch.setattr(peer_status, "_asked", lambda *_: None)
    monkeypatch.setattr(failures, "_is_lost", lambda *_: False)
    with pytest.raises(WorkerLostError, match=expected), failures.named(cluster):
        wait_in_vain(later, seconds)


def wait_in_vain(later, seconds=60):
    """A barrier that another worker ends, after a minute."""

    def during():
        later(seconds)
        raise tf.errors.UnavailableError(None, None, "Collective ops is aborted")

    met_at_barrier(during)


def test_a_lost_worker_that_was_all_there_was_to_wait_for_is_named_alone(monkeypatch, later):
    monkeypatch.setattr(peer_status, "_asked", lambda *_: None)
    monkeypatch.setattr(failures, "_is_lost", lambda *_: True)

    expected = "Received: no answer from worker 1 at localhost:2223\\. Restart"
    with pytest.raises(WorkerLostError, match=expected), failures.named(CLUSTER):
        wait_in_vain(later)


def test_who_has_given_up_waiting_is_not_all_that_is_named(monkeypatch, later):
    """Another one was the first to end, and does not answer any more; of the late one nothing is known."""
    cluster = Cluster(("task",) * 3, tuple(f"b:{n}" for n in range(3)), 0, arrive_seconds=60.0)
    monkeypatch.setattr(peer_status, "_asked", lambda *_: None)
    monkeypatch.setattr(failures, "_is_lost", lambda number, _: number == 1)

    expected = "Received: no answer from worker 1 at b:1; worker 2 at b:2 did not arrive within 60 seconds"
    with pytest.raises(WorkerLostError, match=expected), failures.named(cluster):
        wait_in_vain(later)


def test_python_waits_for_the_thread_that_watches():
    """Taken down in the midst of a question to another worker, it would take the process with it."""
    assert not failures.HeartbeatMonitor(CLUSTER).daemon


@pytest.mark.parametrize("cluster", [CLUSTER, None])
@pytest.mark.parametrize(
    "error",
    [
        tf.errors.InvalidArgumentError(None, None, "Matrix size-incompatible"),
        tf.errors.ResourceExhaustedError(None, None, "OOM when allocating"),
    ],
)
def test_another_error_of_a_step_stays_as_it_is(cluster, error):
    with pytest.raises(type(error)) as raised, failures.named(cluster):
        raise error
    assert raised.value is error


def test_without_a_cluster_an_error_of_a_collective_op_stays_as_it_is():
    error = tf.errors.UnavailableError(None, None, "Collective ops is aborted")
    with pytest.raises(tf.errors.UnavailableError), failures.named(None):
        raise error
