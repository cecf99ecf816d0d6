"""`python -m multigpu run`: run a script for Keras 2 unchanged."""

import argparse
import sys
from pathlib import Path
from types import ModuleType

from multigpu.cli.argument_types import script, whole_number

HELP = """\
Run an unchanged script for Keras 2: `multi_gpu_model`, old import paths and other old names work again. The script
runs as with `python script.py args…`: same arguments, same exit code.

  python -m multigpu run train.py --epochs 10
  python -m multigpu run --simulate 4 train.py      without GPUs: splits the CPU into four"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `run`."""
    parser.add_argument(
        "--simulate", type=whole_number(1), metavar="N", help="split the CPU, or the only GPU, into N devices"
    )
    parser.add_argument("script", type=script, help="the script")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="arguments of the script")


def main(arguments: argparse.Namespace) -> int:
    """Run the script, and return the exit code that Python would return."""
    # imported here: TensorFlow takes seconds to import, and a usage error need not wait for it
    from multigpu.engines import join
    from multigpu.keras2.restore import restore_old_names
    from multigpu.model.devices import simulate_gpus

    join()
    try:
        if arguments.simulate is not None:
            simulate_gpus(arguments.simulate)
        restore_old_names()
    except ValueError as error:
        arguments.parser.error(str(error))
    return run_script(arguments.script, arguments.args)


def run_script(path: Path, args: list[str]) -> int:
    """Run a script as the main module of this process. Tracebacks show only the script's lines, as with Python."""
    sys.argv = [str(path), *args]
    if not sys.flags.safe_path:
        sys.path[0] = str(path.resolve().parent)
    module = ModuleType("__main__")
    module.__dict__.update(__file__=str(path), __builtins__=__builtins__)
    sys.modules["__main__"] = module
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    except Exception as error:
        own = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)  # without this package's line
        sys.excepthook(type(own), own, own.__traceback__)
        return 1
    return 0
