"""Load the model of a command from its file."""

import argparse
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from multigpu.base.refusal import refuse
from multigpu.cli.argument_types import MOST_NUMBER, devices, model_path, whole_number

if TYPE_CHECKING:
    import keras

OUT_OF_REACH = (
    "Classes and functions of your own are out of reach here: load the model in Python, `multigpu.{command}()`."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a command for the model and its devices."""
    parser.add_argument("model", type=model_path, metavar="MODEL", help="a .keras file, or an HDF5 file of any name")
    parser.add_argument(
        "--gpus", type=devices, metavar="GPUS", help="a count, ids or names: 8 or 0,2 or GPU:0,GPU:1; default: all"
    )
    parser.add_argument(
        "--batch-size",
        type=whole_number(1, MOST_NUMBER),
        default=32,
        metavar="N",
        help="rows of a batch, for all GPUs together; default: 32",
    )
    parser.add_argument("--optimizer", metavar="NAME", help="an optimizer of Keras, instead of the one in the file")
    parser.add_argument("--no-cpu-merge", action="store_true", help="merge outputs on the first GPU")
    parser.add_argument("--cpu-relocation", action="store_true", help="store all weights on the CPU")
    parser.add_argument("--trusted", action="store_true", help="also load code from the file, such as Lambda layers")


def load(arguments: argparse.Namespace, compiled: bool) -> "keras.Model":
    """Return the model in a file.

    Args:
        arguments: the command's arguments.
        compiled: whether to compile the model as it was when it was saved.

    Raises:
        ValueError: the file contains no model, or the model cannot be loaded.
    """
    import keras

    from multigpu.saving.file_errors import NoReader
    from multigpu.saving.hdf5_models import load_model_hdf5

    path = arguments.model
    of_keras = path.suffix == ".keras" or path.is_dir()
    if of_keras and path.is_file() and not zipfile.is_zipfile(path):
        raise refuse(
            "a model that Keras has saved",
            f"{str(path)!r}, which is not a zip archive",
            "It is of another kind, or damaged: use another copy.",
        )
    try:
        load_model = keras.saving.load_model if of_keras else load_model_hdf5
        return load_model(path, compile=compiled, safe_mode=not arguments.trusted)
    except (MemoryError, NoReader):
        raise  # not an error of the file
    except Exception as error:  # Keras raises different errors for different kinds of damage
        raise ValueError(_told(path, error, arguments.command)) from error


def _told(path: Path, error: Exception, command: str) -> str:
    """Return an error of a file in one line, with advice for the command line."""
    text = " ".join(str(error).split()).replace("pass `safe_mode=False`", "add `--trusted`")
    hint = OUT_OF_REACH.format(command=command) if "custom" in text else ""
    if not text.startswith("Expected "):  # of Keras
        cause = text.rsplit("Exception encountered: ", 1)[-1].split(". ")[0].removesuffix(".")
        hint = "If you trust the file, add `--trusted`." if "safe_mode" in text else hint
        text = f"Expected a model that can be loaded. Received: {str(path)!r}, for which Keras raises: {cause}."
    return f"{text} {hint}".rstrip()
