"""Wall milliseconds per step of `fit`: one device, this package with both ways to merge, and MirroredStrategy.

Between parts of one GPU, the ideal is 1.0 × one device: the parts take turns on it. So this measures what spreading the
work costs there, and never a speed-up. MirroredStrategy reduces with HierarchicalCopyAllReduce between such parts,
where NCCL does not run. XLA is off.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import argparse
import time
from collections.abc import Sequence

import settings

import multigpu
from bench.lib.markdown_table import markdown_table
from bench.lib.strategies import MERGED_ON_GPU
from bench.lib.subprocess_metrics import in_own_process, run_script
from bench.lib.workloads import Workload
from bench.speed.step_time import step_times

NAMES = ("MLP 4×1024", "conv net", "Xception")
OURS, PEER = ("one device", "multigpu", MERGED_ON_GPU), "MirroredStrategy"
ROUNDS, ROUNDS_ON_CPU = 5, 1
STEPS, STEPS_ON_CPU = 30, 3  # of a round: in a short one, most of the time is that of starting `fit`


def measure(
    name: str, rows: int, replicas: int, memory: int, rounds: int, steps: int, strategies: Sequence[str]
) -> dict[str, float]:
    """Median milliseconds of each strategy, which take turns."""
    multigpu.simulate_gpus(replicas, memory)
    work: Workload = settings.WORKLOADS[name]._replace(batch_size=rows, steps=steps)
    return step_times(work, strategies, rounds, time.perf_counter)


def table(name: str, rows: int, ms: dict[str, float]) -> str:
    lines = [[name, rows, strategy, f"{of:.1f}", f"{of / ms['one device']:.2f}"] for strategy, of in ms.items()]
    return markdown_table(["training", "rows of a batch", "strategy", "wall ms per step", "÷ one device"], lines)


def told(name: str, options: argparse.Namespace, rounds: int, strategies: Sequence[str]) -> bool:
    """Prints one training, and whether it ran."""
    rows, replicas = settings.scaled(name, options).batch_size, settings.num_replicas(options)
    steps = STEPS_ON_CPU if options.simulate else STEPS
    how = {"replicas": replicas, "memory": settings.memory_limit(options, replicas), "rounds": rounds, "steps": steps}
    try:
        ms = in_own_process(__file__, name=name, rows=rows, **how, strategies=strategies)
    except RuntimeError as error:
        print(f"FAILED, {', '.join(strategies)}: {error}\n", flush=True)
        return False
    print(f"{table(name, rows, ms)}\n", flush=True)
    return True


def main(options: argparse.Namespace) -> int:
    """Prints each training when it is done; where one failed, without the peer. Status 1 if one failed."""
    rounds = ROUNDS_ON_CPU if options.simulate else ROUNDS
    print(f"{__doc__}\n{settings.num_replicas(options)} replicas, medians of {rounds}.\n", flush=True)
    failed = [name for name in NAMES if not told(name, options, rounds, [*OURS, PEER])]
    for name in failed:
        told(name, options, rounds, OURS)
    return int(bool(failed))


if __name__ == "__main__":
    if "--worker" in sys.argv:
        run_script(measure, None, None)
    else:
        sys.exit(main(settings.parser(__doc__).parse_args()))
