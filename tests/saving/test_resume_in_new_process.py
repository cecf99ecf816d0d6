"""Training that is saved, and goes on in a new process on any number of devices, equals the uninterrupted run."""

import contextlib
import functools
import json
import signal
import subprocess
from pathlib import Path

import keras
import numpy as np
import pytest
from cases import soak
from equality import FLOAT32, adam_net, dense_data, dense_net
from forked_python import python
from stock_keras import run_python, run_without_package

import multigpu
from multigpu import multi_gpu_model, save_model_hdf5
from multigpu.engines.tensorflow.weights.place_locate import locate

OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.05),
}
ENDINGS = (".keras", ".h5", ".weights.h5")
ROUTES = ((1, 4, "adam"), (4, 1, "adam"), (4, 2, "sgd"))  # devices before and after
FIT = {"batch_size": 8, "shuffle": False, "verbose": 0}

HERE = Path(__file__).parent
PATH = [str(HERE), str(HERE.parent / "support"), str(Path(multigpu.__file__).parents[1])]

WITH_PACKAGE = f"""
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
sys.path[:0] = {PATH!r}
import keras, json
modules = (keras.saving, keras.models, keras.Model, keras.layers.Layer, keras.utils)
before = [dict(vars(module)) for module in modules]
import multigpu
unchanged = before == [dict(vars(module)) for module in modules]
import numpy as np
from test_resume_in_new_process import *
multigpu.simulate_gpus(8)
answer = resume(Path.cwd())
answer["Keras is as it was"] = unchanged
print("\\n" + json.dumps(answer))
"""

ON_ONE_DEVICE = """
answer = {}
with np.load("data.npz") as data:
    x, y = data["x"], data["y"]
for path in sorted(os.listdir()):
    if path.startswith("4-") and path.endswith(".keras"):
        model = keras.saving.load_model(path)
        model.fit(x, y, epochs=2, batch_size=8, shuffle=False, verbose=0)
        answer[path] = [weight.tolist() for weight in model.get_weights()]
"""


def on(model: keras.Model, num_devices: int) -> keras.Model:
    return multi_gpu_model(model, gpus=num_devices) if num_devices > 1 else model


def resume(folder: Path) -> dict[str, list]:
    """Runs in a new process: reads every file, trains on, and tells the weights."""
    load_trusted = functools.partial(multigpu.load_model_hdf5, safe_mode=False)
    answer = {}
    x, y = dense_data()
    for before, after, name in ROUTES:
        for ending in ENDINGS:
            path = folder / f"{before}-{name}{ending}"
            if ending == ".weights.h5":
                model = on(dense_net(optimizer=OPTIMIZERS[name]()), after)
                model.optimizer.build(model.trainable_variables)  # or Keras leaves its state out
                model.load_weights(path)
            else:
                load = keras.saving.load_model if ending == ".keras" else load_trusted
                model = on(load(path), after)
            model.fit(x, y, epochs=2, **FIT)
            answer[f"{path.name} on {after}"] = [weight.tolist() for weight in model.get_weights()]
    return answer


def test_two_epochs_and_two_more_in_a_new_process_are_four(tmp_path):
    x, y = dense_data()
    np.savez(tmp_path / "data.npz", x=x, y=y)
    expected = {}
    for name, make in OPTIMIZERS.items():
        keras.utils.set_random_seed(0)
        uninterrupted = dense_net(optimizer=make())
        start = uninterrupted.get_weights()
        uninterrupted.fit(x, y, epochs=4, **FIT)
        expected[name] = uninterrupted.get_weights()
        for num_devices in {before for before, _, of in ROUTES if of == name}:
            model = dense_net(optimizer=make())
            model.set_weights(start)
            model = on(model, num_devices)
            model.fit(x, y, epochs=2, **FIT)
            for ending in (".keras", ".weights.h5"):
                getattr(model, "save" if ending == ".keras" else "save_weights")(
                    tmp_path / f"{num_devices}-{name}{ending}"
                )
            save_model_hdf5(model, tmp_path / f"{num_devices}-{name}.h5")
    resumed = run_python(WITH_PACKAGE, tmp_path)
    assert resumed.pop("Keras is as it was") is True
    assert len(resumed) == len(ROUTES) * len(ENDINGS)
    resumed.update(run_without_package(ON_ONE_DEVICE, tmp_path))
    assert {"4-sgd.keras", "4-adam.keras"} <= resumed.keys()
    for path, weights in resumed.items():
        name = "sgd" if "-sgd" in path else "adam"
        for weight, value in zip(weights, expected[name], strict=True):
            np.testing.assert_allclose(weight, value, err_msg=path, **FLOAT32)


def test_the_template_saved_alone_carries_the_optimizer_of_the_parallel_model(tmp_path):
    template = adam_net()
    parallel = multi_gpu_model(template, gpus=2)
    parallel.compile(optimizer=keras.optimizers.Adam(0.05), loss="sparse_categorical_crossentropy")
    parallel.fit(*dense_data(), **FIT)
    template.save(tmp_path / "m.keras")
    again = keras.saving.load_model(tmp_path / "m.keras")
    for saved, variable in zip(again.optimizer.variables, parallel.optimizer.variables, strict=True):
        np.testing.assert_array_equal(saved, variable)


BACKED_UP = f"""
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
sys.path[:0] = {PATH!r}
import keras, json, signal
import multigpu
from equality import adam_net, dense_data
multigpu.simulate_gpus(2)

class Killed(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if len(sys.argv) > 1 and self.epoch == 2 and batch == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        seen.append(epoch)

seen = []
keras.utils.set_random_seed(0)
parallel = multigpu.multi_gpu_model(adam_net(), gpus=2)
backup = keras.callbacks.BackupAndRestore("backup")
parallel.fit(*dense_data(), epochs=4, batch_size=8, shuffle=False, verbose=0, callbacks=[backup, Killed()])
print(json.dumps([seen, [weight.tolist() for weight in parallel.get_weights()]]))
"""


def test_training_killed_under_backup_and_restore_goes_on_to_the_same_end(tmp_path):
    arguments = [*python(), "-c", BACKED_UP]
    killed = subprocess.run([*arguments, "killed"], cwd=tmp_path, capture_output=True, check=False, timeout=300)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-3000:]
    assert (tmp_path / "backup" / "latest.weights.h5").is_file()
    again = subprocess.run(arguments, cwd=tmp_path, capture_output=True, check=True, timeout=300)
    epochs, weights = json.loads(again.stdout.splitlines()[-1])
    assert epochs == [2, 3]
    keras.utils.set_random_seed(0)
    uninterrupted = adam_net()
    uninterrupted.fit(*dense_data(), epochs=4, **FIT)
    for weight, value in zip(weights, uninterrupted.get_weights(), strict=True):
        np.testing.assert_allclose(weight, value, **FLOAT32)


class Interrupted(keras.callbacks.Callback):
    """Ends a training by an error after so many steps."""

    def __init__(self, steps):
        super().__init__()
        self.steps_left = steps

    def on_train_batch_end(self, batch, logs=None):
        self.steps_left -= 1
        if self.steps_left == 0:
            raise InterruptedError


def interrupted_three_times(num_devices, save_freq, folder):
    """The weights in the end, and how many steps they have seen: four epochs of three steps are 12."""
    for steps in (4, 5, 2, 100):
        keras.utils.set_random_seed(0)
        model = on(adam_net(), num_devices)
        backup = keras.callbacks.BackupAndRestore(folder, save_freq=save_freq)
        with contextlib.suppress(InterruptedError):
            model.fit(*dense_data(), epochs=4, callbacks=[backup, Interrupted(steps)], **FIT)
    return model.get_weights(), int(model.optimizer.iterations.numpy())


@pytest.mark.parametrize(("save_freq", "steps"), [("epoch", 12), soak(2, 22)])
def test_backup_and_restore_is_what_keras_makes_of_it_which_is_exact_by_epochs_only(save_freq, steps, tmp_path):
    """With a number of steps, Keras restores weights of the middle of an epoch and begins that epoch, or 0, again."""
    one, seen = interrupted_three_times(1, save_freq, tmp_path / "one")
    several, seen_too = interrupted_three_times(3, save_freq, tmp_path / "several")
    assert seen == seen_too == steps
    for weight, value in zip(several, one, strict=True):
        np.testing.assert_allclose(weight, value, **FLOAT32)


@pytest.mark.parametrize("ending", [".weights.h5", ".keras"])
def test_owners_and_slots_stay_where_they_are_when_weights_are_loaded(ending, tmp_path):
    trained = multi_gpu_model(adam_net(), gpus=2)
    trained.fit(*dense_data(), **FIT)
    path = tmp_path / f"w{ending}"
    (trained.save if ending == ".keras" else trained.save_weights)(path)
    template = adam_net()
    parallel = multi_gpu_model(template, gpus=4)
    owners = [locate(weight) for weight in template.weights]
    assert len(set(owners)) > 1
    parallel.optimizer.build(template.trainable_variables)
    parallel.load_weights(path)
    assert [locate(weight) for weight in template.weights] == owners
    slots = parallel.optimizer.variables[2:]
    assert [locate(slot) for slot in slots] == [owner for owner in owners for _ in "mv"]
    for saved, variable in zip(trained.optimizer.variables, parallel.optimizer.variables, strict=True):
        np.testing.assert_array_equal(saved, variable)
