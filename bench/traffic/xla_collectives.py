"""What XLA would have eight GPUs send in a training step on JAX. No GPU is needed: XLA compiles for a described one.

Run it in an environment with `pip install 'jax[cuda13]' keras`: `python bench/traffic/xla_collectives.py`. Each line of
the table has the collectives of one kind, how many of them run beside other work, and the bytes of their results on a
device. XLA joins small ones.
"""

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`
sys.path.append(str(Path(__file__).parents[2] / "python"))
# without a GPU, CUDA's libraries cannot tell their versions, and JAX has no devices but CPUs
os.environ |= {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}

import math
import re
from collections import defaultdict
from collections.abc import Iterator

import jax
import keras
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh

from bench.lib.markdown_table import markdown_table
from bench.lib.workloads import WORKLOADS
from multigpu.engines.jax.estimates import TrialModel, batch_of
from multigpu.engines.jax.layout import Layout

GPUS, ROWS = 8, {"MLP 4×1024": 2048, "conv net": 1024, "Xception": 256}
H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128 block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535 block_dim_limit_z: 65535 memory_bandwidth: 3352320000000 l2_cache_size: 52428800
  clock_rate_ghz: 1.98 device_memory_size: 84929347584 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 } registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 20 }
runtime_version { major: 13 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
COLLECTIVE = re.compile(
    r"= (.+?) (all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute)(-start|-done)?\("
)
ARRAY = re.compile(r"\b[a-z]+(\d+)\[([\d,]*)\]")


def compiled(name: str) -> str:
    """The program of a step, as XLA has optimized it for the GPUs."""
    described = topologies.get_topology_desc("", "cuda", topology=f"1x1x{GPUS}", target_config=H100)
    mesh = Mesh(np.array(described.devices[:GPUS]).reshape(2, 2, 2), ("gpus2", "gpus1", "gpus0"))
    layout, template = Layout(mesh, mesh), WORKLOADS[name].build()
    step = TrialModel(template, keras.optimizers.Adam())
    return step.compiled_step(layout, batch_of(template, ROWS[name], layout)).as_text()


def collectives(program: str) -> Iterator[list]:
    """For each kind: how many there are, how many run beside other work, and megabytes of the results."""
    found: dict[str, list] = defaultdict(lambda: [0, 0, 0.0])
    for result, kind, part in COLLECTIVE.findall(program):
        count = found[kind]
        if part != "-start":  # which has the arguments, too
            count[0] += 1
            count[1] += part == "-done"
            arrays = ARRAY.findall(result)
            count[2] += (
                sum(int(bits) // 8 * math.prod(map(int, filter(None, n.split(",")))) for bits, n in arrays) / 1e6
            )
    yield from ([kind, *of_kind] for kind, of_kind in sorted(found.items()))


def main() -> None:
    """Prints each training when XLA has compiled it."""
    print(f"JAX {jax.__version__}, {GPUS} × H100, Adam\n", flush=True)
    head = ["training", "rows of a batch", "collective", "times", "beside other work", "MB of results per device"]
    for name, rows in ROWS.items():
        lines = [[name, rows, *of[:-1], f"{of[-1]:.2f}"] for of in collectives(compiled(name))]
        print(f"{markdown_table(head, lines)}\n", flush=True)


if __name__ == "__main__":
    main()
