"""A template's class may define anew whatever a model has: the parallel model answers with it, as on one device."""

import functools
import json

import keras
import numpy as np
import pytest
from keras import layers, ops

from multigpu import multi_gpu_model
from multigpu.private_api.class_code import STEPS, VERBS, is_stock, overridden

ROWS = 7
X = np.random.default_rng(0).normal(size=(ROWS, 5)).astype("float32")
Y = np.random.default_rng(1).normal(size=(ROWS, 1)).astype("float32")
QUIET = {"verbose": 0}
SYMBOLIC = keras.KerasTensor((None, 5))


def read(*names):
    """Uses of properties, by their names."""
    return {name: lambda model, path, name=name: getattr(model, name) for name in names}


# Everything public that `keras.Model` has, and a use of it. Traces are made once: `call` comes first.
TABLE = {
    "call": lambda model, path: model(X),
    # verbs: the class's own runs, and the `super()` in which it ends is the parallel model's
    "fit": lambda model, path: model.fit(X, Y, batch_size=4, validation_data=(X, Y), **QUIET).history,
    "evaluate": lambda model, path: model.evaluate(X, Y, batch_size=4, **QUIET),
    "predict": lambda model, path: model.predict(X, batch_size=4, **QUIET),
    "train_on_batch": lambda model, path: model.train_on_batch(X, Y),
    "test_on_batch": lambda model, path: model.test_on_batch(X, Y),
    "predict_on_batch": lambda model, path: model.predict_on_batch(X),
    "make_train_function": lambda model, path: [model.make_train_function(force=True), model.train_on_batch(X, Y)],
    "make_test_function": lambda model, path: [model.make_test_function(force=True), model.test_on_batch(X, Y)],
    "make_predict_function": lambda model, path: [model.make_predict_function(force=True), model.predict_on_batch(X)],
    # what a step consists of
    "train_step": lambda model, path: model.train_on_batch(X, Y),
    "test_step": lambda model, path: model.test_on_batch(X, Y),
    "predict_step": lambda model, path: model.predict_on_batch(X),
    "compute_loss": lambda model, path: model.compute_loss(X, Y, Y + 1),
    "compute_metrics": lambda model, path: model.compute_metrics(X, Y, Y + 1),
    "get_metrics_result": lambda model, path: model.get_metrics_result(),
    "reset_metrics": lambda model, path: model.reset_metrics(),
    **read("metrics", "metrics_names", "metrics_variables", "compiled_metrics", "loss"),
    "compiled_loss": lambda model, path: model.compiled_loss(Y, Y + 1),
    "losses": lambda model, path: [model(X), model.losses][1],
    "add_loss": lambda model, path: model.add_loss(ops.ones(())),
    "stateless_compute_loss": lambda model, path: model.stateless_compute_loss(
        *stateless(model), [], x=X, y=Y, y_pred=Y + 1
    )[0],
    # a call
    "stateless_call": lambda model, path: model.stateless_call(*stateless(model), X),
    "symbolic_call": lambda model, path: model.symbolic_call(SYMBOLIC),
    "compute_mask": lambda model, path: model.compute_mask(X, None),
    "compute_output_shape": lambda model, path: model.compute_output_shape((None, 5)),
    "compute_output_spec": lambda model, path: model.compute_output_spec(SYMBOLIC),
    **read("input", "output", "input_spec", "supports_masking"),
    "rematerialized_call": lambda model, path: model.rematerialized_call(ops.tanh, X)(X),
    # weights
    **read("weights", "variables", "trainable", "trainable_weights", "trainable_variables"),
    **read("non_trainable_weights", "non_trainable_variables"),
    "get_weights": lambda model, path: model.get_weights(),
    "set_weights": lambda model, path: model.set_weights(model.get_weights()),
    "count_params": lambda model, path: model.count_params(),
    "add_weight": lambda model, path: model.add_weight(shape=()),
    "add_variable": lambda model, path: model.add_variable(shape=(), initializer="zeros"),
    "add_metric": lambda model, path: model.add_metric(),
    "get_state_tree": lambda model, path: model.get_state_tree(),
    "set_state_tree": lambda model, path: model.set_state_tree(model.get_state_tree()),
    # parts and properties
    **read("dtype", "compute_dtype", "input_dtype", "variable_dtype", "quantization_mode"),
    **read("run_eagerly", "jit_compile", "distribute_strategy"),
    "layers": lambda model, path: [layer.name for layer in model.layers],
    "get_layer": lambda model, path: model.get_layer(index=0).name,
    "path": lambda model, path: type(model.path).__name__,
    "dtype_policy": lambda model, path: [setattr(model, "dtype_policy", "bfloat16"), model.dtype_policy.name],
    "distribute_reduction_method": lambda model, path: setattr(model, "distribute_reduction_method", "auto"),
    # made, described and kept
    "compile": lambda model, path: model.compile("sgd", "mse", metrics=["mae"], jit_compile=False),
    "compile_from_config": lambda model, path: model.compile_from_config(model.get_compile_config()),
    "get_compile_config": lambda model, path: model.get_compile_config()["loss"],
    "build": lambda model, path: model.build((None, 5)),
    "build_from_config": lambda model, path: model.build_from_config({"input_shape": (None, 5)}),
    "get_build_config": lambda model, path: model.get_build_config(),
    "get_config": lambda model, path: model.get_config(),
    "from_config": lambda model, path: type(model.from_config(model.get_config())).__name__,
    "to_json": lambda model, path: json.loads(model.to_json())["config"],
    "summary": lambda model, path: model.summary(print_fn=lambda *_, **__: None),
    "save": lambda model, path: model.save(path / "model.keras"),
    "save_weights": lambda model, path: model.save_weights(path / "model.weights.h5"),
    "load_weights": lambda model, path: model.load_weights(path / "model.weights.h5"),
    "save_own_variables": lambda model, path: model.save_own_variables({}),
    "load_own_variables": lambda model, path: model.load_own_variables({}),
    "export": lambda model, path: model.export(path / "exported", verbose=False),
    "get_quantization_layer_structure": lambda model, path: model.get_quantization_layer_structure("gptq"),
    "quantized_build": lambda model, path: model.quantized_build((None, 5), "int8"),
    "quantized_call": lambda model, path: model.quantized_call(X),
    "quantize": lambda model, path: [start_again(model), model.quantize("int8"), model.predict_on_batch(X)],
}


def stateless(model):
    """Values of its variables, other than the ones that it has."""
    return [2 * weight.value for weight in model.trainable_variables], []


def start_again(model):
    """Give the model the same weights as its twin, to the last bit: near a half, int8 would round them apart."""
    values = np.random.default_rng(2)
    model.set_weights([values.normal(size=weight.shape) for weight in model.weights])


def public():
    return {name for name in dir(keras.Model) if not name.startswith("_")}


def test_the_table_knows_all_that_a_model_of_keras_has():
    assert public() == set(TABLE)


def test_no_class_of_keras_has_verbs_of_its_own():
    x = keras.Input((5,))
    for kind in (keras.Sequential, type(keras.Model(x, layers.Dense(1)(x)))):
        assert is_stock(kind)
        assert all(getattr(kind, name) is getattr(keras.Model, name) for name in (*VERBS, *STEPS))


def test_names_of_ones_own_are_none_of_a_models():
    class Named(keras.Model):
        limit = 3

        def __init__(self):
            super().__init__()

        def __len__(self):
            return self.limit

        def _call_twice(self, x):
            return self.call(self.call(x))

        def call_once(self, x):
            return self.call(x)

        def call(self, x):
            return x

    assert overridden(Named) == ["__len__", "call"]


# A class that defines everything anew, and notes what of it runs ------------------------------------------------------


class Net(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**{"name": "net", **kwargs})
        self.hidden, self.top = layers.Dense(4, activation="tanh", name="hidden"), layers.Dense(1, name="top")

    def call(self, x):
        return self.top(self.hidden(x))


ran = set()


def noting(name):
    """What Keras has under a name, which notes that it ran."""
    static = next(vars(each)[name] for each in keras.Model.__mro__ if name in vars(each))
    if isinstance(static, property):
        return property(*(function and _noting(name, function) for function in (static.fget, static.fset)))
    if isinstance(static, classmethod):
        return classmethod(_noting(name, static.__func__))
    return _noting(name, vars(Net).get(name, static))


def _noting(name, function):
    @functools.wraps(function)
    def noted(*args, **kwargs):
        ran.add(name)
        return function(*args, **kwargs)

    return noted


Everything = type("Everything", (Net,), {name: noting(name) for name in public()})


def build():
    model = Everything()
    model(X)
    model.compile("sgd", "mse", metrics=["mae"], jit_compile=False)
    return model


def outcome(name, model, path):
    """What a use gives, or which error, in numbers and words; and whether the class's own ran."""
    ran.clear()
    try:
        result = TABLE[name](model, path)
    except Exception as error:
        result = type(error).__name__
    return [plain(leaf) for leaf in keras.tree.flatten(result)], name in ran


def plain(leaf):
    if isinstance(leaf, str | bool | type(None)):
        return leaf
    if (hasattr(leaf, "shape") and not isinstance(leaf, keras.KerasTensor)) or isinstance(leaf, int | float):
        return np.asarray(leaf)
    return getattr(leaf, "shape", type(leaf).__name__)


@pytest.fixture(scope="module")
def twins():
    one, template = build(), build()
    template.set_weights(one.get_weights())
    return one, multi_gpu_model(template, gpus=3)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("own")


@pytest.mark.filterwarnings("ignore")  # of Keras: of old names, and on all that it is told twice
@pytest.mark.parametrize("name", TABLE)
def test_what_the_class_defines_anew_is_what_runs(name, twins, path):
    (expected, on_one), (found, in_parallel) = [outcome(name, model, path) for model in twins]
    assert in_parallel == on_one
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        if isinstance(other, np.ndarray):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        else:
            assert one == other
