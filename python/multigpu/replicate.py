"""The one function of this package."""

import keras

from multigpu.devices import visible_devices
from multigpu.parallel import ParallelModel
from multigpu.place_locate import place
from multigpu.plan import make_plan
from multigpu.template import check_backend, check_template, sublayers


def multi_gpu_model(
    model: keras.Model, gpus: object = None, cpu_merge: bool = True, cpu_relocation: bool = False
) -> ParallelModel:
    check_backend()
    plan = make_plan(gpus, cpu_merge, cpu_relocation, visible_devices())
    check_template(model)
    if cpu_relocation and place(model.variables, "CPU:0"):
        _forget_functions(model)
    return ParallelModel(model, plan)


def _forget_functions(model: keras.Model) -> None:
    """Drops functions that were traced with the weights elsewhere; Keras traces them anew when they are needed."""
    for part in [model, *sublayers(model)]:
        if isinstance(part, keras.Model):
            part.train_function = part.test_function = part.predict_function = None
