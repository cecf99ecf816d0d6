"""`python -m multigpu estimate`: memory of each device, before training."""

import argparse
import dataclasses
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from multigpu.base.refusal import refuse
from multigpu.cli import model_file
from multigpu.cli.answers import DONE, JSON_HELP, NO, STATUSES, answered, print_json, print_table, quiet_start
from multigpu.cli.argument_types import MOST_GPUS, size

if TYPE_CHECKING:
    from multigpu.profiling.estimate_table import Estimate

HELP = f"""\
Show how much memory of each GPU a model in a file needs. The GPUs need not exist, and this command does not use them.

  python -m multigpu estimate model.keras --gpus 8 --batch-size 256 --optimizer adam
  python -m multigpu estimate model.keras --gpus 8 --fits 24GB && echo "8 GPUs are enough"

{STATUSES.format(question="--fits")}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `estimate`."""
    model_file.add_arguments(parser)
    parser.add_argument("--layers", action="store_true", help="list the layers, to choose where to cut the model")
    parser.add_argument(
        "--fits", type=size, metavar="SIZE", help="ask whether no GPU needs more, such as 24GB or 22.5GiB"
    )
    parser.add_argument("--json", action="store_true", help=JSON_HELP)


def main(arguments: argparse.Namespace) -> int:
    """Print the tables, and whether the model fits if that is asked."""
    with answered(arguments.parser):
        with quiet_start():
            from multigpu.profiling.estimate import estimate

            gpus = _gpus(arguments.gpus)
        model = model_file.load(arguments, compiled=arguments.optimizer is None)
        merge, relocation = not arguments.no_cpu_merge, arguments.cpu_relocation
        table = estimate(model, gpus, arguments.batch_size, arguments.optimizer, merge, relocation)
        layers = table.layers if arguments.layers else None
        full = [] if arguments.fits is None else _full(table, arguments.fits)
    if arguments.json:
        print_json(
            model=str(arguments.model),
            batch_size=arguments.batch_size,
            parameters=table.parameters,
            weights=table.weights,
            optimizer=table.optimizer,
            devices=[dataclasses.asdict(row) for row in table],
            layers=None if layers is None else [dataclasses.asdict(row) for row in layers],
            fits=None if arguments.fits is None else not full,
        )
    else:
        print_table(table)
        if layers is not None:
            print()
            print_table(layers)
        if arguments.fits is not None:
            print(_said(table, full, arguments.fits))
    return NO if full else DONE


def _gpus(given: Any) -> Any:
    """Return the GPUs to estimate for. From here on Keras does not see this machine's GPUs, which may be in use."""
    from multigpu.engines import hide_gpus
    from multigpu.model.devices import available_gpus

    gpus = available_gpus() if given is None else given
    if not gpus:
        raise refuse(
            "`--gpus`, such as `--gpus 8`. The machine does not need to have them",
            "none, on a machine where Keras finds no GPU",
        )
    hide_gpus(_enough(gpus))
    return gpus


def _enough(gpus: int | Sequence[int | str]) -> int:
    """Return how many GPUs a machine has that has these: a number, or ids and names."""
    if isinstance(gpus, int):
        return gpus
    numbers = re.findall(r"(\d+)(?:,|$)", ",".join(map(str, gpus)))
    return min(1 + max(map(int, numbers), default=0), MOST_GPUS)


def _full(table: "Estimate", memory: int) -> list[str]:
    """Return the devices that have too little memory, of those that run a slice."""
    at_work = [row for row in table if row.slices]
    full = [row.device for row in at_work if row.total > memory]
    if not full and any(row.activations is None for row in at_work):
        raise refuse(
            "a model whose activations can be traced, so that `--fits` can compare the memory",
            f"{table.template.name!r}, whose input shapes are unknown",
            "Leave `--fits` out.",
        )
    return full


def _said(table: "Estimate", full: list[str], memory: int) -> str:
    from multigpu.base.table import megabytes

    most = megabytes(max(row.total for row in table if row.slices))
    if not full:
        return f"It fits: a device needs up to {most}, of {megabytes(memory)}."
    return f"It does not fit: {', '.join(full)} would need up to {most}, and have {megabytes(memory)}."
