"""The claim that most tests make: a parallel model has the numbers of its twin, a plain model on one device."""

import functools
import math
import os
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from multigpu import multi_gpu_model

FLOAT32 = {"rtol": 1e-4, "atol": 1e-5}  # of trained weights
ONE_CALL = {"rtol": 1e-5, "atol": 1e-6}  # of outputs: one near 0 is off by a rounding of the terms that cancel in it
COUNTS = [3, 8]  # devices, where more of them do something else; `make soak` has 2 to 8 everywhere
XLA = {"as Keras does": {}, "on": {"jit_compile": True}, "off": {"jit_compile": False}}
IN_GRAPHS = "MULTIGPU_GRAPHS" in os.environ  # one device as Keras has it by itself, for `make soak`
COMPILED = XLA[os.environ.get("MULTIGPU_XLA", "as Keras does")]  # what twins are compiled with that say nothing of XLA
ON_JAX = keras.backend.backend() == "jax"
Numbers = dict[str, np.ndarray]


def assert_same_training(
    build: Callable[[], keras.Model],
    x: Any,
    y: Any,
    *,
    compile: Callable[[], dict[str, Any]],
    gpus: int = 3,
    tolerance: dict[str, float] = FLOAT32,
    **fit: Any,
) -> keras.Model:
    """Trains twins, one plain on one device and one in parallel, on the same global batches, and compares all numbers.

    Args:
        build: makes the template; called once per twin, under the same seed.
        x: inputs, as `fit` takes them.
        y: targets, as `fit` takes them.
        compile: makes the arguments of `compile`; called once per twin, since an optimizer serves one model.
        gpus: number of devices of the parallel twin.
        tolerance: `rtol` and `atol`.
        fit: further arguments of `train` and of `fit`.

    Returns:
        The trained template of the parallel twin.
    """
    _, one_device = train(build, x, y, compile=compile, gpus=None, **fit)
    template, parallel = train(build, x, y, compile=compile, gpus=gpus, **fit)
    assert_same_numbers(parallel, one_device, **tolerance)
    return template


def train(
    build: Callable[[], keras.Model],
    x: Any,
    y: Any,
    *,
    compile: Callable[[], dict[str, Any]],
    gpus: int | None,
    cpu_merge: bool = True,
    cpu_relocation: bool = False,
    batch_size: int = 8,
    epochs: int = 1,
    sample_weight: Any = None,
    only_fit: bool = False,
    as_arrays: bool = False,
    **fit: Any,
) -> tuple[keras.Model, Numbers]:
    """The template after at least three steps of `fit`, and every number that the training gave.

    With `only_fit` it neither evaluates nor predicts: for what makes a difference to the steps alone. Unless they are
    to come `as_arrays`, Keras on TensorFlow gets batches: it takes as long to deal arrays as to trace a small model.
    """
    assert epochs * math.ceil(count_rows(x) / batch_size) >= 3
    keras.utils.clear_session(free_memory=False)  # twins have the same names
    keras.utils.set_random_seed(0)  # and the same weights
    template = build()
    model = multi_gpu_model(template, gpus, cpu_merge, cpu_relocation) if gpus else on_one_device(template)
    model.compile(**{**COMPILED, **compile()})
    before = template.get_weights()
    data = {"x": x, "y": y, "sample_weight": sample_weight, "batch_size": batch_size}
    all_rows = {"x": x, "batch_size": count_rows(x)}
    if not as_arrays and not ON_JAX:
        data = {"x": batches(batch_size, x, y, sample_weight)}
        all_rows = {"x": batches(count_rows(x), x)}
    history = model.fit(**data, epochs=epochs, shuffle=False, verbose=0, **fit)
    assert any(not np.array_equal(new, old) for new, old in zip(template.get_weights(), before, strict=True))
    numbers = {
        **_named("history", history.history),
        **_named("variable", _values(template.variables)),
        **_named("optimizer", _values(model.optimizer.variables)),
    }
    if only_fit:
        return template, numbers
    numbers |= {
        **_named("evaluate", model.evaluate(**data, verbose=0, return_dict=True)),
        **_named("predict", model.predict(**all_rows, verbose=0)),
        **_named("variable after evaluate and predict", _values(template.variables)),
    }
    return template, numbers


def assert_same_numbers(actual: Numbers, expected: Numbers, equal_nan: bool = False, **tolerance: float) -> None:
    """Compares numbers by name: the same names, types and shapes, and values within the tolerance."""
    assert actual.keys() == expected.keys(), f"only on one side: {actual.keys() ^ expected.keys()}"
    for name, number in expected.items():
        assert (actual[name].dtype, actual[name].shape) == (number.dtype, number.shape), name
        np.testing.assert_allclose(actual[name], number, err_msg=name, equal_nan=equal_nan, **tolerance)


def batches(batch_size: int, *data: Any) -> Any:
    """A dataset of batches of inputs, targets and weights, as Keras makes them of arrays."""
    import tensorflow as tf

    given = keras.tree.lists_to_tuples(tuple(part for part in data if part is not None))
    as_given = tf.data.Options()
    as_given.experimental_optimization.apply_default_optimizations = False  # Keras turns them off, too
    return tf.data.Dataset.from_tensor_slices(given).batch(batch_size).with_options(as_given)


def count_rows(x: Any) -> int:
    """Rows of the arrays of one `fit`."""
    return keras.tree.flatten(x)[0].shape[0]


def on_one_device(model: keras.Model) -> keras.Model:
    """The plain model, whose steps run eagerly: that takes a third of the time of a short training in a graph.

    On JAX it is compiled, as its users have it, but each of its losses counts once: see `fresh_losses`.

    In a graph runs what XLA compiles, what is compiled with `run_eagerly=False`, and a model with a loss for each
    output: of these Keras shows a mean over rows eagerly, and one over batches in a graph.
    """
    if ON_JAX:
        from multigpu.engines.jax.private_api.losses import fresh_losses

        @fresh_losses()
        def stateless_call(*args: Any, **kwargs: Any) -> Any:
            return type(model).stateless_call(model, *args, **kwargs)

        vars(model)["stateless_call"] = stateless_call
        return model
    compile = model.compile

    def choose(loss: Any = None, run_eagerly: bool | None = None, **_: Any) -> None:
        in_a_graph = model.jit_compile or isinstance(loss, dict | list | tuple) or IN_GRAPHS
        model.run_eagerly = not in_a_graph if run_eagerly is None else run_eagerly

    @functools.wraps(compile)
    def compile_and_choose(*args: Any, **kwargs: Any) -> None:
        compile(*args, **kwargs)
        choose(**kwargs)

    model.compile = compile_and_choose
    if model.compiled and not model.run_eagerly:
        choose()
    return model


def _values(variables: list[keras.Variable]) -> dict[str, np.ndarray]:
    return {f"{position} {variable.path}": variable.numpy() for position, variable in enumerate(variables)}


def _named(prefix: str, structure: Any) -> Numbers:
    """Leaves of a structure, by where they come from."""
    leaves = keras.tree.flatten_with_path(structure)
    return {" ".join([prefix, *map(str, path)]): np.asarray(leaf) for path, leaf in leaves}


# Twins whose calls are compared one by one ----------------------------------------------------------------------------


def make_twins(build: Callable[[], keras.Model], gpus: object = 3, **kwargs: Any) -> tuple[keras.Model, keras.Model]:
    """One model as it is, and one spread over devices, with the same weights; both compiled if `build` compiles."""
    one, template = build(), build()
    template.set_weights(one.get_weights())
    return on_one_device(one), multi_gpu_model(template, gpus=gpus, **kwargs)


def assert_same(actual: Any, expected: Any) -> None:
    """Nested structures of numbers are equal to float tolerance."""
    keras.tree.assert_same_structure(actual, expected)
    for a, e in zip(keras.tree.flatten(actual), keras.tree.flatten(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(e), **FLOAT32)


def assert_same_weights(model: keras.Model, other: keras.Model) -> None:
    """Both models have the same weights, moving averages included, and not one of them is a NaN."""
    assert_same(model.get_weights(), other.get_weights())
    assert all(np.isfinite(weight).all() for weight in model.get_weights())


# What the tests train on ----------------------------------------------------------------------------------------------


def random_rows(*shape: int, seed: int = 0) -> np.ndarray:
    """Floats between -1 and 1."""
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype("float32")


def random_ids(*shape: int, below: int, seed: int = 0) -> np.ndarray:
    """Whole numbers from 0 to `below - 1`."""
    return np.random.default_rng(seed).integers(0, below, shape).astype("int32")


class Chain(keras.Model):
    """One layer after the other, in a class of somebody's own, which takes ragged and sparse inputs too."""

    def __init__(self, *parts: keras.Layer) -> None:
        super().__init__()
        self.parts = list(parts)

    def call(self, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        return x


def dense_model() -> keras.Model:
    """The smallest network with a hidden layer: 3 numbers → 2 numbers."""
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(2)])


def mean_squared() -> dict[str, Any]:
    """Arguments of `compile` that suit most models."""
    return {"optimizer": keras.optimizers.SGD(0.1, momentum=0.9), "loss": "mse"}


def measured() -> dict[str, Any]:
    """The same with a metric."""
    return {**mean_squared(), "metrics": ["mae"]}


def dense_net(**compile_kwargs: Any) -> keras.Model:
    """A small compiled classifier of 5 features into 3 classes."""
    model = keras.Sequential(
        [keras.Input((5,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3, activation="softmax")]
    )
    defaults = {"optimizer": keras.optimizers.SGD(0.1, momentum=0.9), "loss": "sparse_categorical_crossentropy"}
    model.compile(**{**defaults, "metrics": ["accuracy"], **compile_kwargs})
    return model


def adam_net(**compile_kwargs: Any) -> keras.Model:
    """`dense_net`, whose optimizer keeps two numbers for each of the weights."""
    return dense_net(**{"optimizer": keras.optimizers.Adam(0.05), **compile_kwargs})


def dense_data(num_rows: int = 18) -> tuple[np.ndarray, np.ndarray]:
    """Features and classes for `dense_net`; 18 rows in batches of 8 leave a last batch of 2."""
    random = np.random.default_rng(0)
    return random.normal(size=(num_rows, 5)).astype("float32"), random.integers(0, 3, num_rows)
