"""`python -m multigpu devices`: list the GPUs."""

import argparse
import dataclasses
import importlib.metadata
import os
import platform

from multigpu.base.version import __version__
from multigpu.cli.answers import DONE, JSON_HELP, NO, STATUSES, answered, print_json, print_table, quiet_start
from multigpu.cli.argument_types import whole_number

PACKAGES = ("keras", "tensorflow", "jax", "numpy")
HELP = f"""\
List the GPUs: id, name, hardware, the memory that Keras may use, and how much of it is free. Also print
CUDA_VISIBLE_DEVICES, the versions of Python packages, and, if there are no GPUs, the reason. Paste this into an issue.

{STATUSES.format(question="--at-least")}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `devices`."""
    parser.add_argument("--at-least", type=whole_number(1), metavar="N", help="ask whether there are N GPUs or more")
    parser.add_argument("--json", action="store_true", help=JSON_HELP)


def main(arguments: argparse.Namespace) -> int:
    """Print the table. This process may start the devices to read their memory."""
    with answered(arguments.parser), quiet_start():
        from multigpu.engines import device_table
        from multigpu.plan.gpu_table import SEEN, seen_devices

        table = device_table(start=True)
        enough = None if arguments.at_least is None else len(table) >= arguments.at_least
    if arguments.json:
        print_json(
            devices=[dataclasses.asdict(row) for row in table],
            cuda_visible_devices=os.environ.get(SEEN),
            versions=versions(),
            why_none=None if table else table.why_none(),
            enough=enough,
        )
    else:
        print_table(table)
        print(seen_devices())
        print(", ".join(f"{name} {version}" for name, version in versions().items()))
    return NO if enough is False else DONE


def versions() -> dict[str, str]:
    """Return the versions of multigpu, Python, the system and the packages that are installed."""
    found = {"multigpu": __version__, "Python": platform.python_version(), platform.system(): platform.release()}
    installed = {name: list(importlib.metadata.distributions(name=name)) for name in PACKAGES}
    return found | {name: several[0].version for name, several in installed.items() if several}
