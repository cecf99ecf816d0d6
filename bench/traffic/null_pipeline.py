"""The order in which two GPUs get the slices of a batch, on null GPUs; what it would take; and the memory it needs.

A model of two equal parts; slices go through a pair of GPUs one behind the other. The trace of one step tells which GPU
was given what when. It is replayed with the times that the parts take on a CPU: each GPU does its work in this order,
and waits for what comes from the other. The peak of TensorFlow's allocator is that of a real GPU.

Run it by `make null-gpu-check`; see `bench/traffic/null_gpus.py`.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import contextlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

import multigpu
from bench.lib.markdown_table import markdown_table

RESULTS = Path(__file__).parents[1] / "results"
SLICES, QUICK, ROWS, UNITS = (1, 2, 4, 8), (4,), 1024, 1024
LAYERS = 3  # of each part; forward one product each, backward two
PRODUCTS = {(part, backward): LAYERS * (1 + backward) for part in (0, 1) for backward in (False, True)}
OF_IDEAL = 0.95  # of 2 m ÷ (m + 1), the least that the order gives if both parts take the same time
NOTE = """\
`make null-gpu-check` sends m slices of a batch of 1,024 rows through two equal parts of a model, on one pair of GPUs.
TensorFlow chose the order in which the GPUs got their work. The replay follows this order, with the times that the
parts take on one core. Memory is the peak of TensorFlow's allocator on the fuller GPU ÷ that of one GPU with the whole
model.
"""


class Task(NamedTuple):
    """What a GPU does for one slice in one go."""

    part: int
    backward: bool
    slice: int


def build(on) -> keras.Model:  # `on_device()`, or what does nothing
    """A small layer, so that the first part has a gradient to give back too, and two parts of large ones."""
    x = inputs = keras.Input((8,))
    with on("GPU:0"):
        x = keras.layers.Dense(UNITS, use_bias=False)(x)
    for device in ("GPU:0", "GPU:1"):
        with on(device):
            for _ in range(LAYERS):
                x = keras.layers.Dense(UNITS, "tanh")(x)
    return keras.Model(inputs, x)


def measured(slices: int) -> dict:
    """The trace of a step and the peak of memory; with 0 slices those of the whole model on one GPU."""
    import null_gpu

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    on = multigpu.on_device if slices else lambda device: contextlib.nullcontext()
    model = build(on)
    if slices:
        model = multigpu.multi_gpu_model(model, gpus=[["GPU:0", "GPU:1"]] * slices)
    model.compile("adam", "mse", jit_compile=False)
    x, y = np.zeros((ROWS, 8), "float32"), np.zeros((ROWS, UNITS), "float32")
    model.fit(x, y, batch_size=ROWS, verbose=0, epochs=2)
    for gpu in ("GPU:0", "GPU:1"):
        tf.config.experimental.reset_memory_stats(gpu)
    null_gpu.reset()
    model.fit(x, y, batch_size=ROWS, verbose=0)
    null_gpu.reset()
    peak = max(tf.config.experimental.get_memory_info(gpu)["peak"] for gpu in ("GPU:0", "GPU:1"))
    trace = Path(os.environ["NULL_CUDA_TRACE"]).read_text().split("RESET\n")[-2].splitlines()
    return {"peak": peak, "kernels": [line.split(" ")[1:3] for line in trace if line.startswith("kernel ")]}


def tasks_of(kernels: list[list[str]], slices: int) -> tuple[list[Task], bool]:
    """Tasks in the order in which they were launched, and whether each GPU got slice after slice.

    A part has so many products forward and backward that the number of a product tells its task.
    """
    products = {0: (LAYERS + 1, 2 * LAYERS + 1), 1: (LAYERS, 2 * LAYERS)}
    seen = {0: 0, 1: 0}
    tasks: list[Task] = []
    patterns: dict[Task, list[str]] = {}
    open_tasks: dict[int, Task] = {}
    for gpu_text, name in kernels:
        gpu = int(gpu_text)
        if "gemm" in name.lower():
            forward, backward = products[gpu]
            number = seen[gpu]
            seen[gpu] += 1
            is_backward = number >= forward * slices
            each, first = (backward, forward * slices) if is_backward else (forward, 0)
            task = Task(gpu, is_backward, (number - first) // each)
            if task not in patterns:
                tasks.append(task)
                patterns[task] = []
            open_tasks[gpu] = task
        if gpu in open_tasks and _of_a_layer(name):
            patterns[open_tasks[gpu]].append(name)
    forward_alike = all(patterns[task] == patterns[task._replace(slice=0)] for task in tasks if not task.backward)
    return tasks, forward_alike


def _of_a_layer(name: str) -> bool:
    return any(word in name for word in ("gemm", "Gemm", "Tanh", "BiasNHWC"))


def replay(
    tasks: list[Task], seconds: Mapping[tuple[int, bool], float], slices: int
) -> dict[Task, tuple[float, float]]:
    """When each task begins and ends, if each GPU does its tasks in this order."""
    times: dict[Task, tuple[float, float]] = {}
    free = {0: 0.0, 1: 0.0}
    pending = list(tasks)
    while pending:
        for task in pending:
            needed = _before(task, slices)
            mine = [other for other in pending if other.part == task.part]
            if mine[0] == task and all(other in times for other in needed):
                begin = max([free[task.part], *(times[other][1] for other in needed)])
                free[task.part] = begin + seconds[task.part, task.backward]
                times[task] = (begin, free[task.part])
                pending.remove(task)
                break
    return times


def speed_up(times: dict[Task, tuple[float, float]]) -> float:
    """The time of all tasks one after the other ÷ the time that they take on both GPUs."""
    return sum(end - begin for begin, end in times.values()) / max(end for _, end in times.values())


def _before(task: Task, slices: int) -> list[Task]:
    """What a task waits for: the part before, all slices for the loss, the part after on the way back."""
    if not task.backward:
        return [Task(0, False, task.slice)] if task.part == 1 else []
    return [Task(1, False, number) for number in range(slices)] if task.part == 1 else [Task(1, True, task.slice)]


def part_seconds(rows: int) -> dict[tuple[int, bool], float]:
    """CPU seconds of each part for so many rows, forward and backward."""
    whole = build(lambda device: contextlib.nullcontext())
    border = whole.layers[1 + LAYERS].output
    parts = [keras.Model(whole.input, border), keras.Model(border, whole.output)]
    inputs = [np.ones((rows, 8), "float32"), np.ones((rows, UNITS), "float32")]
    seconds = {}
    for number, (part, x) in enumerate(zip(parts, inputs, strict=True)):

        @tf.function(autograph=False)
        def forward(x: tf.Tensor, part: keras.Model = part) -> tf.Tensor:
            return part(x, training=True)

        @tf.function(autograph=False)
        def both(x: tf.Tensor, part: keras.Model = part) -> list[tf.Tensor]:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = part(x, training=True)
            return tape.gradient(y, [x, *part.trainable_variables])

        one, two = _least_seconds(forward, x), _least_seconds(both, x)
        seconds[number, False], seconds[number, True] = one, two - one
    return seconds


def _least_seconds(function, x: np.ndarray) -> float:
    taken = []
    for _ in range(16):
        begin = time.process_time()
        keras.tree.map_structure(lambda t: t.numpy(), function(tf.constant(x)))
        taken.append(time.process_time() - begin)
    return min(taken[1:])  # what disturbs only adds


def figures(numbers: tuple[int, ...] = SLICES) -> list[dict]:
    """For each number of slices: the order, the replay, the memory."""
    alone = in_own_process(0)["peak"]
    rows = []
    for slices in numbers:
        found = in_own_process(slices)
        tasks, slice_after_slice = tasks_of(found["kernels"], slices)
        times = replay(tasks, part_seconds(ROWS // slices), slices)
        by_order = replay(tasks, PRODUCTS, slices)
        launched = {task: number for number, task in enumerate(tasks)}
        early = all(launched[Task(1, False, n)] < launched[Task(0, False, n + 2)] for n in range(slices - 2))
        rows.append(
            {
                "slices": slices,
                "slice after slice": slice_after_slice,
                "parts overlap": early,
                "speed-up": speed_up(times),
                "speed-up by order": speed_up(by_order),
                "ideal": 2 * slices / (slices + 1),
                "memory": found["peak"] / alone,
                "times": [[*task, *times[task]] for task in tasks],
            }
        )
    return rows


def in_own_process(slices: int) -> dict:
    """What two null GPUs did."""
    with tempfile.TemporaryDirectory() as folder:
        gpus = {"NULL_CUDA_DEVICES": "2", "NULL_CUDA_TRACE": f"{folder}/trace", "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, __file__, str(slices)]
        done = subprocess.run(command, env={**os.environ, **gpus}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    return json.loads(done.stdout.splitlines()[-1])


def table(rows: list[dict]) -> str:
    head = ["slices m", "each GPU gets slice after slice", "part 2 begins before slice 3", "speed-up of the replay"]
    lines = [
        [
            row["slices"],
            "yes" if row["slice after slice"] else "no",
            "–" if row["slices"] < 3 else "yes" if row["parts overlap"] else "no",
            f"{row['speed-up']:.2f}",
            f"{row['ideal']:.2f}",
            f"{row['memory']:.2f}",
        ]
        for row in rows
    ]
    return markdown_table([*head, "2 m ÷ (m + 1)", "peak memory ÷ one GPU"], lines)


def section(rows: list[dict]) -> str:
    """What `RESULTS.md` says of it."""
    return f"## A model in two parts: the order of its slices on GPUs\n\n{NOTE}\n{table(rows)}\n"


def main() -> int:
    """Prints the table. Status 1 if the order is not that of a pipeline: by products, as seconds differ by chance."""
    tf.config.set_visible_devices([], "GPU")  # this process takes the times of the parts, on a CPU
    rows = figures(QUICK if "--quick" in sys.argv else SLICES)
    print(table(rows))
    if "--write" in sys.argv:
        (RESULTS / "null_pipeline.json").write_text(json.dumps(rows, indent=1))
    late = [row for row in rows if row["slices"] > 2 and row["speed-up by order"] < OF_IDEAL * row["ideal"]]
    return int(bool(late) or not all(row["slice after slice"] and row["parts overlap"] for row in rows))


if __name__ == "__main__":
    if sys.argv[-1].isdigit():
        print(json.dumps(measured(int(sys.argv[-1]))))
    else:
        sys.exit(main())
