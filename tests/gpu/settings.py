"""What every part of the check is told: on what it runs, and how much of it."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import argparse
import shutil
import subprocess

from bench.lib.workloads import WORKLOADS, Workload

ROOT = Path(__file__).parents[2]
SCALE = 8  # times the rows that suit a CPU
SHARE = 0.85  # of the memory of a GPU that is split: libraries and TensorFlow itself take the rest
UNKNOWN = 16_000  # MB, of a GPU whose memory nobody tells


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options that all parts have."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--simulate", action="store_true", help="run on CPU devices, to try out this script")
    options.add_argument("--replicas", type=int, help="parts into which a single GPU is split (4; on CPU devices 2)")
    options.add_argument("--memory", type=int, help="MB of a GPU to be split (85%% of what nvidia-smi tells)")
    options.add_argument("--folder", type=Path, default=ROOT / "build" / "gpu-check", help="where profiles go")
    return options


def num_replicas(options: argparse.Namespace) -> int:
    """Between how many devices trainings are divided that have no number of their own."""
    return options.replicas or (2 if options.simulate else 4)


def memory_limit(options: argparse.Namespace, parts: int) -> int:
    """MB of each part of a GPU that is split."""
    return (options.memory or int(SHARE * _memory_of_gpu())) // parts


def scaled(name: str, options: argparse.Namespace) -> Workload:
    """A training, with batches that suit the devices."""
    work = WORKLOADS[name]
    return work if options.simulate else work._replace(batch_size=SCALE * work.batch_size)


def _memory_of_gpu() -> int:
    """MB of the smallest GPU."""
    if shutil.which("nvidia-smi") is None:
        return UNKNOWN
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    return min(map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()))
