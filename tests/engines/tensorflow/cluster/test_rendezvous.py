"""The record of whether a worker waits for the others."""

import time

import tensorflow as tf

from multigpu.engines.tensorflow.cluster.rendezvous import barrier_sum, record, state_of


def test_a_worker_waits_from_when_its_number_is_known_until_the_sum_ends():
    record.cache_clear()  # written anew: a sum that failed in a test before this one never ended
    waits = {}

    def noted(when, x, after=0.0):
        def note(x):
            time.sleep(after)
            waits[when] = bool(state_of(record())[0])
            return x

        return tf.numpy_function(note, [x], tf.float32, stateful=False)  # which TensorFlow may run at any time

    @tf.function
    def step(x):
        return barrier_sum(noted("before", x, after=0.2), lambda x: noted("meanwhile", x))

    assert step(tf.constant(3.0)) == 3
    waits["afterwards"] = bool(state_of(record())[0])
    assert waits == {"before": False, "meanwhile": True, "afterwards": False}
