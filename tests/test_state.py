"""What layers keep is what they keep on one device, whether they sum over rows, average them, or count calls."""

import keras
import pytest
from equality import assert_same_training, mean_squared, random_rows
from keras import ops

X, Y = random_rows(21, 3), random_rows(21, 2, seed=1)


class Keeps(keras.layers.Layer):
    """A layer that passes its inputs on and assigns a variable of its own."""

    def __init__(self, keep, dtype="float32", **variable):
        super().__init__()
        self.keep = keep
        self.state = self.add_weight(shape=(), dtype=dtype, initializer="zeros", trainable=False, **variable)

    def call(self, x):
        self.keep(self.state, x)
        return x


class Measures(keras.layers.Layer):
    """A layer with a metric of its own."""

    def __init__(self, measure):
        super().__init__()
        self.measure = measure
        self.metric = keras.metrics.Mean(name="size")

    def call(self, x):
        self.metric.update_state(self.measure(x))
        return x


def rows(x):
    return ops.shape(x)[0]


LAYERS = {
    "sum over rows": lambda: Keeps(lambda v, x: v.assign(v + ops.sum(x**2))),
    "sum that says so": lambda: Keeps(lambda v, x: v.assign(v + ops.sum(x**2)), aggregation="sum"),
    "moving mean": lambda: Keeps(lambda v, x: v.assign(0.9 * v + 0.1 * ops.mean(x**2))),
    "last mean": lambda: Keeps(lambda v, x: v.assign(ops.mean(x**2))),
    "number of calls": lambda: Keeps(lambda v, x: v.assign(v + 1), dtype="int32"),
    "number of rows": lambda: Keeps(lambda v, x: v.assign(v + rows(x)), dtype="int32"),
    "number of rows as float": lambda: Keeps(lambda v, x: v.assign(v + ops.cast(rows(x), "float32"))),
    "metric of rows": lambda: Measures(lambda x: ops.sum(x**2, axis=-1)),
    "metric of a mean": lambda: Measures(lambda x: ops.mean(x**2)),
}


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("gpus", [2, 8])
def test_state_of_a_layer_is_that_of_one_device(kind, gpus):
    def build():
        inputs = keras.Input((3,))
        x = LAYERS[kind]()(keras.layers.Dense(4, activation="tanh")(inputs))
        return keras.Model(inputs, keras.layers.Dense(2)(x))

    # 21 rows in batches of 8: the last has 5, so that on 8 devices three replicas stand by
    assert_same_training(build, X, Y, compile=mean_squared, gpus=gpus)
