"""Types of command-line arguments. If argparse refuses a word, its error names the argument."""

import argparse
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

MOST = 256  # devices that simulate GPUs, and workers of one machine
MOST_GPUS = 1024  # of an estimate
MOST_NUMBER = 999_999_999
UNITS = {"": 1, "b": 1, **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)}}
UNITS |= {f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)}


def whole_number(least: int, most: int = MOST) -> Callable[[str], int]:
    """Return an argparse type: a whole number from `least` to `most`."""

    def read(word: str) -> int:
        if not re.fullmatch("[0-9]{1,9}", word) or not least <= int(word) <= most:
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {most}, received {word!r}")
        return int(word)

    return read


def script(word: str) -> Path:
    """Parse the path of a script."""
    path = Path(word)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"expected the path of a script, received {word!r}, which is not a file")
    return path


def model_path(word: str) -> Path:
    """Parse the path of a model's file, or of the folder in which Keras keeps a model."""
    path = Path(word)
    if not path.is_file() and not (path / "config.json").is_file():
        raise argparse.ArgumentTypeError(f"expected the path of a model, received {word!r}, which is not a file")
    return path


def devices(word: str) -> int | list[int | str]:
    """Parse a number of GPUs, or several ids and names separated by commas."""
    if re.fullmatch("[0-9]+", word):
        return whole_number(1, MOST_GPUS)(word)
    entries = word.split(",")
    if not all(re.fullmatch(r"[0-9]{1,9}|/?[A-Za-z][\w:/]*", entry) for entry in entries):
        raise argparse.ArgumentTypeError(
            f"expected a number, ids or names of GPUs, such as 8 or 0,2 or GPU:0,GPU:1, received {word!r}"
        )
    return [int(entry) if entry.isdecimal() else entry for entry in entries]


def size(word: str) -> int:
    """Parse a number of bytes, with a unit."""
    found = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?([A-Za-z]*)", word)
    if found is None or found[2].lower() not in UNITS or not float(found[1]):
        raise argparse.ArgumentTypeError(
            f"expected a size such as 24GB, which is 24,000,000,000 bytes, or 22.5GiB, received {word!r}"
        )
    return int(Decimal(found[1]) * UNITS[found[2].lower()])


def factor(word: str) -> float:
    """Parse a speed-up factor."""
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", word) or not float(word):
        raise argparse.ArgumentTypeError(f"expected a number above 0, such as 1.5, received {word!r}")
    return float(word)
