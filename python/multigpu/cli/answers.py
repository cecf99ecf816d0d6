"""Print the answer of a command: a table or JSON on stdout; if it fails, one line on stderr."""

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator
from typing import Any, Protocol

from multigpu.cli.option_names import as_options

DONE, NO, REFUSED = 0, 1, 2  # statuses for the shell
LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
LONGEST = 1000  # letters of an error
FORESEEN = (ValueError, OSError, RuntimeError, ImportError, MemoryError)  # which say enough
STATUSES = "status: 0 success; 1 if the answer to {question} is no; 2 an error, with the reason on stderr"
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
        line = as_options(" ".join(str(error).split())) or type(error).__name__
        cut = line if len(line) <= LONGEST else f"{line[:LONGEST]}…"
        parser.exit(REFUSED, f"{parser.prog}: error: {cut}\n")


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """Hide what libraries in C++ log while TensorFlow starts; an error that is not the user's shows it.

    TensorFlow's own setting does not hide the first lines. If the user has set it, nothing is hidden.
    """
    if LOG_LEVEL in os.environ:
        yield
        return
    with tempfile.TemporaryFile() as log:
        sys.stderr.flush()
        stderr = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            yield
        except Exception as error:
            if not isinstance(error, ValueError):
                log.seek(0)
                os.write(stderr, log.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


def print_table(table: Printed) -> None:
    """Prints a table; in a terminal, columns that do not fit stand below the others."""
    print(table.text(shutil.get_terminal_size().columns if sys.stdout.isatty() else None))


def print_json(**fields: Any) -> None:
    """Prints one object."""
    print(json.dumps(fields, indent=2, allow_nan=False))
