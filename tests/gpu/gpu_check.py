"""Checks this package on the GPUs of this machine: exact numbers, where ops ran, memory, and step times.

The exactness tests run on eight devices, so one GPU is split into eight logical ones; all else runs on the GPUs there
are, or on four parts of the only one. Without a GPU nothing is run, and this says so and ends with status 0: nothing
is wrong. Status 1 means that something failed on the GPUs. `--simulate` tries out this script on CPU devices.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import argparse
import os
import subprocess
import time
from collections.abc import Iterator

import tensorflow as tf

import multigpu
from bench.lib.markdown_table import markdown_table
from bench.lib.strategies import STRATEGIES, make
from bench.lib.subprocess_metrics import in_own_process, run_script
from bench.lib.workloads import WORKLOADS
from bench.speed.step_time import step_times

ROOT = Path(__file__).parents[2]
TESTS = [  # those that name no device
    *(f"exactness/test_{name}.py" for name in ("exact_batches", "exact_losses", "exact_models", "exact_optimizers")),
    *("exactness/test_properties.py", "parallel/test_shared_weights.py", "replicas/test_state.py"),
    *("replicas/test_added_losses.py", "replicas/test_sync_batch_norm.py"),
]
NO_GPU = (
    "No GPU: TensorFlow sees none on this machine, so nothing was run and nothing is known about GPUs. On a machine "
    "with one, install `pip install '.[cuda]'`; `--simulate` tries out this script on CPU devices."
)
REPLICA_OPS = ("Conv2D", "MatMul")  # forward, and with their gradients' names backward
SCALE = 8  # times the rows that suit a CPU
ROUNDS = 5


def measure(workload: str, num_replicas: int, memory: int, scale: int) -> dict:
    """Ops and memory per device in training, and wall milliseconds per step of each strategy."""
    from executed_graphs import executed  # of the tests: `subprocess_metrics` puts them on the path

    multigpu.simulate_gpus(num_replicas, memory)
    scaled = WORKLOADS[workload]._replace(batch_size=scale * WORKLOADS[workload].batch_size)
    model, batches = make("multigpu", scaled), scaled.batches(2)
    run = executed(lambda: model.fit(batches, verbose=0))
    devices = multigpu.available_gpus()[:num_replicas]
    placement = {
        device: {
            "replica ops": run.devices_of(*REPLICA_OPS)[device],
            "updates": run.devices_of("Assign", "ResourceApply")[device],
            "memory": memory_of(device),
        }
        for device in dict.fromkeys([*devices, "CPU:0"])
    }
    elsewhere = sum(run.devices_of(*REPLICA_OPS).values()) - sum(placement[d]["replica ops"] for d in devices)
    return {
        "placement": placement,
        "elsewhere": elsewhere,
        "ms": step_times(scaled, STRATEGIES, ROUNDS, time.perf_counter),
    }


def memory_of(device: str) -> str:
    """Megabytes in use and at most; TensorFlow counts them on GPUs only."""
    if not device.startswith("GPU"):
        return "–"
    info = tf.config.experimental.get_memory_info(device)
    return f"{info['current'] / 1e6:.0f}, {info['peak'] / 1e6:.0f}"


def table(result: dict) -> str:
    """Devices with what they ran and hold, and the times."""
    head = ["device", "convolutions and products of matrices", "assignments", "MB after two steps, and at most"]
    devices = [[device, *cells.values()] for device, cells in result["placement"].items()]
    one = result["ms"]["one device"]
    times = [[strategy, f"{ms:.1f}", f"{ms / one:.2f}"] for strategy, ms in result["ms"].items()]
    return (
        f"{markdown_table(head, devices)}\n\n{markdown_table(['strategy', 'wall ms per step', '÷ one device'], times)}"
    )


def is_even(result: dict) -> bool:
    """Whether all replicas ran the same, each on its own device."""
    counts = {cells["replica ops"] for device, cells in result["placement"].items() if cells["replica ops"]}
    return len(counts) == 1 and result["elsewhere"] == 0


def exact(files: list[str], simulate: bool, memory: int) -> bool:
    """Whether the exactness tests pass on the GPUs."""
    gpu = {"MULTIGPU_DEVICES": "gpu", "MULTIGPU_MEMORY": str(memory)}
    if not simulate and len(tf.config.list_physical_devices("GPU")) < 8:  # a single one can be split into eight
        gpu["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *files]
    return (
        subprocess.run(command, cwd=ROOT, env={**os.environ, **({} if simulate else gpu)}, check=False).returncode == 0
    )


def checks(arguments: argparse.Namespace, gpus: list) -> Iterator[bool]:
    """Runs everything; each part tells whether it went well."""
    print(f"\n## Exactness tests on {'CPU devices' if arguments.simulate else 'eight GPU devices'}\n", flush=True)
    yield exact(arguments.tests, arguments.simulate, arguments.memory)
    num_replicas = len(gpus) if len(gpus) > 1 else arguments.replicas
    for workload in arguments.workload:
        scale = 1 if arguments.simulate else SCALE
        print(
            f"\n## {workload}, {num_replicas} replicas, batch of {scale * WORKLOADS[workload].batch_size}\n", flush=True
        )
        try:
            result = in_own_process(
                __file__, workload=workload, num_replicas=num_replicas, memory=arguments.memory, scale=scale
            )
        except RuntimeError as error:
            print(error)
            yield False
        else:
            print(f"{table(result)}\n\nEach replica ran on its own device: {'yes' if is_even(result) else 'NO'}.")
            yield is_even(result)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulate", action="store_true", help="run on CPU devices, to try out this script")
    parser.add_argument("--replicas", type=int, default=4, help="parts into which the only GPU is split (4)")
    parser.add_argument("--memory", type=int, default=2048, help="MB of each part (2048)")
    parser.add_argument("--workload", nargs="*", default=["conv net", "MLP 4×1024"], choices=list(WORKLOADS))
    parser.add_argument("--tests", nargs="+", default=[f"tests/{path}" for path in TESTS], help="test files")
    arguments = parser.parse_args()
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus and not arguments.simulate:
        print(NO_GPU)
        return 0
    if arguments.simulate:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
        print("SIMULATED on CPU devices: this says nothing about GPUs.")
        gpus = []
    for gpu in gpus:
        print(f"{gpu.name}: {tf.config.experimental.get_device_details(gpu)}")
    return 0 if all(list(checks(arguments, gpus))) else 1


if __name__ == "__main__":
    if "--worker" in sys.argv:
        run_script(measure, None, None)
    else:
        sys.exit(main())
