"""Print the answer of a command: a table or JSON on stdout. If it fails, print one line on stderr."""

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator
from typing import Any

from multigpu.base.table import PAGE_WIDTH, Table
from multigpu.cli.option_names import as_options

DONE, NO, REFUSED = 0, 1, 2  # exit codes for the shell
LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
SHOWN = ("0", "1")  # levels with which a user wants to see the log
LONGEST = 1000  # maximum length of an error
FORESEEN = (ValueError, OSError, RuntimeError, ImportError, MemoryError)  # which need no explanation
STATUSES = "status: 0 success; 1 if the answer to {question} is no; 2 an error, with the reason on stderr"
JSON_HELP = "print one JSON object, in bytes and seconds, instead of a table"


@contextlib.contextmanager
def answered(parser: argparse.ArgumentParser) -> Iterator[None]:
    """Send printed text to stderr inside a `with` block, and end the command with status 2 if it raises an error.

    Errors of the user print one line. Other errors also print their traceback. They do not end with Python's own status
    for errors, 1, because that is an answer here.
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
    """Hide the log of C++ libraries while TensorFlow starts. An error that is not the user's shows it.

    TensorFlow's own setting does not hide the first lines. If the user sets it to 0 or 1, this hides nothing.
    """
    if os.environ.get(LOG_LEVEL) in SHOWN:
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


def print_table(table: Table) -> None:
    """Print a table as wide as the terminal, or as a page. Columns that do not fit are printed below the others."""
    print(table.text(shutil.get_terminal_size((PAGE_WIDTH, 0)).columns))


def print_json(**fields: Any) -> None:
    """Print one object as JSON."""
    print(json.dumps(fields, indent=2, allow_nan=False))
