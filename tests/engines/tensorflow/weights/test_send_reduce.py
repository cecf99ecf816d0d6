"""The laws of send and reduce: unpacking undoes packing, and the gradient of send is the sum over the replicas."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from multigpu.engines.tensorflow.cluster.reduction import Reduction
from multigpu.engines.tensorflow.devices.logical import short_name
from multigpu.engines.tensorflow.weights.buckets import BUCKET_BYTES, Types, buckets_of, make_buckets, pack, unpack
from multigpu.engines.tensorflow.weights.gradient_structure import GradientStructure
from multigpu.engines.tensorflow.weights.packing import Packing
from multigpu.engines.tensorflow.weights.place_locate import locate
from multigpu.engines.tensorflow.weights.send_reduce import send, send_once

OWNERS = ["CPU:0", "CPU:1", "CPU:2"]
DEVICES = [f"CPU:{number}" for number in range(8)]
DTYPES = [tf.float32, tf.float16, tf.int32, tf.int64, tf.bool, tf.string]
NEARLY_A_BUCKET = BUCKET_BYTES // 4 - 1  # in float32
SHAPES = [(), (0,), (1,), (3,), (2, 0), (2, 3), (1, 1, 1), (NEARLY_A_BUCKET,), (NEARLY_A_BUCKET + 1,), (600, 500)]

KINDS = st.tuples(st.sampled_from(OWNERS), st.sampled_from(DTYPES), st.sampled_from(SHAPES))


def values_of(kinds):
    """Tensors of these kinds, no two of them alike."""
    return [
        tf.fill(shape, tf.strings.as_string(i) if dtype == tf.string else tf.cast(i, dtype))
        for i, (_, dtype, shape) in enumerate(kinds)
    ]


def buckets_for(kinds):
    return make_buckets([(owner, Types(dtype, dtype, dtype), shape) for owner, dtype, shape in kinds])


def num_bytes(kind):
    _, dtype, shape = kind
    return math.prod(shape) * max(dtype.size, 1)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(kinds=st.lists(KINDS, max_size=12))
def test_unpack_undoes_pack(kinds):
    values = values_of(kinds)
    buckets = buckets_for(kinds)
    arrived = unpack([pack(values, bucket) for bucket in buckets], buckets)
    assert len(arrived) == len(values)
    for value, other in zip(values, arrived, strict=True):
        assert other.dtype == value.dtype
        np.testing.assert_array_equal(other, value)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(kinds=st.lists(KINDS, max_size=30))
def test_every_tensor_travels_once_and_buckets_hold_one_owner_and_one_dtype(kinds):
    buckets = buckets_for(kinds)
    assert sorted(member for bucket in buckets for member in bucket.members) == list(range(len(kinds)))
    for bucket in buckets:
        assert {kinds[member][0] for member in bucket.members} == {bucket.owner}
        assert len({kinds[member][1] for member in bucket.members}) == 1
        assert [kinds[member][2] for member in bucket.members] == list(bucket.shapes)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(kinds=st.lists(KINDS, max_size=30))
def test_large_tensors_travel_alone_and_small_ones_in_few_buckets(kinds):
    buckets = buckets_for(kinds)
    for bucket in buckets:
        sizes = [num_bytes(kinds[member]) for member in bucket.members]
        assert len(sizes) == 1 or max(sizes) < BUCKET_BYTES
        assert sum(sizes[:-1]) < BUCKET_BYTES  # full only with its last member
    unfilled = [p for p in buckets if sum(num_bytes(kinds[member]) for member in p.members) < BUCKET_BYTES]
    assert len(unfilled) <= len({(owner, dtype) for owner, dtype, _ in kinds})


def test_a_hundred_small_tensors_are_one_transfer():
    (bucket,) = buckets_for([("CPU:0", tf.float32, (3, 3))] * 100)
    assert bucket.members == tuple(range(100))


def test_nothing_to_send_is_no_bucket():
    assert make_buckets([]) == []
    assert send([], [], DEVICES[:3], GradientStructure(), Reduction()) == [[], [], []]


def weights_and_buckets():
    values = [np.array([1.0, 2.0]), np.array([[3.0]]), np.array(4.0), np.ones((600, 500))]
    weights = []
    for owner, value in zip(["CPU:1", "CPU:2", "CPU:1", "CPU:0"], values, strict=True):
        with tf.device(owner):
            weights.append(keras.Variable(value, dtype="float32"))
    return weights, buckets_of(weights)


@pytest.mark.parametrize("num_replicas", [1, 2, 5])
def test_every_replica_receives_every_value(num_replicas):
    weights, buckets = weights_and_buckets()
    received = send(weights, buckets, DEVICES[:num_replicas], GradientStructure(), Reduction())
    assert len(received) == num_replicas
    for buffers in received:
        for value, weight in zip(unpack(buffers, buckets), weights, strict=True):
            np.testing.assert_array_equal(value, weight.numpy())


def gradients(num_replicas, connected):
    """Of Σ over replicas r of (r + 1) · Σ w², each replica unpacking what it receives."""
    weights, buckets = weights_and_buckets()
    notes = GradientStructure()
    notes.connect(connected)
    with tf.GradientTape() as tape:
        received = send(weights, buckets, DEVICES[:num_replicas], notes, Reduction())
        losses = [
            (replica + 1.0) * tf.add_n([tf.reduce_sum(w**2) for w in unpack(buffers, buckets)])
            for replica, buffers in enumerate(received)
        ]
        loss = tf.add_n(losses)
    return weights, tape.gradient(loss, [weight.value for weight in weights])


@pytest.mark.quick
@pytest.mark.parametrize("num_replicas", [1, 2, 5])
def test_the_gradient_of_send_is_the_sum_over_the_replicas(num_replicas):
    weights, found = gradients(num_replicas, connected={0, 1, 2, 3})
    for weight, gradient in zip(weights, found, strict=True):
        np.testing.assert_allclose(gradient, 2 * weight.numpy() * sum(range(num_replicas + 1)))


@pytest.mark.parametrize("connected", [set(), {0}, {1, 3}, {0, 2}])
def test_weights_on_which_nothing_depends_get_no_gradient(connected):
    _, found = gradients(3, connected)
    assert {i for i, gradient in enumerate(found) if gradient is not None} == connected


def test_gradients_arrive_on_the_owner():
    weights, found = gradients(3, connected={0, 1, 2, 3})
    assert [short_name(gradient.device) for gradient in found] == [locate(weight) for weight in weights]


def test_what_is_sent_without_a_gradient_is_packed_on_its_owner():
    weights, buckets = weights_and_buckets()
    buffers = send_once(weights, buckets)
    assert [short_name(buffer.device) for buffer in buffers] == [bucket.owner for bucket in buckets]
    for value, weight in zip(unpack(buffers, buckets), weights, strict=True):
        np.testing.assert_array_equal(value, weight.numpy())


def test_buckets_are_packed_and_opened_on_all_devices_by_ops_that_are_made_once():
    types = Types(*[tf.dtypes.float32] * 3)
    (bucket,) = make_buckets([("CPU:0", types, (2, 3)), ("CPU:0", types, (4,))])
    packing, tensors = Packing(), {0: tf.ones((2, 3)), 1: tf.range(4.0)}

    @tf.function
    def on_two_devices():
        with tf.device("CPU:1"):
            first = packing.open(packing.pack(tensors, bucket), bucket)
        with tf.device("CPU:2"):
            return first, packing.open(packing.pack(tensors, bucket), bucket)

    for opened in on_two_devices():
        assert [x.numpy().tolist() for x in opened] == [x.numpy().tolist() for x in tensors.values()]
    graph = on_two_devices.get_concrete_function().graph
    assert len(graph.as_graph_def().library.function) == 2
