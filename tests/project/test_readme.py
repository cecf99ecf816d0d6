"""README: what it says is what the code has, and it stays short."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from forked_python import python

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
README = (ROOT / "README.md").read_text()
# of the model in the diffs, a network that trains in seconds, with weights in double so that both sides round alike
SMALL = {
    "python": """
import sys
import keras, multigpu, numpy as np
multigpu.simulate_gpus(8)
keras.config.set_floatx("float64")
keras.utils.set_random_seed(0)
def small(weights, classes):
    normalized = [keras.layers.BatchNormalization(), keras.layers.Dense(classes, activation="softmax")]
    return keras.Sequential([keras.Input((4,)), *normalized])
keras.applications.Xception = small
x, y = np.random.default_rng(0).uniform(size=(512, 4)), np.eye(1000)[np.arange(512)]
""",
    "r": """
library(multigpu)
simulate_gpus(8)
keras$config$set_floatx("float64")
keras$utils$set_random_seed(0L)
application_xception <- function(weights, classes) {
  top <- keras$layers$Dense(as.integer(classes), activation = "softmax")
  keras_model_sequential(4, layers = list(keras$layers$BatchNormalization(), top))
}
x <- matrix(sin(1:2048), 512)
y <- diag(1000)[1:512, ]
""",
}
SAVED = {
    "python": "np.save('weights.npy', np.concatenate([w.ravel() for w in model.get_weights()]))",
    "r": 'reticulate::import("numpy")$save("weights.npy", unlist(model$get_weights()))',
}


def test_it_has_at_most_120_lines():
    assert len(README.splitlines()) <= 120


def test_figures_of_speed_are_those_of_the_benchmarks():
    results = (ROOT / "bench" / "results" / "RESULTS.md").read_text()
    table = README[README.index("## When it pays") : README.index("## Which engine")]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    assert len(lines) == 4
    assert set(lines) <= set(results.splitlines())
    speed_up = re.search(r"^\| conv net \| \d+ \| \d+ \| ([\d.]+) \| ", results, flags=re.MULTILINE)[1]
    assert f"two replicas train {speed_up} times as fast" in table


@pytest.mark.pages
@pytest.mark.parametrize("language", ["python", "r"])
def test_both_sides_of_a_diff_train_the_same_weights(language, tmp_path):
    blocks = re.findall(r"^```diff\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
    diff = blocks[language == "r"].splitlines()
    weights = []
    for sign in "-+":
        side = [line[1:] for line in diff if line[0] in f"{sign} "]
        folder = tmp_path / sign
        folder.mkdir()
        file = folder / f"side.{'R' if language == 'r' else 'py'}"
        file.write_text("\n".join([SMALL[language], *side, SAVED[language]]))
        library = os.path.join(sys.prefix, "r")  # where `make` installs the R package
        settings = {"CUDA_VISIBLE_DEVICES": "-1", "RETICULATE_PYTHON": sys.executable}
        environment = {"R_LIBS": library, **os.environ, **settings}
        command = [*(python() if language == "python" else ["Rscript"]), file]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        assert any(folder.glob("model.*"))
        weights.append(np.load(folder / "weights.npy"))
    np.testing.assert_allclose(weights[0], weights[1], rtol=1e-9, atol=1e-12)  # doubles, summed in another order
