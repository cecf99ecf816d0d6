"""The examples run at small size, with the numbers of one device, and save files that plain Keras loads."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from forked_python import python

from multigpu.cli.launch import free_ports

pytestmark = pytest.mark.pages
ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
EXAMPLES = ROOT / "examples"
PAGE = (EXAMPLES / "README.md").read_text()
FOUR_DECIMALS = {"rel": 2e-4, "abs": 1.01e-4}  # of numbers that are printed with four, whose last may round otherwise


def run(command: list, folder: Path, **environment: str) -> str:
    """What a command prints, which has to succeed."""
    library = os.path.join(sys.prefix, "r")  # where `make` installs the R package
    settings = {"CUDA_VISIBLE_DEVICES": "-1", "RETICULATE_PYTHON": sys.executable, "TF_CPP_MIN_LOG_LEVEL": "2"}
    environment = {"R_LIBS": library, **os.environ, **settings, **environment}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]
    return done.stdout


def run_on_two_and_one(script: str, folder: Path, *arguments: str) -> tuple[str, str]:
    """What an example prints on two devices, and the plain model on one; the file is that of the two."""
    command = [*python(), EXAMPLES / script, *arguments]
    one = run([*command, "--gpus", "1"], folder)
    assert "Training on one device. " in one
    two = run([*command, "--simulate", "2"], folder)
    assert "Training: 2 replicas on CPU:0, CPU:1; " in two
    return two, one


def numbers(printed: str, *names: str) -> list[float]:
    """The numbers after these names, as they are printed."""
    return [float(number) for number in re.findall(rf"\b(?:{'|'.join(names)}):? ([\d.]+\d)", printed)]


def images() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits  # which takes a second: all tests are collected by each process

    x, y = load_digits(return_X_y=True)
    return x.reshape(-1, 8, 8, 1).astype("float32"), y


def shuffled() -> np.ndarray:
    """The rows in the order in which the examples deal them out."""
    return np.random.default_rng(0).permutation(1797)


# Each example ---------------------------------------------------------------------------------------------------------


def test_image_classification(tmp_path):
    two, one = run_on_two_and_one("image_classification.py", tmp_path, "--epochs", "1", "--batch-size", "512")
    losses = numbers(two, "loss", "val_loss")
    assert len(losses) == 2
    # numbers of float16 have 11 bits, and sums in another order round differently in the last one: two steps, not more
    assert losses == pytest.approx(numbers(one, "loss", "val_loss"), rel=2**-10)
    x, y = images()
    best = keras.models.load_model(tmp_path / "image_classification.keras", compile=False)
    test = shuffled()[: 1797 // 6]
    accuracy = np.mean(np.argmax(best.predict(x[test] / 16, verbose=0), axis=1) == y[test])
    assert f": {accuracy:.2%} of 299 held-out images are recognized\n" in two
    assert {layer.compute_dtype for layer in best.layers[:-1]} == {"float16"}


def test_fine_tuning(tmp_path):
    two, one = run_on_two_and_one("fine_tuning.py", tmp_path, "--epochs", "1")
    names = ("accuracy", "loss", "val_accuracy", "val_loss")
    assert len(numbers(two, *names)) == 3 * len(names)
    assert numbers(two, *names) == pytest.approx(numbers(one, *names), **FOUR_DECIMALS)
    x, y = images()
    order = shuffled()
    rest = order[y[order] >= 5][100:]
    saved = keras.models.load_model(tmp_path / "fine_tuning.keras")
    loss, accuracy = saved.evaluate(x[rest], y[rest] - 5, verbose=0)
    assert numbers(two, "val_accuracy", "val_loss")[-2:] == pytest.approx([accuracy, loss], **FOUR_DECIMALS)
    assert [layer.synchronized for layer in saved.layers[0].layers if hasattr(layer, "synchronized")] == [True, True]


def test_custom_loop(tmp_path):
    two, one = run_on_two_and_one("custom_loop.py", tmp_path, "--epochs", "2")
    names = ("loss", "norm of gradients")
    assert len(numbers(two, *names)) == 4
    assert numbers(two, *names) == pytest.approx(numbers(one, *names), **FOUR_DECIMALS)
    before, after = (float(share) for share in re.findall(r"are found: ([\d.]+)%", two))
    assert before < 10 < 50 < after
    assert keras.models.load_model(tmp_path / "encoder.keras").predict(np.zeros((1, 128)), verbose=0).shape == (1, 32)


# says how many models of the search are there each time that another one is made
WATCHED = """
import gc, runpy, sys, weakref
import multigpu
made, make = [], multigpu.multi_gpu_model
def watched(model, gpus):
    gc.collect()
    print("Models of trials before:", sum(model() is not None for model in made))
    parallel = make(model, gpus)
    made.append(weakref.ref(parallel))
    return parallel
multigpu.multi_gpu_model = watched
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_tuner(tmp_path):
    for package in ("keras_tuner", "tensorboard"):
        pytest.importorskip(package)
    arguments = [EXAMPLES / "tuner.py", "--epochs", "1"]
    two = run([*python(), "-c", WATCHED, *arguments, "--simulate", "2", "--trials", "2"], tmp_path)
    assert two.count("Training: 2 replicas on ") == 4  # to find the numbers, two trials, and the best model once more
    assert set(re.findall(r"Models of trials before: (\d)", two)) == {"0"}
    checkpoint = tmp_path / "tuner" / "digits" / "trial_0" / "checkpoint.weights.h5"
    written = checkpoint.stat().st_mtime_ns
    one = run([*python(), *arguments, "--gpus", "1", "--trials", "3"], tmp_path)  # goes on with the search
    assert "Search: Running Trial #3" in one
    assert "Search: Running Trial #2" not in one
    assert checkpoint.stat().st_mtime_ns == written
    x, y = images()
    test = shuffled()[1497:]
    best = keras.models.load_model(tmp_path / "tuner" / "best.keras", compile=False)
    accuracy = np.mean(np.argmax(best.predict(x[test], verbose=0), axis=1) == y[test])
    assert f": {accuracy:.2%} of 300 held-out digits are recognized\n" in one


def test_the_document_in_r(tmp_path):
    """Rendered from a copy, since the page and the model lie beside it."""
    (tmp_path / "training.Rmd").write_text((EXAMPLES / "training.Rmd").read_text())
    run(["Rscript", "-e", "rmarkdown::render('training.Rmd', params = list(epochs = 2), quiet = TRUE)"], tmp_path)
    page = (tmp_path / "training.html").read_text()
    for shown in ("## Epoch 2/2\n", "Parallel: 4 replicas on CPU:0, ", '<td align="right">10</td>', "data:image/png"):
        assert shown in page
    accuracy = float(re.search(r"## \$accuracy\n## \[1\] ([\d.]+)", page)[1])
    table = re.findall(r"^## +(?:setosa|versicolor|virginica) +(\d+) +(\d+) +(\d+)", page, flags=re.MULTILINE)
    assert accuracy == pytest.approx(np.trace(np.array(table, int)) / 30, abs=1e-6)
    assert "## [1] TRUE<" in page[page.index("load_model_hdf5") :]  # the model of the file predicts the same
    assert keras.models.load_model(tmp_path / "flowers.h5", compile=False).output_shape == (None, 3)


# in the place of SLURM's own: two tasks on this machine, with the variables of a step
SRUN = """#!/bin/sh
export SLURM_STEP_NODELIST=localhost SLURM_STEP_TASKS_PER_NODE=2 SLURM_STEP_NUM_TASKS=2
SLURM_PROCID=1 "$@" & second=$!
SLURM_PROCID=0 "$@" && wait $second
"""


def test_several_machines_by_slurm(tmp_path):
    """A stand-in for `srun` starts two tasks, and `sh` runs the batch file, whose lines for sbatch are comments to it.

    A real SLURM on one node ran both by hand: `sbatch --ntasks-per-node=2 --gpus-per-node=0 train.sbatch`.
    """
    for name, text in {"srun": SRUN, "python": f'#!/bin/sh\nexec {shlex.join(python())} "$@"\n'}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    port = free_ports(1)[0]
    names = ("loss", "val_loss", "accuracy", "val_accuracy")
    arguments = ["--epochs", "1", "--folder", tmp_path / "run"]
    two = run(
        ["sh", "train.sbatch", *arguments, "--simulate", "2"],
        EXAMPLES / "slurm",
        PATH=f"{tmp_path}:{os.environ['PATH']}",
        SLURM_STEP_RESV_PORTS=f"{port}-{port + 1}",
    )
    assert two.count("Training: 2 replicas on CPU:0, CPU:1; ") == 1  # that of the chief
    one = run([*python(), "train.py", *arguments], EXAMPLES / "slurm")
    assert numbers(two, *names) == pytest.approx(numbers(one, *names), **FOUR_DECIMALS)
    assert len(numbers(two, *names)) == len(names)


def test_the_batch_file_starts_one_task_on_each_machine():
    text = (EXAMPLES / "slurm" / "train.sbatch").read_text()
    options = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?$", text, flags=re.MULTILINE))
    assert options["ntasks-per-node"] == "1"
    assert {"nodes", "gpus-per-node", "exclusive", "requeue"} <= options.keys()


# The page -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", sorted(EXAMPLES.rglob("*.*")), ids=lambda path: path.name)
def test_an_example_is_on_the_page_and_says_what_it_shows(example):
    if example.name != "README.md":
        assert f"]({example.relative_to(EXAMPLES)})" in PAGE
    if example.suffix == ".py":
        assert re.match(r'""".{40}', example.read_text())


def commands() -> list[str]:
    """Those of the page's table, and those at the top of the scripts."""
    texts = [path.read_text() for path in EXAMPLES.rglob("*.*")]
    shown = re.findall(r"^(?:    |#   )((?:python|cd|sbatch) .*?)(?:  +#.*)?$", "\n".join(texts), flags=re.MULTILINE)
    return sorted({*shown, *re.findall(r"\| `(.*?)` \|", PAGE)})


@pytest.mark.parametrize("command", commands())
def test_a_command_names_files_and_options_that_are_there(command):
    *_, (script, options) = re.findall(r"([\w/-]+\.(?:py|R|Rmd|ipynb|sbatch))\b(.*)", command)
    (path,) = (folder / script for folder in (ROOT, EXAMPLES / "slurm") if (folder / script).exists())
    text = path.with_suffix(".py" if path.suffix == ".sbatch" else path.suffix).read_text()
    assert {f'"{option}"' for option in re.findall(r"--[\w-]+", options)} <= set(re.findall(r'"--[\w-]+"', text))


def test_the_page_has_a_command_for_each_of_its_rows():
    rows = [line for line in PAGE.splitlines() if line.startswith("| [")]
    assert len(commands()) > len(rows) == len(re.findall(r"\| `(.*?)` \|", PAGE))
