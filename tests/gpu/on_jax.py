"""The engine on JAX on one GPU, beside plain Keras on it: first step, step time, and memory of the GPU.

One GPU cannot be split for JAX. So a mesh of one device is measured, which `multi_gpu_model` itself refuses: what the
parallel model costs, never a speed-up. Each way to train has a process of its own, since the peak of memory is that of
a process. `--exact` instead runs the exactness tests that name no device, with such a mesh for the parallel twin.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`
sys.path.append(str(Path(__file__).parents[2] / "python"))  # where it is not installed
sys.path.append(str(Path(__file__).parents[1] / "support"))

import argparse
import json
import os
import statistics
import subprocess
import time

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras

from bench.lib.markdown_table import markdown_table
from bench.lib.workloads import WORKLOADS
from multigpu.engines import place_weights
from multigpu.model.overrides import with_own_code
from multigpu.model.parallel_model import ParallelModel
from multigpu.plan.plan import Plan

NAMES = ("MLP 4×1024", "conv net", "Xception")
PLAIN, OURS, RELOCATED = "plain Keras", "multigpu", "multigpu, cpu_relocation"
SCALE, STEPS, ROUNDS = 8, 12, 5
FILES = ("exact_models", "exact_losses", "exact_batches", "exact_optimizers", "properties")


def on_one_gpu(
    model: keras.Model, gpus: object = None, cpu_merge: bool = True, cpu_relocation: bool = False
) -> keras.Model:
    """What `multi_gpu_model` makes, on the first device alone."""
    device = f"{jax.default_backend().upper()}:0"
    plan = Plan((device,), "CPU:0" if cpu_merge else device, cpu_relocation)
    place_weights(model, plan)
    return with_own_code(ParallelModel, model)(model, plan)


class Memory(keras.callbacks.Callback):
    """The bytes of arrays on the GPU when a step begins, at most."""

    most = 0

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        gpu = jax.local_devices()[0]
        here = sum(
            shard.data.nbytes
            for array in jax.live_arrays()
            for shard in array.addressable_shards
            if shard.device == gpu and array.sharding.memory_kind == "device"
        )
        self.most = max(self.most, here)


def measure(name: str, way: str, scale: int) -> dict[str, float]:
    """Seconds of the first step, median milliseconds of a later one, and bytes on the GPU."""
    work = WORKLOADS[name]
    work = work._replace(batch_size=scale * work.batch_size)
    x, y = work.arrays(STEPS)
    keras.utils.set_random_seed(0)
    model = work.build()
    used = model if way == PLAIN else on_one_gpu(model, cpu_relocation=way == RELOCATED)
    work.compiled(used, lambda: keras.optimizers.Adam(1e-3), jit_compile=True)

    def seconds(steps: int, **more: object) -> float:
        rows, begin = steps * work.batch_size, time.perf_counter()
        used.fit(x[:rows], y[:rows], batch_size=work.batch_size, shuffle=False, verbose=0, **more)
        return time.perf_counter() - begin

    first = seconds(1)
    later = [seconds(STEPS) / STEPS for _ in range(ROUNDS)]
    stats = jax.local_devices()[0].memory_stats() or {}
    seen = Memory()
    seconds(3, callbacks=[seen])
    return {
        "first, s": first,
        "ms": 1000 * statistics.median(later),
        "peak, MB": stats.get("peak_bytes_in_use", 0) / 1e6,
        "between fits, MB": stats.get("bytes_in_use", 0) / 1e6,
        "as a step begins, MB": seen.most / 1e6,
    }


def main(options: argparse.Namespace) -> None:
    """Prints each training when it is done."""
    print(f"{__doc__}\nJAX {jax.__version__}, Keras {keras.__version__}\n", flush=True)
    for name in NAMES:
        lines = []
        for way in (PLAIN, OURS, RELOCATED):
            command = [sys.executable, __file__, "--worker", json.dumps([name, way, options.scale])]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"FAILED, {name}, {way}: {done.stderr[-2000:]}", flush=True)
                continue
            found = json.loads(done.stdout.splitlines()[-1])
            lines.append([name, way, *(f"{value:.2f}" for value in found.values())])
        print(f"{markdown_table(['training', 'way', *found], lines)}\n", flush=True)


def exact(files: list[str]) -> int:
    """The status of pytest."""
    import equality
    import pytest

    equality.multi_gpu_model = on_one_gpu
    return pytest.main(["-q", "-p", "no:cacheprovider", "-m", "not soak", *(f"tests/exactness/{x}" for x in files)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, default=SCALE, help="times the rows that suit a CPU (8)")
    parser.add_argument("--exact", nargs="*", help="files of tests/exactness to run")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(measure(*json.loads(arguments.worker))))
    elif arguments.exact is not None:
        sys.exit(exact(arguments.exact or [f"test_{name}.py" for name in FILES]))
    else:
        main(arguments)
