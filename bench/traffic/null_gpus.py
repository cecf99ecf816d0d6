"""What a step copies on null GPUs: a CUDA without a GPU, on which TensorFlow places and copies as for N GPUs.

Copies are counted by what stands in for the CUDA driver; values mean nothing. A step is the difference between passes
of `fit` over 6 batches and over 2, divided by 4. Of tiny copies, up to 1,024 bytes, the table has how many there may
be: for those from a GPU, the host waits. Status 1 if there are more.

Run `make null-gpu-check NULL_CUDA=FOLDER`, where FOLDER has `build`, which makes that library, and `null_gpu.py`, which
reads its counts.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import json
import os
import subprocess
from collections import Counter
from typing import NamedTuple

import keras
import tensorflow as tf

import multigpu
from bench.lib.markdown_table import markdown_table
from bench.lib.workloads import Workload, mlp, xception

LONG, SHORT = 6, 2  # batches of a pass
layers = keras.layers


def conv_net_with_statistics(synchronized: bool = False, blocks: int = 6) -> keras.Model:
    """Convolutions with BatchNormalization on 32×32×3 images."""
    x = inputs = keras.Input((32, 32, 3))
    for number in range(blocks):
        x = layers.Conv2D(32 << number // 2, 3, padding="same", use_bias=False, strides=1 + (number % 2))(x)
        x = layers.Activation("relu")(layers.BatchNormalization(synchronized=synchronized)(x))
    return keras.Model(inputs, layers.Dense(10)(layers.Flatten()(x)))


def wide_model() -> keras.Model:
    """Two very large matrices between Dropouts: a quarter of each side of 11,000 → 16,384 → 8,192."""
    sides = [layers.Dense(size // 4, activation="relu") for size in (16_384, 8_192)]
    return keras.Sequential([keras.Input((11_000 // 4,)), layers.Dropout(0.2), *sides, layers.Dropout(0.2)])


class Case(NamedTuple):
    """A training, on how many GPUs, and how many tiny copies its step may make: to the host, and from it."""

    name: str
    work: Workload
    gpus: int
    to_host: float
    from_host: float
    policy: str = "float32"


IMAGES = Workload(conv_net_with_statistics, (32, 32, 3), None, 64, LONG)
CASES = {
    case.name: case
    for case in (
        Case("MLP 4×1024", Workload(mlp, (1024,), None, 64, LONG), 4, 8, 16),
        Case("conv net", IMAGES, 4, 8, 16),
        Case("conv net, mixed_float16", IMAGES, 4, 8, 16, "mixed_float16"),
        Case("Xception", Workload(xception, (71, 71, 3), None, 16, LONG), 8, 24, 48),
        Case("wide model", Workload(wide_model, (2750,), None, 64, LONG), 8, 24, 56),
    )
}


def measured(case: Case) -> dict[str, float]:
    """Copies of a step, by size and way."""
    import null_gpu

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    keras.config.set_dtype_policy(case.policy)
    template = case.work.build()
    model = multigpu.multi_gpu_model(template, gpus=case.gpus) if case.gpus > 1 else template
    case.work.compiled(model, lambda: keras.optimizers.Adam(1e-3))
    batches = {n: case.work.batches(n).rebatch(case.work.batch_size, drop_remainder=True) for n in (LONG, SHORT)}

    def counted(steps: int) -> tuple[Counter, Counter]:
        null_gpu.reset()
        model.fit(batches[steps], verbose=0, shuffle=False)
        return null_gpu.copies()

    counted(SHORT)  # traces
    long, short = counted(LONG), counted(SHORT)
    per_step = lambda a, b: {key: (a[key] - b[key]) / (LONG - SHORT) for key in a}  # noqa: E731
    times, sizes = (per_step(a, b) for a, b in zip(long, short, strict=True))
    total = sum(v.value.shape.num_elements() * v.value.dtype.size for v in template.trainable_variables)
    return {
        **{f"{size} {way}": times.get((size, way), 0) for size in ("tiny", "large") for way in ("D2H", "H2D", "D2D")},
        "bytes ÷ ring": sizes.get(("large", "D2D"), 0) / max(1, 2 * (case.gpus - 1) * total),
    }


def in_own_process(case: Case) -> dict[str, float]:
    """The same, in a process that has so many GPUs."""
    environ = {**os.environ, "NULL_CUDA_DEVICES": str(case.gpus), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, __file__, case.name]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    """Prints the table. Status 1 if a step copies more than it may."""
    rows, excess = [], []
    for case in CASES.values():
        counts = in_own_process(case)
        may = {"tiny D2H": case.to_host, "tiny H2D": case.from_host}
        excess += [
            f"{case.name}: {way} {counts[way]:g}, of {most:g}" for way, most in may.items() if counts[way] > most
        ]
        told = [f"{counts[way]:g} (≤ {most:g})" for way, most in may.items()]
        rows.append([case.name, case.gpus, *told, f"{counts['large D2D']:g}", f"{counts['bytes ÷ ring']:.3f}"])
    header = [
        "per step, Adam",
        "N",
        "tiny copies from GPUs",
        "tiny copies to GPUs",
        "copies between GPUs",
        "bytes ÷ ring",
    ]
    print(markdown_table(header, rows))
    print("\n".join(excess))
    return int(bool(excess))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measured(CASES[sys.argv[1]])))
    else:
        sys.exit(main())
