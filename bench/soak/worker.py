"""One process of a campaign: prints one line of JSON per row. `python bench/soak` starts it."""

import argparse
import gc
import importlib
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
sys.path.extend(str(Path(__file__).parents[2] / folder) for folder in ("", "tests/support", "tests/saving"))

import warnings

import keras

import multigpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("campaign")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--without", nargs="*", default=[])
    arguments = vars(parser.parse_args())
    campaign = importlib.import_module(f"bench.soak.{arguments.pop('campaign')}")
    warnings.simplefilter("ignore")
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(2)
    multigpu.simulate_gpus(8)
    gc.freeze()  # of what was imported nothing gets free, and to look through it again takes most of a second
    answers, sys.stdout = sys.stdout, sys.stderr  # what else is printed does not belong to the answers
    for row in campaign.rows(**arguments):
        print(json.dumps(row), file=answers, flush=True)


if __name__ == "__main__":
    main()
