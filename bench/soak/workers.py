"""Trainings on random numbers of workers and devices: the numbers of one device on the global batches."""

import json
import random
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[2] / "tests"
TOGETHER = 8  # trainings in one start of the workers, which takes its time

COMPARES = """
import json, sys
sys.path[:0] = [sys.argv[1] + "/support", sys.argv[1] + "/engines/tensorflow/multi_worker"]
import multigpu
multigpu.simulate_gpus(15)
from test_trainings import differences
from training_cases import OPTIMIZERS
from trainings import TRAININGS
import random
chance, processes, devices = random.Random(sys.argv[2]), *map(int, sys.argv[3:5])
names = chance.sample([*TRAININGS, *OPTIMIZERS], int(sys.argv[5]))
found = differences(names, processes, devices)
print(json.dumps({"kinds": names, "why": " ".join(found.values())[:600]}))
"""


def rows(
    seed: int, first: int, count: int, without: Collection[str] = (), share: float = 1.0
) -> Iterator[dict[str, Any]]:
    """One row per start of some workers."""
    for number in range(first, first + count):
        chance = random.Random(f"{seed} {number}")
        processes, devices = chance.randint(2, 5), chance.randint(1, 3)
        command = [sys.executable, "-c", COMPARES, TESTS, f"{seed} {number}", processes, devices, TOGETHER]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        found = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"why": done.stderr[-600:]}
        answer = "off" if found["why"] else "same"
        yield {"number": number, "answer": answer, "workers": processes, "devices of each": devices, **found}
