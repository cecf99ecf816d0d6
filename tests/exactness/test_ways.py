"""Trainings of many kinds, in each way in which steps run, on even and uneven numbers of devices."""

import itertools

import pytest
from cases import some
from equality import COUNTS, ON_JAX, assert_same_training
from training_cases import TRAININGS

WAYS = {  # what `compile()` takes, and what `multi_gpu_model()` takes
    "as Keras does": ({}, {}),
    "eagerly": ({"run_eagerly": True}, {}),
    "without XLA": ({"jit_compile": False}, {}),
    "two steps in one": ({"steps_per_execution": 2}, {}),
    "weights on the CPU": ({}, {"cpu_relocation": True}),
    "outputs on a GPU": ({}, {"cpu_merge": False}),
}
ALL = list(itertools.product(TRAININGS, WAYS, COUNTS))
# each training once, with the next way and number of devices. On TensorFlow several workers train all of them, too
ONCE = [(name, [*WAYS][(place + place // 6) % 6], COUNTS[place // 6 % 2]) for place, name in enumerate(TRAININGS)]


@pytest.mark.parametrize(("name", "way", "gpus"), some(ALL, ONCE if ON_JAX else ONCE[1::4]))
def test_trainings_are_those_of_one_device(name, way, gpus):
    compiled, spread = WAYS[way]
    given = TRAININGS[name]

    def compile():
        return {**given["compile"](), **compiled}

    assert_same_training(**{**given, "compile": compile}, **spread, gpus=gpus, as_arrays=True)
