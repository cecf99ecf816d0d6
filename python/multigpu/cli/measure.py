"""`python -m multigpu measure`: time a model from a file on one GPU and on all GPUs of this machine."""

import argparse
import dataclasses
import sys
from typing import TYPE_CHECKING

from multigpu.base.refusal import refuse
from multigpu.cli import model_file
from multigpu.cli.answers import DONE, JSON_HELP, NO, STATUSES, answered, print_json, quiet_start
from multigpu.cli.argument_types import MOST_NUMBER, factor, whole_number

if TYPE_CHECKING:
    import keras

HELP = f"""\
Time a few training steps of a model in a file, on one GPU and on all, and print whether several GPUs pay. Inputs and
targets are random. The file does not change.

  python -m multigpu measure model.keras --gpus 4 --batch-size 256
  python -m multigpu measure model.keras --at-least 1.5 && echo "all GPUs are 1.5 times as fast as one"
  python -m multigpu measure model.keras --simulate 2      try it without GPUs; the speed is not that of GPUs

{STATUSES.format(question="--at-least")}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `measure`."""
    number = whole_number(1, MOST_NUMBER)
    model_file.add_arguments(parser)
    parser.add_argument("--loss", metavar="NAME", help="a loss of Keras, instead of the one in the file")
    parser.add_argument("--steps", type=whole_number(1, 1000), default=5, metavar="N", help="steps to time; default: 5")
    parser.add_argument(
        "--length",
        type=number,
        default=128,
        metavar="N",
        help="length of input axes whose length is unknown; default: 128",
    )
    parser.add_argument(
        "--below",
        type=number,
        metavar="N",
        help="make integer inputs from 1 to N - 1; default: rows of the smallest Embedding, or 1, which gives 0",
    )
    parser.add_argument(
        "--simulate", type=whole_number(1), metavar="N", help="split the CPU, or the only GPU, into N devices"
    )
    parser.add_argument("--at-least", type=factor, metavar="X", help="ask whether all GPUs are X times as fast as one")
    parser.add_argument("--json", action="store_true", help=JSON_HELP)


def main(arguments: argparse.Namespace) -> int:
    """Print the measurement, and whether it is fast enough if that is asked."""
    with answered(arguments.parser):
        with quiet_start():
            from multigpu.cli.random_data import random_batch
            from multigpu.model.devices import available_gpus, simulate_gpus
            from multigpu.model.replicate import multi_gpu_model
            from multigpu.profiling.measure import measure

            if arguments.simulate is not None:
                simulate_gpus(arguments.simulate)
            found = available_gpus()
        if not found:
            raise refuse(
                "GPUs, or `--simulate 2` to try the command without GPUs",
                "a machine where Keras finds no GPU",
                "`python -m multigpu devices` prints the reason.",
            )
        model = model_file.load(arguments, compiled=None in (arguments.loss, arguments.optimizer))
        _compile(model, arguments.optimizer, arguments.loss)
        batch = random_batch(model, arguments.batch_size, arguments.length, arguments.below)
        sys.stderr.write(f"Timing {arguments.steps} steps on all GPUs and on one, with {batch.words}.\n")
        merge, relocation = not arguments.no_cpu_merge, arguments.cpu_relocation
        gpus = arguments.simulate if arguments.gpus is None else arguments.gpus
        parallel = multi_gpu_model(model, gpus, merge, relocation)
        measured = measure(parallel, batch, steps=arguments.steps, verbose=sys.stderr.isatty())
        enough = None if arguments.at_least is None else measured.speed_up >= arguments.at_least
    if arguments.json:
        print_json(model=str(arguments.model), **dataclasses.asdict(measured), enough=enough)
    else:
        print(measured)
    return NO if enough is False else DONE


def _compile(model: "keras.Model", optimizer: str | None, loss: str | None) -> None:
    """Compile a model with the given arguments in place of its own."""
    if not model.compiled and None in (optimizer, loss):
        raise refuse(
            "`--optimizer` and `--loss` for a model that was saved without `compile()`",
            f"--optimizer {optimizer}, --loss {loss}",
            "For example, use `--optimizer adam --loss mse`.",
        )
    if optimizer is not None or loss is not None:
        model.compile(optimizer=optimizer or model.optimizer, loss=loss or model.loss)
