"""The command line: `python -m multigpu COMMAND …`."""

import argparse
from collections.abc import Sequence

from multigpu.base.version import __version__
from multigpu.cli import devices, estimate, launch, measure, run

# name → module with `HELP`, `add_arguments(parser)` and `main(arguments)`
COMMANDS = {"run": run, "launch": launch, "devices": devices, "estimate": estimate, "measure": measure}
DESCRIPTION = "Train Keras models on several GPUs."
EPILOG = "`python -m multigpu COMMAND --help` lists the options of a command."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Wrong arguments print an error on stderr, with exit code 2.

    Args:
        argv: the words after `python -m multigpu`; by default those of this process.
    """
    parser = make_parser()
    arguments = parser.parse_args(argv)
    return COMMANDS[arguments.command].main(arguments)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m multigpu", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--version", action="version", version=f"multigpu {__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        of_command = commands.add_parser(
            name,
            help=command.HELP.split(".")[0],
            description=command.HELP,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        of_command.set_defaults(parser=of_command)
        command.add_arguments(of_command)
    return parser
