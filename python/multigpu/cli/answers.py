"""Print the answer of a command: a table or JSON on stdout; if it fails, one line on stderr."""

import argparse
import contextlib
import json
import shutil
import sys
import traceback
from collections.abc import Iterator
from typing import Any, Protocol

DONE, NO, REFUSED = 0, 1, 2  # statuses for the shell
LONGEST = 1000  # letters of an error
FORESEEN = (ValueError, OSError, RuntimeError, ImportError, MemoryError)  # which say enough
STATUSES = "status: 0 done; 1 if the answer to {question} is no; 2 refused, and stderr says why"
JSON_HELP = "print one JSON object, in bytes and seconds, instead of a table"


class Printed(Protocol):
    """A table."""

    def text(self, width: int | None = None) -> str:
        """The table, in lines of so many letters."""


@contextlib.contextmanager
def answered(parser: argparse.ArgumentParser) -> Iterator[None]:
    """Meanwhile, what is printed goes to stderr, and what is refused ends the command with one line and status 2.

    So does any other error, after its traceback: Python's own status for it is 1, which here is an answer.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except Exception as error:  # a traceback alone would end with status 1
        if not isinstance(error, FORESEEN) and not type(error).__module__.startswith("tensorflow."):
            traceback.print_exc()
        line = " ".join(str(error).split()) or type(error).__name__
        cut = line if len(line) <= LONGEST else f"{line[:LONGEST]}…"
        parser.exit(REFUSED, f"{parser.prog}: error: {cut}\n")


def print_table(table: Printed) -> None:
    """Prints a table; in a terminal, columns that do not fit stand below the others."""
    print(table.text(shutil.get_terminal_size().columns if sys.stdout.isatty() else None))


def print_json(**fields: Any) -> None:
    """Prints one object."""
    print(json.dumps(fields, indent=2, allow_nan=False))
