"""Batches with slices on their devices: the same batches, and slices as `split` cuts them."""

import gc
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from multigpu.engines.tensorflow.batches import prefetch
from multigpu.engines.tensorflow.batches.prefetch import SlicedBatches, can_be_sent
from multigpu.engines.tensorflow.batches.split_merge import share_rows, split

DEVICES = ("CPU:1", "CPU:2", "CPU:3")
IMAGES, IDS, Y = np.random.default_rng(0).random((10, 2, 3)), np.arange(10, dtype="int32"), np.arange(10.0)


def batches(rows, drop_remainder=False):
    """Two inputs, of which one is sent ahead, and targets."""
    data = ({"ids": IDS, "images": IMAGES}, Y)
    return tf.data.Dataset.from_tensor_slices(data).batch(rows, drop_remainder)


def assert_as_split(dataset):
    elements = list(SlicedBatches(dataset, DEVICES))
    for element, (x, y) in zip(elements, dataset, strict=True):
        given, targets = element.batch
        for one, other in ((given["ids"], x["ids"]), (given["images"], x["images"]), (targets, y)):
            np.testing.assert_array_equal(one, other)
        slices = element.by_input()[id(given["images"])]
        assert len(element.by_input()) == 1
        for piece, expected in zip(slices, split(x["images"], share_rows(tf.shape(y)[0], 3)), strict=True):
            np.testing.assert_array_equal(piece, expected)
        assert [piece.device.rpartition("device:")[2] for piece in slices] == [*DEVICES]
    return elements


@pytest.mark.parametrize("rows", [1, 2, 4, 7, 10])
def test_slices_are_those_of_split_on_their_devices(rows):
    assert len(assert_as_split(batches(rows))) == -(-10 // rows)


def test_a_known_number_of_rows_is_known_of_slices_too():
    for rows, sizes in ((4, [2, 1, 1]), (2, [1, 1, 1])):  # the last of two rows' devices stands by
        sliced = SlicedBatches(batches(rows, drop_remainder=True), DEVICES)
        spec = iter(sliced).element_spec
        assert [of_device[0].shape[0] for of_device in spec.slices] == sizes
        assert spec.batch[1].shape == (rows,)
        assert_as_split(batches(rows, drop_remainder=True))


def test_no_more_than_two_batches_are_read_ahead():
    taken = []

    def counted():
        for number in range(50):
            taken.append(number)
            yield np.full((6, 1), number, "float32")

    dataset = tf.data.Dataset.from_generator(counted, output_signature=tf.TensorSpec([None, 1]))
    iterator = iter(SlicedBatches(dataset, DEVICES))
    for number in range(3):
        assert float(next(iterator).batch[0, 0]) == number
    assert len(taken) <= 3 + 2  # one is on the devices, one waits


def test_an_iterator_reads_nothing_until_the_first_batch_is_wanted():
    begun = []

    def counted():
        begun.append(1)
        yield np.ones((6, 1), "float32")

    dataset = tf.data.Dataset.from_generator(counted, output_signature=tf.TensorSpec([None, 1]))
    sliced = SlicedBatches(dataset, DEVICES)
    for _ in range(3):
        iter(sliced)
    assert len(begun) == 0
    assert len(list(sliced)) == 1
    assert len(begun) == 1


def test_slices_are_traced_once_for_all_datasets_of_a_type(monkeypatch):
    traced = []
    monkeypatch.setattr(prefetch, "share_rows", lambda *args: traced.append(1) or share_rows(*args))
    for first in range(3):
        dataset = tf.data.Dataset.from_tensor_slices({"only here": np.arange(first, first + 7.0)}).batch(3)
        given = [element.batch["only here"] for element in SlicedBatches(dataset, DEVICES)]
        assert np.concatenate(given).tolist() == list(range(first, first + 7))
    assert len(traced) == 1


def test_an_iterator_that_is_left_in_the_midst_leaves_no_thread_behind():
    def begun():
        next(iter(SlicedBatches(batches(1), DEVICES)))
        gc.collect()
        return len(list(Path("/proc/self/task").iterdir()))

    begun()  # TensorFlow starts threads that stay
    assert begun() >= begun()


def test_an_error_of_the_data_is_told_where_the_batch_would_be():
    def broken():
        yield np.ones((6, 1), "float32")
        raise KeyError("no such file")

    dataset = tf.data.Dataset.from_generator(broken, output_signature=tf.TensorSpec([6, 1]))
    iterator = iter(SlicedBatches(dataset, DEVICES))
    next(iterator)
    with pytest.raises(tf.errors.OpError, match="no such file"):
        next(iterator)


SPEC = tf.TensorSpec([None, 2])


@pytest.mark.parametrize(
    ("spec", "sent"),
    [
        ((SPEC, SPEC), True),
        ({"a": SPEC, "b": tf.TensorSpec([None], tf.int32)}, True),
        (SPEC, True),
        ((tf.TensorSpec([None], tf.int32), SPEC), False),
        ((tf.TensorSpec([None], tf.string), SPEC), False),
        ((tf.RaggedTensorSpec([None, None]), SPEC), False),
        ((SPEC, tf.RaggedTensorSpec([None, None])), False),
        ((tf.SparseTensorSpec([None, 2]), SPEC), False),
        ((SPEC, tf.TensorSpec([])), False),
        ((tf.TensorSpec(None), SPEC), False),
    ],
)
def test_dense_numbers_with_rows_can_be_sent(spec, sent):
    assert can_be_sent(spec) == sent


def test_whether_there_is_one_more_batch_is_not_told():
    with pytest.raises(NotImplementedError, match=r"call `get_next\(\)` for each step"):
        iter(SlicedBatches(batches(2), DEVICES)).get_next_as_optional()


def test_keras_takes_its_iterators_for_those_of_datasets():
    assert isinstance(iter(SlicedBatches(batches(2), DEVICES)), tf.data.Iterator)
    assert keras.tree.flatten(next(iter(SlicedBatches(batches(2), DEVICES))))[0].shape == (2,)
