"""Use a template alone for a while: on one device, compiled as it would be alone."""

from collections.abc import Iterator
from contextlib import contextmanager

import keras
import tensorflow as tf

from multigpu.engines.tensorflow.weights.home_parts import home_devices
from multigpu.engines.tensorflow.weights.move import move
from multigpu.engines.tensorflow.weights.place_locate import locate
from multigpu.plan.plan import Plan
from multigpu.private_api.layers import variables_of, wants_jit


@contextmanager
def on_one_device(template: keras.Model, plan: Plan) -> Iterator[None]:
    """Move the template to the first device, compiled as it would be alone, and back after a `with` block.

    A template with parts moves to the devices that it names.
    """
    homes = home_devices(template) if plan.groups else {}
    first = plan.parts[0] if plan.groups else plan.devices[0]
    variables = variables_of(template)
    places = [(variable, locate(variable)) for variable in variables]
    jit_compile = template.jit_compile
    move([(variable, homes.get(id(variable), first)) for variable in variables])
    template.jit_compile, template.train_function = wants_jit(template), None
    try:
        with tf.device(first):
            yield
    finally:
        move(places)
        template.jit_compile, template.train_function = jit_compile, None
