"""What is attached to tensors is taken from a list and attached to another one."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from equality import ONE_CALL, random_rows
from keras import layers

from multigpu.engines.tensorflow.batches.call_arguments import CallArguments
from multigpu.engines.tensorflow.batches.masks_and_logits import MasksAndLogits, masks_and_logits_of
from multigpu.engines.tensorflow.private_api.attached import with_mask


def crossentropy(y_pred):
    return keras.losses.categorical_crossentropy(tf.one_hot([1] * len(y_pred), 2), y_pred)


@pytest.mark.quick
def test_attaching_is_the_inverse_of_taking():
    masked = layers.Masking()(np.eye(4, dtype="float32")[None])
    sure = keras.activations.softmax(tf.constant([[90.0, 0.0], [0.0, 90.0]]))
    flat = [masked, tf.ones(2), sure]
    found = MasksAndLogits(flat)
    bare = [tf.identity(x) for x in flat]
    again = found.attached(bare, found.of(flat))
    assert len(found) == len(found.of(flat)) == 2
    assert [
        [one is other for (one, _), (other, _) in zip(masks_and_logits_of(x), masks_and_logits_of(y), strict=True)]
        for x, y in zip(flat, again, strict=True)
    ] == [[True], [], [True]]
    assert crossentropy(again[2])[0] == crossentropy(sure)[0] == 90
    assert crossentropy(tf.identity(sure))[0] < 20


def test_the_same_masks_and_logits_in_the_same_places_read_alike():
    def kinds(*flat):
        return repr(MasksAndLogits(flat))

    with tf.Graph().as_default():
        x = tf.constant([[1.0, 2.0]])
        assert kinds(tf.nn.softmax(x), x) == kinds(tf.nn.softmax(2 * x), x) == "[(0, 'with_softmax')]"
        assert kinds(x, tf.nn.softmax(x)) == "[(1, 'with_softmax')]"
        assert kinds(tf.nn.sigmoid(x), x) == "[(0, 'with_sigmoid')]"
        assert kinds(keras.ops.sigmoid(x), x) == "[(0, 'with_logits')]"
        assert kinds(x) == "[]"


def test_a_mask_and_logits_ride_together():
    with tf.Graph().as_default():
        logits, mask = tf.constant([[[1.0, 2.0]]]), tf.constant([[True]])
        x = with_mask(tf.nn.softmax(logits), mask)
        (again,) = MasksAndLogits([x]).attached([tf.identity(x)], MasksAndLogits([x]).of([x]))
        assert [each for each, _ in masks_and_logits_of(again)] == [logits, mask]


def test_arguments_are_rebuilt_with_their_logits():
    sure = keras.activations.softmax(tf.constant(90 * random_rows(4, 2)))
    batch = CallArguments((sure,), {})
    (first,), _ = batch.rebuild([x[:2] for x in batch.tensors])
    np.testing.assert_allclose(crossentropy(first), crossentropy(sure)[:2], **ONE_CALL)
