"""`python -m multigpu devices`: list the GPUs."""

import argparse
import dataclasses
import os

from multigpu.cli.answers import DONE, JSON_HELP, NO, STATUSES, answered, print_json, print_table
from multigpu.cli.argument_types import whole_number

HELP = f"""\
Show the GPUs that `gpus` counts: id, name, hardware, memory that TensorFlow may use and what is free of it,
CUDA_VISIBLE_DEVICES as seen, and why there are none.

{STATUSES.format(question="--at-least")}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `devices`."""
    parser.add_argument("--at-least", type=whole_number(1), metavar="N", help="ask if there are so many")
    parser.add_argument("--json", action="store_true", help=JSON_HELP)


def main(arguments: argparse.Namespace) -> int:
    """Prints the table, in this process of its own, where devices may be started to ask for memory."""
    with answered(arguments.parser):
        from multigpu.engines import device_table
        from multigpu.plan.gpu_table import SEEN, seen_devices

        table = device_table(start=True)
        enough = None if arguments.at_least is None else len(table) >= arguments.at_least
    if arguments.json:
        print_json(
            devices=[dataclasses.asdict(row) for row in table],
            cuda_visible_devices=os.environ.get(SEEN),
            why_none=None if table else table.why_none(),
            enough=enough,
        )
    else:
        print_table(table)
        print(seen_devices())
    return NO if enough is False else DONE
