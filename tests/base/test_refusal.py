"""Refusals: their parts, their texts, their classes."""

import keras
import pytest

from multigpu import UntrustedFileError, load_model_hdf5, multi_gpu_model
from multigpu.base.refusal import refuse, with_more

pytestmark = pytest.mark.quick


def test_an_error_has_its_three_parts_as_attributes_and_reads_as_one_text():
    error = refuse("a number", "'x'", "Use `n=1`.", TypeError)
    assert type(error) is TypeError
    assert str(error) == "Expected a number. Received: 'x'. Use `n=1`."
    assert (error.expected, error.received, error.use) == ("a number", "'x'", "Use `n=1`.")
    assert str(refuse("a number", "none")) == "Expected a number. Received: none."


def test_keras_raises_an_error_of_a_layer_as_it_is():
    class Refuses(keras.layers.Layer):
        def build(self, shape):
            self.built = True  # Keras calls no layer to find the shape of its outputs, which are not needed here

        def call(self, x):
            raise refuse("a number", "'x'", "Use `n=1`.")

    with pytest.raises(ValueError, match=r"^Expected a number\. Received: 'x'\. Use `n=1`\.$") as raised:
        Refuses()(keras.ops.ones((2, 3)))
    assert raised.value.use == "Use `n=1`."


def test_one_more_sentence_belongs_to_what_to_do():
    longer = with_more(refuse("a number", "none", "Use 1."), "The file is 'a'.")
    assert str(longer) == "Expected a number. Received: none. Use 1. The file is 'a'."
    assert (longer.expected, longer.use) == ("a number", "Use 1. The file is 'a'.")


def test_public_errors_keep_their_classes_and_have_their_parts(tmp_path):
    with pytest.raises(ValueError, match="Expected `cpu_merge` to be True or False") as raised:
        multi_gpu_model(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]), gpus=2, cpu_merge="a")
    assert raised.value.received == "cpu_merge='a'"
    (tmp_path / "empty.h5").touch()
    with pytest.raises(UntrustedFileError) as raised:
        load_model_hdf5(tmp_path / "empty.h5")
    assert raised.value.received == f"{str(tmp_path / 'empty.h5')!r}, which is empty"
