"""Processes that save for ever, and are killed at random moments.

A server imports the package once. Every saver is forked from it before TensorFlow starts, so that many of them cost
seconds; what they run are the real functions. One reader, forked likewise, loads each file with the real loaders.
"""

import json
import subprocess
import sys
from pathlib import Path

import multigpu

PACKAGE = str(Path(multigpu.__file__).parents[1])

SERVER = f"""
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
sys.path.insert(0, {PACKAGE!r})
import json, random, signal, time, warnings
import keras, numpy as np
import multigpu

def model():
    multigpu.simulate_gpus(2)
    template = keras.Sequential([keras.Input((64,)), keras.layers.Dense(256), keras.layers.Dense(64)])
    template.compile(optimizer="adam", loss="mse")
    template.optimizer.build(template.trainable_variables)
    return multigpu.multi_gpu_model(template, gpus=2)

def fill(parallel, value):
    for variable in [*parallel.variables, *parallel.optimizer.variables]:
        variable.assign(np.full(variable.shape, value))

WAYS = [
    ("m.keras", lambda parallel: parallel.save("m.keras")),
    ("m.h5", lambda parallel: multigpu.save_model_hdf5(parallel, "m.h5")),
    ("w.h5", lambda parallel: multigpu.save_model_weights_hdf5(parallel, "w.h5")),
    ("m.weights.h5", lambda parallel: parallel.save_weights("m.weights.h5")),
]

def save_for_ever(name, save, ready):
    parallel = model()
    for number in range(10**9):
        fill(parallel, 1 + number % 2)
        save(parallel)
        if number == 1:
            os.write(ready, b"!")

def read_all(names, answers):
    parallel = model()
    template = parallel.template
    for name in iter(lambda: names.readline().strip(), ""):
        fill(parallel, 0)
        try:
            if name == "m.keras":
                found = keras.saving.load_model(name)
            elif name == "m.h5":
                found = multigpu.load_model_hdf5(name, safe_mode=False)  # of our own
            else:
                parallel.load_weights(name)
                found = template
            variables = list(found.weights) + (list(found.optimizer.variables) if name != "w.h5" else [])
            values = sorted({{float(value) for variable in variables for value in np.unique(variable.numpy())}})
            answers.write(json.dumps(values) + "\\n")
        except Exception as error:
            answers.write(json.dumps(repr(error)) + "\\n")
        answers.flush()

def fork(work, *arguments):
    child = os.fork()
    if child:
        return child
    try:
        work(*arguments)
    finally:
        os._exit(1)

(names_out, names_in), (answers_out, answers_in) = os.pipe(), os.pipe()
reader = fork(lambda: read_all(os.fdopen(names_out), os.fdopen(answers_in, "w")))
names, answers = os.fdopen(names_in, "w"), os.fdopen(answers_out)
moments = random.Random(int(sys.argv[2]))
results = []
for kill in range(int(sys.argv[1])):
    name, save = WAYS[kill % len(WAYS)]
    ready, tell = os.pipe()
    saver = fork(save_for_ever, name, save, tell)
    os.close(tell)
    assert os.read(ready, 1) == b"!"
    os.close(ready)
    time.sleep(moments.uniform(0, 0.1))
    os.kill(saver, signal.SIGKILL)
    os.waitpid(saver, 0)
    left = [file for file in os.listdir() if file.startswith(".saving-")]
    names.write(name + "\\n")
    names.flush()
    results.append([name, json.loads(answers.readline()), len(left)])
os.kill(reader, signal.SIGKILL)
saver = fork(lambda: WAYS[0][1](model()))
os.waitpid(saver, 0)
print(json.dumps([results, sorted(os.listdir())]))
"""


def killed_saves(folder: Path, kills: int, seed: int = 0) -> tuple[list[tuple[str, list[float] | str, int]], list[str]]:
    """Kills processes that save files of ones and of twos by turns, one after the other.

    Returns:
        For each kill, the file, the values found in it or the error of reading it, and how many hidden folders were
        there; and all files after one more save that was not killed.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SERVER, str(kills), str(seed)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-3000:])
    results, files = json.loads(done.stdout.splitlines()[-1])
    return results, files
