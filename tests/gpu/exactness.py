"""A few of the exactness tests on eight devices or parts of one GPU: with `--xla off` twenty, with `--xla on` ten.

A test that names no device runs on whatever there is. All of those that do are in FILES: `--all` runs them.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import argparse
import os
import subprocess

import settings

REPLICAS = "engines/tensorflow/replicas"
FILES = [  # those whose tests name no device
    *(f"exactness/test_{name}.py" for name in ("exact_batches", "exact_losses", "exact_models", "exact_optimizers")),
    *("exactness/test_properties.py", "model/test_shared_weights.py"),
    *(f"{REPLICAS}/test_{name}.py" for name in ("state", "added_losses", "sync_batch_norm", "batch_norm_of_slices")),
]
MODELS, LOSSES = "exactness/test_exact_models.py::test_", "exactness/test_exact_losses.py::test_"
BATCHES, OPTIMIZERS = "exactness/test_exact_batches.py::test_", "exactness/test_exact_optimizers.py::test_"
MASKS = "the_loss_sees_the_mask_of_an_embedding"
BOTH = [  # with and without XLA, which compiles programs for each device: so three devices rather than eight
    *(f"{MODELS}dense[{gpus}]" for gpus in (3, 8)),
    f"{MODELS}convolutions",
    f"{REPLICAS}/test_batch_norm_of_slices.py::test_convolution_with_normalization_equals_slices_by_hand[3]",
    f"{MODELS}attention",
    f"{MODELS}siamese_model_calls_one_nested_model_twice",
    f"{BATCHES}batches[last one of one row-3]",
    f"{LOSSES}sample_weight[3]",
    f"{OPTIMIZERS}clipping[by global norm-3]",
    f"{OPTIMIZERS}mixed_precision[float32-3]",
]
TESTS = {
    "on": BOTH,
    "off": [
        *BOTH,
        f"{MODELS}{MASKS}[LSTM-right-padded-3]",
        f"{MODELS}{MASKS}[both ways-right-padded-3]",
        f"{MODELS}{MASKS}[LSTM-zeros anywhere-8]",
        f"{BATCHES}batches[uneven last one, of 17 rows-8]",
        f"{LOSSES}own_loss[error_per_spread-8]",
        f"{LOSSES}add_loss[8]",
        f"{OPTIMIZERS}loss_scale_falls_on_overflow_and_grows_again[3]",
        f"{REPLICAS}/test_sync_batch_norm.py::test_networks_with_synchronized_statistics_train_as_on_one_device[images-8]",
        f"{REPLICAS}/test_added_losses.py::test_losses_are_exact_wherever_they_are_added[behind_masks]",
        "model/test_shared_weights.py::test_a_gradient_penalty_equals_that_of_one_device[False-7-3]",
    ],
}
MOST_FAILURES = 10  # time on a GPU is short: after so many, what is wrong is plain
PARTS = 8  # which `tests/conftest.py` makes


def environment(options: argparse.Namespace) -> dict[str, str]:
    """What tells the tests where to run, and whether by XLA."""
    memory = {"MULTIGPU_MEMORY": str(settings.memory_limit(options, PARTS))}
    devices = {} if options.simulate else {"MULTIGPU_DEVICES": "gpu"}
    return {**os.environ, **memory, **devices, **({} if options.all else {"MULTIGPU_XLA": options.xla})}


def main(options: argparse.Namespace) -> int:
    """The status of pytest."""
    chosen = options.tests or (FILES if options.all else TESTS[options.xla])
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-vv", f"--maxfail={MOST_FAILURES}"]
    command += [f"tests/{path}" for path in chosen]
    return subprocess.run(command, cwd=settings.ROOT, env=environment(options), check=False).returncode


def arguments() -> argparse.ArgumentParser:
    """The options of all parts, and which tests."""
    options = settings.parser(__doc__)
    options.add_argument("--xla", choices=list(TESTS), default="off", help="whether XLA compiles what tests train")
    options.add_argument("--all", action="store_true", help="all tests that name no device, as they choose XLA")
    options.add_argument("--tests", nargs="+", help="other tests, below `tests/`")
    return options


if __name__ == "__main__":
    sys.exit(main(arguments().parse_args()))
