"""Sizes in words."""

import pytest

from multigpu.base.table import megabytes, text_table

LINES = [["device", "rows", "weights", "total"], ["GPU:0", "1,000", "4.00 MB", "10.00 MB"]]


def test_columns_are_flush_right():
    assert text_table(LINES).splitlines() == [
        "device   rows  weights     total",
        " GPU:0  1,000  4.00 MB  10.00 MB",
    ]
    assert text_table(LINES, 32) == text_table(LINES)


def test_columns_that_do_not_fit_stand_below_with_the_first_one_again():
    assert text_table(LINES, 31).splitlines() == [
        "device   rows  weights",
        " GPU:0  1,000  4.00 MB",
        "",
        "device     total",
        " GPU:0  10.00 MB",
    ]
    assert len(text_table(LINES, 1).split("\n\n")) == 3  # each beside the first, however narrow


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
