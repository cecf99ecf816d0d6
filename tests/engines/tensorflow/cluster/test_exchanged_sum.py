"""A sum over the devices of one worker: the same on all, and of few rounds."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from multigpu.engines.tensorflow.cluster.one_worker import OneWorker

ROUNDS = {1: 0, 2: 1, 3: 1, 4: 2, 5: 1, 6: 2, 7: 1, 8: 3}


def replica_of(size, first_replica=0):
    """A replica that sums over all of them, traced once for all."""
    workers = OneWorker([f"CPU:{number}" for number in range(size)], first_replica)

    @tf.function(input_signature=[tf.TensorSpec([3, 5]), tf.TensorSpec([], tf.int32)], autograph=False)
    def replica(x, number):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = workers.over_replicas(x, "numbers", number)
        return total, tape.gradient(total, x, output_gradients=x)

    return replica.get_concrete_function()


@pytest.mark.parametrize("size", ROUNDS)
def test_the_sum_is_the_same_to_the_last_bit_on_all_devices_and_its_gradient_is_a_sum(size):
    replica = replica_of(size, first_replica=size)
    values = np.random.default_rng(0).normal(size=(size, 3, 5)).astype("float32")

    @tf.function
    def together(values):
        results = []
        for number in range(size):
            with tf.device(f"CPU:{number}"):
                results.append(replica(values[number], tf.constant(size + number)))
        return results

    for of_times in (1, 3):
        results = keras.tree.map_structure(np.asarray, together(tf.constant(of_times * values)))
        for total, gradient in results:
            np.testing.assert_allclose(total, of_times * values.sum(axis=0), rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(total, results[0][0])
            np.testing.assert_array_equal(gradient, total)


@pytest.mark.parametrize("size", ROUNDS)
def test_there_are_as_many_rounds_as_prime_factors(size):
    graph = replica_of(size).graph.as_graph_def()
    ops = [node for function in graph.library.function for node in function.node_def]
    instances = {node.attr["instance_key"].i for node in [*graph.node, *ops] if node.op == "CollectiveGather"}
    assert len(instances) == 2 * ROUNDS[size]  # of the sum and of its gradient
