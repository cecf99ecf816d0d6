"""The comparison with one device, on which all tests of numbers rest, tells what it has to."""

import keras
import pytest
from cases import some
from equality import FLOAT32, assert_same_numbers, assert_same_training, mean_squared, random_rows, train
from training_cases import TRAININGS

ROWS = 18  # with batches of 8: two steps on uneven slices, and one of 2 rows, less than there are devices
layers = keras.layers


def test_a_layer_that_looks_across_rows_is_told_apart():
    def build():
        return keras.Sequential([keras.Input((3,)), layers.Dense(4), layers.BatchNormalization(), layers.Dense(2)])

    with pytest.raises(AssertionError, match="history loss 0"):
        assert_same_training(build, random_rows(ROWS, 3), random_rows(ROWS, 2), compile=mean_squared, gpus=2)


@pytest.mark.parametrize(
    "kind",
    some(
        [kind for kind in TRAININGS if kind != "several inputs and outputs"],
        ["metrics that are objects", "state of layers", "losses behind masks"],
    ),
)
def test_one_device_has_the_same_numbers_in_a_graph(kind):
    """Most twins run eagerly; Keras by itself makes a graph of their steps."""
    given = TRAININGS[kind]

    def numbers(**way):
        return train(**{**given, "compile": lambda: {**given["compile"](), **way}}, gpus=None, as_arrays=True)[1]

    assert_same_numbers(numbers(run_eagerly=True), numbers(run_eagerly=False), **FLOAT32)
