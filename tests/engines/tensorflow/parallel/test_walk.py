"""The functions between `fit` and a layer of the template are those that docs/architecture.md draws, and no others."""

import re
import sys
from pathlib import Path

import keras
import pytest
from equality import mean_squared, random_rows

from multigpu import multi_gpu_model

PAGE = Path(__file__).parents[4] / "docs" / "architecture.md"


class Asks(keras.layers.Layer):
    """Notes the functions of this package that call it in a step of `fit`."""

    def call(self, x):
        frame, names = sys._getframe(), []
        while frame is not None:
            if frame.f_globals["__name__"].startswith("multigpu."):
                names.append(frame.f_code.co_qualname.split(".<locals>")[0].rpartition(".")[-1])
            frame = frame.f_back
        self.names = names[::-1]
        return x


class Model(keras.Model):
    """No functional model: once a process has one with parts, calls of all functional models have one function more."""

    def __init__(self, layer):
        super().__init__()
        self.dense, self.layer = keras.layers.Dense(2), layer

    def call(self, x):
        return self.layer(self.dense(x))


@pytest.mark.quick
def test_eleven_functions_lie_between_fit_and_a_layer_as_the_page_draws_them(unchecked):
    layer, x = Asks(), random_rows(4, 3)
    template = Model(layer)
    template(x)
    parallel = multi_gpu_model(template, gpus=2)
    parallel.compile(**mean_squared())
    parallel.fit(x, random_rows(4, 2), verbose=0)
    drawing = re.search(
        r"^While the first step is traced.*?^```\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    functions = [name for line in drawing[1].splitlines() for name in re.split("  +", line.strip())[0].split(", ")]
    assert layer.names == [name.rpartition(".")[-1] for name in functions]
    assert len(functions) == 11
