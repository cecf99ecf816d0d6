"""A profile of three steps of Xception, for TensorBoard or Perfetto, and what it has of copies and kernels."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import argparse
import shutil

import keras
import settings
from copies import NO_CUPTI, Copies, profiled

import multigpu
from bench.lib.markdown_table import markdown_table
from bench.traffic.null_gpus import batches_of

STEPS = 3


def main(options: argparse.Namespace) -> int:
    """Leaves the profile in a folder. Status 1 if there is none."""
    replicas, work = settings.num_replicas(options), settings.scaled("Xception", options)
    multigpu.simulate_gpus(replicas, settings.memory_limit(options, replicas))
    model = multigpu.multi_gpu_model(work.build(), gpus=replicas)
    work.compiled(model, lambda: keras.optimizers.Adam(1e-3))
    batches = batches_of(work, STEPS)
    model.fit(batches, verbose=0)  # traces, and compiles kernels
    folder = options.folder / "xception"
    if folder.exists():
        shutil.rmtree(folder)  # of an earlier check
    found = profiled(lambda: model.fit(batches, verbose=0), folder)
    files = [path for path in folder.rglob("*") if path.is_file()]
    print(f"{STEPS} steps of {work.batch_size} rows on {replicas} devices, in {folder}:\n")
    print(*(f"- {path.relative_to(folder)}, {path.stat().st_size / 1e6:.1f} MB" for path in files), sep="\n")
    print(f"\n{table(found) if found.times else NO_CUPTI}")
    return int(not files)


def table(found: Copies) -> str:
    rows = [
        [f"{size} {way}", f"{times / STEPS:g}", f"{found.bytes[size, way] / STEPS / 1e6:.2f} MB"]
        for (size, way), times in sorted(found.times.items())
    ]
    kernels = ["kernels", f"{found.kernels['number'] / STEPS:g}", f"{found.kernels['ms'] / STEPS:.1f} ms"]
    return markdown_table(["copies", "per step", "together"], [*rows, kernels])


if __name__ == "__main__":
    sys.exit(main(settings.parser(__doc__).parse_args()))
