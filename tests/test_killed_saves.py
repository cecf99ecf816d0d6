"""Killed at random moments while it saves, a process leaves the old file or the new one, whole.

A server imports the package once. Every saver is forked from it before TensorFlow starts, so that sixty of them cost
seconds; what they run are the real functions. One reader, forked likewise, loads each file with the real loaders.
"""

import json
import subprocess
import sys
from pathlib import Path

import multigpu

HERE = [str(Path(__file__).parent), str(Path(multigpu.__file__).parents[1])]
KILLS = 60

SERVER = f"""
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
sys.path[:0] = {HERE!r}
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
                found = multigpu.load_model_hdf5(name, safe_mode=False)
            else:
                parallel.load_weights(name)
                found = template
            variables = list(found.weights) + (list(found.optimizer.variables) if name != "w.h5" else [])
            values = sorted({{float(value) for variable in variables for value in np.unique(np.array(variable))}})
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
moments = random.Random(0)
results = []
for kill in range({KILLS}):
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
    for file in left:
        os.remove(file)
    names.write(name + "\\n")
    names.flush()
    results.append([name, json.loads(answers.readline()), len(left)])
os.kill(reader, signal.SIGKILL)
print(json.dumps(results))
"""


def test_sixty_killed_saves_leave_the_old_file_or_the_new_one(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SERVER], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads(done.stdout.splitlines()[-1])
    assert len(results) == KILLS
    for name, values, _ in results:
        assert values in ([1.0], [2.0]), (name, values)  # all weights and slots of one save, none of the other
    killed_in_a_save = sum(left for _, _, left in results)
    assert killed_in_a_save >= KILLS // 4  # the moments were not all between two saves
