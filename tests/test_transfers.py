"""What moves between devices is the least that has to: read from the executed graph of a training step."""

import keras
import pytest
import tensorflow as tf
from crossings import crossings
from equality import dense_model, mean_squared, random_rows
from executed import executed

from multigpu import multi_gpu_model


def step_of(template: keras.Model, gpus: int):
    parallel = multi_gpu_model(template, gpus=gpus)
    parallel.compile(**mean_squared())
    batches = tf.data.Dataset.from_tensor_slices((random_rows(20, 3), random_rows(20, 2))).batch(8)
    return crossings(executed(lambda: parallel.fit(batches, shuffle=False, verbose=0)))


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_bytes_of_weights_and_gradients_are_those_of_a_ring(gpus):
    template = dense_model()
    packed = [transfer for transfer in step_of(template, gpus) if transfer.shape and transfer.num_bytes]
    weights = sum(weight.nbytes for weight in template.get_weights())
    # a ring moves 2·(N−1)/N·W to each of N devices; every byte is sent once and received once
    assert sum(transfer.num_bytes for transfer in packed) == 2 * (gpus - 1) * weights


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_a_slice_its_outputs_and_their_gradient_cross_once_for_each_replica(gpus):
    arrays = [transfer for transfer in step_of(dense_model(), gpus) if transfer.dtype != "int32"]  # rows are counted
    of_the_batch = [transfer for transfer in arrays if transfer.num_bytes is None]
    assert len(of_the_batch) == 3 * (gpus - 1)
    assert all("CPU:0" in (transfer.start, transfer.end) for transfer in of_the_batch)
