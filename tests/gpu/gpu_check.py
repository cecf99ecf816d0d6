"""Checks this package on the GPUs of this machine, in the order that is best when time on them is short.

Seven parts, each in a process of its own and with a limit of time: 20 minutes in all. Each prints what it knows as soon
as it knows it, so that a check is worth having if it is cut off. Where there are too few GPUs for a part, the first one
is split. Without a GPU nothing is run, and this says so and ends with status 0: nothing is wrong. Status 1 means that a
part failed or was cut off on the GPUs. `--simulate` tries out this script on CPU devices, with smaller batches.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import argparse
import os
import signal
import subprocess
import time
from typing import NamedTuple

import settings
import tensorflow as tf

HERE = Path(__file__).parent
NO_GPU = (
    "No GPU: TensorFlow sees none on this machine, so nothing was run and nothing is known about GPUs. On a machine "
    "with one, install `pip install '.[cuda]'`; `--simulate` tries out this script on CPU devices."
)
CACHE = {  # what CUDA compiles for a GPU that is newer than TensorFlow's wheel, which may take many minutes
    "CUDA_CACHE_PATH": str(Path.home() / ".cache" / "multigpu" / "cuda"),
    "CUDA_CACHE_MAXSIZE": "4294967296",  # the most that it takes
}


class Part(NamedTuple):
    """A script beside this one."""

    title: str
    script: str
    seconds: int  # its limit
    devices: int  # how many it needs
    arguments: tuple[str, ...] = ()


PARTS = {
    "kernels": Part("The devices, and the first kernels", "first_kernels.py", 240, 1),
    "placement": Part("Where ops ran, and what a step copied", "placement.py", 200, 8),
    "exact": Part("Exactness tests, without XLA", "exactness.py", 220, 8, ("--xla", "off")),
    "exact-xla": Part("Exactness tests, with XLA", "exactness.py", 180, 8, ("--xla", "on")),
    "times": Part("Step times", "step_times.py", 200, 4),
    "profile": Part("A profile", "profile_steps.py", 80, 4),
    "memory": Part("Peak memory", "peak_memory.py", 80, 4),
}
ALL_SECONDS = sum(part.seconds for part in PARTS.values())  # 20 minutes


def run(part: Part, options: argparse.Namespace, more: list[str], num_gpus: int) -> str:
    """Runs a part within its limit; "done", or what became of it."""
    limit = part.seconds * options.minutes * 60 / ALL_SECONDS
    command = [sys.executable, str(HERE / part.script), *part.arguments, *more]
    process = subprocess.Popen(command, env=environment(part, num_gpus), start_new_session=True)
    try:
        status = process.wait(limit)
        return "done" if status == 0 else f"FAILED, with status {status}"
    except subprocess.TimeoutExpired:
        return f"CUT OFF after its {limit:.0f} s"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # with the processes that it has started
            process.wait()


def environment(part: Part, num_gpus: int) -> dict[str, str]:
    """Of a part: where CUDA keeps what it compiles, and only one GPU where it has to be split."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    one = {"CUDA_VISIBLE_DEVICES": seen} if 1 < num_gpus < part.devices else {}
    return {"TF_CPP_MIN_LOG_LEVEL": "2", **CACHE, **os.environ, **one, "PYTHONUNBUFFERED": "1"}


def check(options: argparse.Namespace, more: list[str], num_gpus: int) -> dict[str, str]:
    """Runs the parts, and says what became of each."""
    ends = {}
    for name in options.only:
        begin = time.monotonic()
        print(f"\n## {PARTS[name].title}\n", flush=True)
        ends[name] = run(PARTS[name], options, more, num_gpus)
        print(f"\n{name}: {ends[name]}, {time.monotonic() - begin:.0f} s", flush=True)
    return ends


def main() -> int:
    """Status 1 if a part did not end well."""
    parser = settings.parser(__doc__)
    parser.add_argument("--minutes", type=float, default=ALL_SECONDS / 60, help="limit of all parts together (20)")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="these parts")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the part as well, which would keep its memory
    if options.simulate:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    num_gpus = len(tf.config.list_physical_devices("GPU"))
    if num_gpus == 0 and not options.simulate:
        print(NO_GPU)
        return 0
    if options.simulate:
        print("SIMULATED on CPU devices: this says nothing about GPUs.")
    else:
        cache = Path(os.environ.get("CUDA_CACHE_PATH", CACHE["CUDA_CACHE_PATH"]))
        cache.mkdir(parents=True, exist_ok=True)
        print(f"What CUDA compiles for these GPUs is kept in {cache}, so that the next check need not wait for it.")
    told = {"replicas": options.replicas, "memory": options.memory, "folder": options.folder}
    more = [word for name, value in told.items() if value for word in (f"--{name}", str(value))]
    ends = check(options, [*more, *(["--simulate"] if options.simulate else [])], num_gpus)
    print("\n" + "\n".join(f"{name}: {end}" for name, end in ends.items()))
    return int(set(ends.values()) != {"done"})


if __name__ == "__main__":
    sys.exit(main())
