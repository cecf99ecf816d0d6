"""What rides on tensors is taken from a list and attached to another one."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from equality import ONE_CALL, random_rows
from keras import layers

from multigpu.engines.tensorflow.batches.call_arguments import CallArguments
from multigpu.engines.tensorflow.batches.riders import Riders, riders_of
from multigpu.engines.tensorflow.private_api.masks import with_mask


def crossentropy(y_pred):
    return keras.losses.categorical_crossentropy(tf.one_hot([1] * len(y_pred), 2), y_pred)


@pytest.mark.quick
def test_attaching_is_the_inverse_of_taking():
    masked = layers.Masking()(np.eye(4, dtype="float32")[None])
    sure = keras.activations.softmax(tf.constant([[90.0, 0.0], [0.0, 90.0]]))
    flat = [masked, tf.ones(2), sure]
    riders = Riders(flat)
    bare = [tf.identity(x) for x in flat]
    again = riders.attached(bare, riders.of(flat))
    assert len(riders) == len(riders.of(flat)) == 2
    assert [
        [rider is other for (rider, _), (other, _) in zip(riders_of(x), riders_of(y), strict=True)]
        for x, y in zip(flat, again, strict=True)
    ] == [[True], [], [True]]
    assert crossentropy(again[2])[0] == crossentropy(sure)[0] == 90
    assert crossentropy(tf.identity(sure))[0] < 20


def test_the_same_riders_in_the_same_places_read_alike():
    def riders(*flat):
        return repr(Riders(flat))

    with tf.Graph().as_default():
        x = tf.constant([[1.0, 2.0]])
        assert riders(tf.nn.softmax(x), x) == riders(tf.nn.softmax(2 * x), x) == "[(0, 'with_softmax')]"
        assert riders(x, tf.nn.softmax(x)) == "[(1, 'with_softmax')]"
        assert riders(tf.nn.sigmoid(x), x) == "[(0, 'with_sigmoid')]"
        assert riders(keras.ops.sigmoid(x), x) == "[(0, 'with_logits')]"
        assert riders(x) == "[]"


def test_a_mask_and_logits_ride_together():
    with tf.Graph().as_default():
        logits, mask = tf.constant([[[1.0, 2.0]]]), tf.constant([[True]])
        x = with_mask(tf.nn.softmax(logits), mask)
        (again,) = Riders([x]).attached([tf.identity(x)], Riders([x]).of([x]))
        assert [rider for rider, _ in riders_of(again)] == [logits, mask]


def test_arguments_are_rebuilt_with_their_logits():
    sure = keras.activations.softmax(tf.constant(90 * random_rows(4, 2)))
    batch = CallArguments((sure,), {})
    (first,), _ = batch.rebuild([x[:2] for x in batch.tensors])
    np.testing.assert_allclose(crossentropy(first), crossentropy(sure)[:2], **ONE_CALL)
