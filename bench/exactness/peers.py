"""The numbers of one device, and what each way to train on several devices gives.

Each is compared with itself on one device, each case in a process of its own. Keras on JAX runs in an environment that
is made here, PyTorch in that of the system: `apt install python3-torch`. Run `python bench/exactness/peers.py`.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import json
import os
import socket
import subprocess
from collections.abc import Iterator

from bench.exactness.peer_cases import CASES, DEVICES, moved, trained, weights
from bench.exactness.peer_ways import JAX, WAYS, simulate_devices
from bench.lib.markdown_table import markdown_table
from bench.speed.engines import PYTHON as JAX_PYTHON
from bench.speed.engines import environment as make_jax_environment

DDP = "PyTorch DDP"
SYSTEM_PYTHON = os.environ.get("TORCH_PYTHON", "/usr/bin/python3")
ON_JAX = {
    "KERAS_BACKEND": "jax",
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES}",
    "NPROC": "16",  # a device that waits for the others keeps its thread
}
# Keras 2 itself is not here: how its merged outputs were masked, and what it knew of statistics, are not judged
LEFT_OUT = {
    ("Keras 2 algorithm", "masks of different lengths"),
    ("Keras 2 algorithm", "synchronized BatchNormalization"),
}
SAME = 1e-4  # of the way that weights went: sums in another order are rounded otherwise


def answer(way: str, case: str) -> float | str:
    """How far weights are off, or what is said instead of training."""
    simulate_devices(way)
    one = trained(CASES[case])
    try:
        return moved(weights(), one, trained(CASES[case], WAYS[way]))
    except Exception as error:  # whatever it is, it is the answer
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"


def of_keras(way: str, case: str) -> float | str:
    """In a process of its own, whose CPU is split into as many devices."""
    python, environ = (str(JAX_PYTHON), ON_JAX) if way == JAX else (sys.executable, {})
    command = [python, __file__, way, case]
    done = subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def of_torch(case: str) -> float | str:
    """In one process per device."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        environ = {**os.environ, "MASTER_PORT": str(free.getsockname()[1]), "OMP_NUM_THREADS": "1"}
    script = Path(__file__).with_name("peer_ddp.py")
    commands = [[SYSTEM_PYTHON, script, str(rank), case] for rank in range(DEVICES)]
    processes = [subprocess.Popen(command, env=environ, text=True, stdout=subprocess.PIPE) for command in commands]
    said = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise RuntimeError(f"{SYSTEM_PYTHON} {script} failed: it needs PyTorch, as in `apt install python3-torch`")
    return json.loads(said[0].splitlines()[-1])


def rows() -> Iterator[dict]:
    make_jax_environment()
    for way in (*WAYS, DDP):
        cases = [case for case in CASES if (way, case) not in LEFT_OUT]
        yield {"way": way, "off": {case: of_torch(case) if way == DDP else of_keras(way, case) for case in cases}}


def table(rows: list[dict]) -> str:
    """A line for each case, and below it what was said instead of an answer."""
    lines = [[case, *(shown(row["off"].get(case)) for row in rows)] for case in CASES]
    said = [
        f"- {row['way']}, {case}: {off}" for row in rows for case, off in row["off"].items() if isinstance(off, str)
    ]
    note = "The largest difference of a weight from one device, in percent of how far the weights moved in training."
    return "\n\n".join([markdown_table(["", *(row["way"] for row in rows)], lines), note, "\n".join(said)]).strip()


def shown(off: float | str | None) -> str:
    """A number, or that there is none."""
    if not isinstance(off, float):
        return "–" if off is None else "error"
    return "the same" if off < SAME else f"{off:.1%}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(answer(*sys.argv[1:])))
    else:
        print(table(list(rows())))
