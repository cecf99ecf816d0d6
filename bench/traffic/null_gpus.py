"""What a step copies on null GPUs: a CUDA without a GPU, on which TensorFlow places and copies as for N GPUs.

A step is the difference between passes of `fit` over 6 batches and over 2, divided by 4; what is sent by whom, and
when, is read from the trace of one step. Status 1 if a figure is more than it may be.

Run `make null-gpu-check NULL_CUDA=FOLDER`, where FOLDER has `build`, which makes that library, and `null_gpu.py`, which
reads its counts. `HOW=--write` puts the figures where `bench/lib/report.py` finds them; `HOW=--quick` leaves out what
takes long, as `.ci/run` does.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import concurrent.futures
import functools
import json
import os
import subprocess
import tempfile
from collections import Counter
from typing import NamedTuple

import keras
import tensorflow as tf

import multigpu
from bench.lib.markdown_table import markdown_table
from bench.lib.workloads import Workload, mlp, wide_model, xception
from bench.traffic.null_trace import inputs_late, last_piece, sent_in

LONG, SHORT = 6, 2  # batches of a pass
RESULTS = Path(__file__).parents[1] / "results"
NOTE = """\
`make null-gpu-check`: TensorFlow placed, cut and ran each step for N GPUs, on a CUDA that has no GPU and counts copies.
No figure here is a time. A copy of at most 1,024 bytes is tiny. The host waits for each tiny copy from a GPU. The ring,
2 (N − 1) times the bytes of the weights, is the least that all GPUs together have to send. Bytes that a GPU sends after
its last backward kernel overlap with no work. The limit of each figure is in brackets.
"""
layers = keras.layers


def conv_net_with_statistics(synchronized: bool = False, blocks: int = 6) -> keras.Model:
    """Convolutions with BatchNormalization on 32×32×3 images."""
    x = inputs = keras.Input((32, 32, 3))
    for number in range(blocks):
        x = layers.Conv2D(32 << number // 2, 3, padding="same", use_bias=False, strides=1 + (number % 2))(x)
        x = layers.Activation("relu")(layers.BatchNormalization(synchronized=synchronized)(x))
    return keras.Model(inputs, layers.Dense(10)(layers.Flatten()(x)))


class Case(NamedTuple):
    """A training, on how many GPUs, and how much of each figure its step may have."""

    name: str
    work: Workload
    gpus: int
    most: dict[str, float]  # by the name of the figure
    policy: str = "float32"
    quick: bool = False


IMAGES = Workload(conv_net_with_statistics, (32, 32, 3), None, 64, LONG)
SYNCHRONIZED = Workload(functools.partial(conv_net_with_statistics, True, 10), (32, 32, 3), None, 64, LONG)
DENSE = Workload(mlp, (1024,), None, 64, LONG)
ALWAYS = {"bytes ÷ ring": 1.02, "inputs late": 0.4}  # no kernel takes any time here: a thread may come after it
FEW = {"tiny D2H": 8, "tiny H2D": 16, **ALWAYS}
OF_EIGHT = {"tiny D2H": 24, "tiny H2D": 48, **ALWAYS}
CASES = {
    f"{case.name}, N = {case.gpus}": case
    for case in (
        Case("MLP 4×1024", DENSE, 4, {**FEW, "sent late": 0.2}, quick=True),
        Case("MLP 4×1024", DENSE, 8, {**OF_EIGHT, "most ÷ mean": 1.3}, quick=True),
        Case("conv net", IMAGES, 4, FEW),
        Case("conv net", IMAGES, 8, {**OF_EIGHT, "most ÷ mean": 1.3}),
        Case("conv net, mixed_float16", IMAGES, 4, FEW, "mixed_float16", quick=True),
        Case("Xception", Workload(xception, (71, 71, 3), None, 16, LONG), 8, {**OF_EIGHT, "most ÷ mean": 1.1}),
        Case("10 synchronized BatchNormalizations", SYNCHRONIZED, 8, {"tiny per GPU": 100}),
        Case("wide model", Workload(wide_model, (2750,), None, 64, LONG), 8, {**OF_EIGHT, "most ÷ mean": 1.1}),
    )
}
FIGURES = {
    "tiny D2H": "tiny copies from GPUs",
    "tiny H2D": "tiny copies to GPUs",
    "tiny per GPU": "tiny copies of any kind ÷ GPUs",
    "large D2D": "copies between GPUs",
    "bytes ÷ ring": "bytes ÷ ring",
    "most ÷ mean": "most loaded GPU ÷ mean",
    "sent late": "sent after the last backward kernel",
    "inputs late": "inputs copied after the last kernel of the step before",
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
    batches = {n: batches_of(case.work, n) for n in (LONG, SHORT, 1)}

    def counted(steps: int) -> tuple[Counter, Counter]:
        null_gpu.reset()
        model.fit(batches[steps], verbose=0, shuffle=False)
        return null_gpu.copies()

    trace = Path(os.environ["NULL_CUDA_TRACE"])
    counted(SHORT)  # traces
    long, short = counted(LONG), counted(SHORT)
    late = inputs_late(last_piece(trace), LONG)
    counted(1)
    null_gpu.reset()
    sent = sent_in(last_piece(trace))
    per_step = lambda a, b: {key: (a[key] - b[key]) / (LONG - SHORT) for key in a}  # noqa: E731
    times, sizes = (per_step(a, b) for a, b in zip(long, short, strict=True))
    total = sum(v.value.shape.num_elements() * v.value.dtype.size for v in template.trainable_variables)
    return {
        **{f"{size} {way}": times.get((size, way), 0) for size in ("tiny", "large") for way in ("D2H", "H2D", "D2D")},
        "tiny per GPU": sum(times.get(("tiny", way), 0) for way in ("D2H", "H2D", "D2D")) / case.gpus,
        "most ÷ mean": sent.most_to_mean,
        "sent late": sent.late_share,
        "inputs late": late,
        "bytes ÷ ring": sizes.get(("large", "D2D"), 0) / max(1, 2 * (case.gpus - 1) * total),
    }


def batches_of(work: Workload, number: int) -> tf.data.Dataset:
    """So many, of a known number: at an end that comes unforeseen, weights are on their way for one step more."""
    batches = work.batches(number).rebatch(work.batch_size, drop_remainder=True)
    return batches.apply(tf.data.experimental.assert_cardinality(number))


def in_own_process(name: str) -> dict[str, float]:
    """The figures of a case, from a process that has so many GPUs."""
    command = [sys.executable, __file__, name]
    with tempfile.TemporaryDirectory() as folder:
        gpus = {"NULL_CUDA_DEVICES": str(CASES[name].gpus), "NULL_CUDA_TRACE": f"{folder}/trace"}
        environ = {**os.environ, **gpus, "TF_CPP_MIN_LOG_LEVEL": "3"}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    return json.loads(done.stdout.splitlines()[-1])


def table(figures: dict[str, dict[str, float]]) -> str:
    """A row for each case, with what it may have."""
    rows = [[name, *(_told(of[key], CASES[name].most.get(key)) for key in FIGURES)] for name, of in figures.items()]
    return markdown_table(["per step, Adam", *FIGURES.values()], rows)


def section(figures: dict[str, dict[str, float]]) -> str:
    """What `RESULTS.md` says of it."""
    return f"## What a step copies between GPUs, counted without GPUs\n\n{NOTE}\n{table(figures)}\n"


def main() -> int:
    """Prints the table. Status 1 if a step has more of something than it may have."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:  # nothing is timed
        names = [name for name, case in CASES.items() if case.quick or "--quick" not in sys.argv]
        figures = dict(zip(names, pool.map(in_own_process, names), strict=True))
    print(table(figures))
    if "--write" in sys.argv:
        (RESULTS / "null_gpus.json").write_text(json.dumps(figures, indent=1, ensure_ascii=False))
    excess = [
        f"{name}: {key} {figures[name][key]:.3g}, of {most:g}"
        for name in figures
        for key, most in CASES[name].most.items()
        if figures[name][key] > most
    ]
    print("\n".join(excess))
    return int(bool(excess))


def _told(figure: float, most: float | None) -> str:
    return f"{figure:.3g}" + (f" (≤ {most:g})" if most is not None else "")


if __name__ == "__main__":
    if sys.argv[-1] in CASES:
        print(json.dumps(measured(CASES[sys.argv[-1]])))
    else:
        sys.exit(main())
