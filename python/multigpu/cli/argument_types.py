"""What the words of a command may be; argparse says what a word that is refused was for."""

import argparse
import re
from collections.abc import Callable
from pathlib import Path

MOST = 256  # devices that stand in for GPUs, and workers of one machine


def whole_number(least: int, most: int = MOST) -> Callable[[str], int]:
    """A type of argparse's: a whole number from `least` to `most`."""

    def read(word: str) -> int:
        if not re.fullmatch("[0-9]{1,9}", word) or not least <= int(word) <= most:
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {most}, received {word!r}")
        return int(word)

    return read


def script(word: str) -> Path:
    """A type of argparse's: the path of a file."""
    path = Path(word)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"expected the path of a script, received {word!r}, which is no file")
    return path
