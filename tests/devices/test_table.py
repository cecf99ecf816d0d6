"""Sizes in words."""

import pytest

from multigpu.devices.table import megabytes


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (None, "-"),
        (0, "0.00 MB"),
        (4, "0.000004 MB"),
        (68, "0.000068 MB"),
        (128, "0.00013 MB"),
        (24_000, "0.024 MB"),
        (99_999, "0.100 MB"),
        (123_456, "0.12 MB"),
        (8_000_000_000, "8,000.00 MB"),
    ],
)
def test_small_sizes_have_as_many_digits_as_say_something(size, words):
    assert megabytes(size) == words
