"""Private attributes of Keras and TensorFlow are named in one room, and are still what that room takes them for.

`embedded_r` has no other private attributes than those of rpy2.
"""

import ast
import contextlib
import functools
import gc
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from tensorflow.core.protobuf import config_pb2
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

import multigpu
from multigpu.engines.tensorflow.parallel import step_scope
from multigpu.engines.tensorflow.private_api import datasets, graphs, random_ops, runtime, trackable
from multigpu.engines.tensorflow.private_api.attached import logits_found, logits_of, mask_of, with_logits, with_mask
from multigpu.engines.tensorflow.private_api.gradients import custom_gradient
from multigpu.engines.tensorflow.private_api.graph_passes import optimized_once
from multigpu.engines.tensorflow.private_api.graphs import body_of, side_by_side
from multigpu.engines.tensorflow.private_api.variables import backing_variable, give_memory, is_seed
from multigpu.private_api import data_adapters, functional, hooks, losses, serialization
from multigpu.private_api import layers as of_layers
from multigpu.private_api.default_generator import as_default_generator, default_generator, is_default

PACKAGE = Path(multigpu.__file__).parent
TREES = {path: ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")}
OTHER_ROOMS = {path: tree for path, tree in TREES.items() if path.parent.name not in ("private_api", "embedded")}
PUBLIC_BY_CONVENTION = {"_asdict", "_exit", "_fields", "_replace"}  # of `os`, and of named tuples


def private_modules(tree):
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        yield from (name for name in names if name.startswith(("keras.src", "tensorflow.python")))


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


@functools.cache
def own_names():
    """Private names that the package itself defines."""
    return {*_defined()}


def _defined():
    for node in (node for tree in TREES.values() for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr if getattr(node.value, "id", None) == "self" else ""
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))
            keys = [target.slice for target in targets if isinstance(target, ast.Subscript)]  # of a `__dict__`
            yield from (key.value for key in keys if isinstance(getattr(key, "value", None), str))


def hooks_of_keras():
    modules = (hooks, trackable)
    kinds = [kind for of in modules for kind in vars(of).values() if getattr(kind, "__module__", "") == of.__name__]
    return {name for kind in kinds for name in vars(kind) if is_private(name)}


def foreign_names(tree):
    known = {*own_names(), *PUBLIC_BY_CONVENTION}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in known:
            yield node.attr
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "setattr", "replaced", "hasattr"):
            name = getattr(node.args[1], "value", "")
            if isinstance(name, str) and is_private(name) and name not in known:
                yield name


@pytest.mark.quick
def test_no_other_room_imports_a_private_module():
    assert {path.name: names for path, tree in OTHER_ROOMS.items() if (names := list(private_modules(tree)))} == {}


def test_no_other_room_names_a_private_attribute_that_is_not_its_own():
    assert {path.name: names for path, tree in OTHER_ROOMS.items() if (names := list(foreign_names(tree)))} == {}


def test_no_other_room_defines_a_hook_of_keras():
    defined = {
        node.name for tree in OTHER_ROOMS.values() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
    }
    assert defined & hooks_of_keras() == set()


def test_every_hook_is_still_one_that_keras_calls():
    functional_model = type(keras.Model(x := keras.Input((2,)), x))
    for name in hooks_of_keras():
        hook = getattr(functional_model, name)
        assert callable(hook) or isinstance(hook, property)


def test_the_backing_variable_is_read_and_gets_other_memory():
    variable = keras.Variable([1.0, 2.0])
    before, other = backing_variable(variable), tf.Variable([3.0, 4.0])
    assert isinstance(before, tf.Variable)
    give_memory(before, other.handle)
    np.testing.assert_array_equal(variable, [3, 4])
    assert backing_variable(variable) is before
    other.assign([5.0, 6.0])
    np.testing.assert_array_equal(variable, [5, 6])


def test_seeds_have_their_name():
    assert is_seed(keras.random.SeedGenerator(1).state)
    assert not is_seed(keras.Variable(1.0))


def test_each_thread_has_a_default_generator_of_its_own_unless_it_is_given_one():
    def drawn(generator):
        with as_default_generator(generator) if generator else contextlib.nullcontext():
            keras.random.normal((2,))
            return default_generator()

    keras.utils.set_random_seed(1)
    assert default_generator() is None
    here = drawn(None)
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(drawn, here).result() is here
        assert thread.submit(drawn, None).result() is not here
    assert default_generator() is here
    assert is_default(here.state)
    assert not is_default(keras.random.SeedGenerator(1).state)


def test_all_that_draws_from_a_seed_asks_the_functions_that_are_replaced():
    asked = []

    def noted(name, draw, /, *args, **kwargs):
        asked.append(name)
        return draw(*args, **kwargs)

    with random_ops.draws_replaced(noted, lambda: True):
        keras.random.dropout(np.ones((2, 3), "float32"), 0.5, seed=1)
        keras.random.randint((2,), 0, 9, seed=1)
        keras.random.truncated_normal((2,), seed=1)
        keras.random.normal((2,), seed=1)
        keras.random.categorical(np.zeros((2, 3), "float32"), 1, seed=1)
        keras.random.beta((2,), 1.0, 1.0, seed=1)
        keras.random.binomial((2,), 3.0, 0.5, seed=1)
        tf.nn.dropout(np.ones((2, 3), "float32"), 0.5)
        tf.random.uniform((2,), 0, 9, tf.int32, seed=1)
        tf.random.normal((2,))
        tf.random.truncated_normal((2,))
    keras.random.normal((2,), seed=1)
    assert asked == [
        *["stateless_random_uniform_v2", "stateless_random_uniform_int_v2", "stateless_truncated_normal_v2"],
        *["stateless_random_normal_v2", "stateless_multinomial"],
        *["stateless_random_gamma_v3", "stateless_random_gamma_v3", "stateless_random_binomial"],
        *["stateless_random_uniform_v2", "stateless_random_uniform_int_v2", "stateless_random_normal_v2"],
        "stateless_truncated_normal_v2",
    ]


def test_a_function_for_xla_is_known_while_it_is_traced():
    found = []
    for jit in (True, None):
        tf.function(lambda: found.append(graphs.within_xla()), jit_compile=jit, autograph=False)()
    assert found == [True, False]


@pytest.mark.quick
def test_masks_ride_on_tensors():
    assert mask_of(layers.Masking()(np.zeros((2, 3, 1)))).shape == (2, 3)
    pooled = layers.GlobalAveragePooling1D()(with_mask(tf.constant([[[1.0], [5.0]]]), tf.constant([[True, False]])))
    np.testing.assert_array_equal(pooled, [[1.0]])


def test_logits_ride_on_probabilities():
    logits = tf.constant([[0.0, 50.0]])
    assert logits_of(keras.activations.softmax(logits)) is logits
    assert logits_of(keras.ops.sigmoid(logits)) is logits
    found, attach = logits_found(keras.activations.softmax(logits))
    assert (found is logits, attach is with_logits) == (True, True)
    crossentropy = keras.losses.sparse_categorical_crossentropy(
        tf.constant([0]), with_logits(tf.constant([[0.0, 1.0]]), logits)
    )
    np.testing.assert_allclose(crossentropy, [50.0])


def test_logits_are_found_behind_an_op():
    @tf.function
    def crossentropies(logits):
        found, attach = logits_found(tf.nn.softmax(logits))
        assert found is logits
        assert logits_found(logits) is None
        return [
            keras.losses.sparse_categorical_crossentropy(tf.constant([0]), x)
            for x in (tf.nn.softmax(logits), attach(0, logits))
        ]

    np.testing.assert_allclose(crossentropies(tf.constant([[0.0, 50.0]])), [[50.0], [50.0]])
    assert logits_found(tf.nn.softmax(tf.constant([[0.0, 50.0]]))) is None  # where there are no ops


def test_sublayers_are_found_in_wrappers():
    model = keras.Sequential([keras.Input((3, 2)), layers.Bidirectional(layers.LSTM(2))])
    assert sum(isinstance(layer, layers.LSTM) for layer in of_layers.sublayers(model)) == 2


def test_compile_arguments_are_the_very_objects():
    model, loss = keras.Sequential([keras.Input((2,)), layers.Dense(1)]), keras.losses.MeanSquaredError()
    model.compile(loss=loss)
    assert of_layers.compile_arguments(model)["loss"] is loss
    of_layers.restore_compile_arguments(model, {"loss": "mae"})
    assert of_layers.compile_arguments(model)["loss"] == "mae"


def test_code_of_keras_is_told_from_that_of_others():
    class Own(layers.Layer):
        def call(self, x):
            return x

    class Renamed(layers.BatchNormalization):
        pass

    kinds = [layers.BatchNormalization(), Renamed(), keras.Sequential(), Own(), layers.Lambda(lambda x: x)]
    assert [of_layers.runs_code_of_keras(layer) for layer in kinds] == [True, True, True, False, False]


def test_batch_normalization_asks_for_its_moments():
    norm = layers.BatchNormalization(momentum=0.0)
    norm.build((None, 2))
    with of_layers.moments_from(norm, lambda x, mask: (tf.constant([7.0, 7.0]), tf.constant([1.0, 1.0]))):
        norm(np.zeros((3, 2)), training=True)
    np.testing.assert_array_equal(norm.moving_mean, [7, 7])


def test_clone_model_finds_the_input_of_a_sequential():
    sequential = keras.Sequential([keras.Input((2,)), layers.Dense(1)])
    other = keras.Model()
    of_layers.show_input(other, sequential)
    assert other._layers[0] is sequential._layers[0]


def test_a_backup_hands_on_its_epoch(tmp_path):
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1)])
    model.compile(loss="mse")
    of_layers.set_epoch_of_backup(model, 1)
    assert of_layers.epoch_of_backup(model) == 1
    assert model.fit(np.zeros((2, 2)), np.zeros((2, 1)), epochs=3, verbose=0).epoch == [1, 2]


def test_a_functional_model_runs_what_is_noted_on_a_node():
    inputs = keras.Input((2,))
    layer = layers.Dense(1)
    outputs = layer(inputs)

    def placed(x):
        return tf.ones((len(x), 1)) * 42

    functional.run_in_place_of(layer, placed)
    model = keras.Model(inputs, outputs)
    assert functional.run_instead(layer) == [placed]
    np.testing.assert_array_equal(model(np.zeros((3, 2))), [[42]] * 3)
    assert "42" not in model.to_json()


def test_a_configuration_of_keras_2_is_read():
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1, name="only")])
    config = {"class_name": "Sequential", "config": model.get_config()}
    read = serialization.model_from_config_of_keras2(json.loads(json.dumps(config)), {})
    assert [layer.name for layer in read.layers] == ["only"]


def test_every_name_in_a_configuration_is_asked_for():
    asked = []

    def find(of_keras, name, *args, **kwargs):
        asked.append(name)
        return of_keras(name, *args, **kwargs)

    with serialization.names_found_by(find, find, lambda: True):
        layers.deserialize(layers.serialize(layers.Dense(1)))
    assert {"Dense", "GlorotUniform", "Zeros"} <= set(asked)


def test_scopes_and_symbols_are_known():
    with keras.saving.custom_object_scope({"mine": int}):
        assert serialization.objects_in_scopes()["mine"] is int
    assert serialization.symbol("keras.layers.Dense") is layers.Dense
    assert issubclass(layers.Dense, serialization.KerasSaveable)
    with serialization.SafeModeScope(False):
        assert keras.saving.deserialize_keras_object  # within, Lambda may be read


@pytest.mark.quick
def test_datasets_tell_their_functions_and_inputs():
    dataset = tf.data.Dataset.range(4).map(lambda x: x + 1)
    assert len(datasets.graphs_of(dataset)) == 1
    assert len(datasets.inputs_of(dataset)) == 1
    halves = [list(datasets.auto_shard(dataset, 2, worker).as_numpy_iterator()) for worker in range(2)]
    assert sorted(halves[0] + halves[1]) == [1, 2, 3, 4]
    adapter = data_adapters.get_data_adapter(np.zeros((4, 1)), batch_size=2)
    assert isinstance(adapter, data_adapters.ArrayDataAdapter)
    assert issubclass(data_adapters.ArrayDataAdapter, data_adapters.DataAdapter)


def test_a_masked_loss_divides_by_what_the_mask_leaves():
    weights = losses.apply_mask(tf.ones((2, 2)), tf.constant([[True, False], [True, True]]), "float32", "sum")
    np.testing.assert_array_equal(weights, [[1, 0], [1, 1]])


def test_the_runtime_has_started_and_listens_to_nobody():
    tf.ones(1)
    assert runtime.devices_are_fixed()
    assert runtime.has_started()
    assert runtime.server() is None
    assert runtime.memory_limits()["CPU:0"] > 0
    assert runtime.config().SerializeToString() is not None


def test_a_session_has_its_settings():
    config = tf.compat.v1.ConfigProto(log_device_placement=True)
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        assert runtime.settings_of(session).log_device_placement


@pytest.mark.parametrize("name", ["configure_collective_ops", "enable_collective_ops", "abort_collective_ops"])
def test_the_runtime_can_be_told_of_workers(name):
    assert callable(getattr(runtime.context.context(), name))


def passes():
    serialized = runtime.context.context().function_call_options.config_proto_serialized
    return config_pb2.ConfigProto.FromString(serialized).graph_options.rewrite_options


@pytest.mark.parametrize("training", [False, True])
def test_a_step_is_optimized_in_one_round_and_nothing_else_is(training):
    before = passes()
    with optimized_once(training):
        assert passes().meta_optimizer_iterations == RewriterConfig.ONE
        assert passes().constant_folding == before.constant_folding  # otherwise a step has more copies
        for each in (passes().shape_optimization, passes().remapping):
            assert each == (RewriterConfig.OFF if training else RewriterConfig.DEFAULT)
    assert passes() == before


@pytest.mark.parametrize("verb", ["fit", "predict"])
def test_what_a_function_of_steps_is_for_decides_on_its_passes(monkeypatch, verb):
    told = []

    def noted(training):
        told.append(training)
        return optimized_once(training)

    monkeypatch.setattr(step_scope, "optimized_once", noted)
    parallel = multigpu.multi_gpu_model(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]), gpus=2)
    parallel.compile("sgd", "mse")
    getattr(parallel, verb)(np.zeros((4, 2)), *([np.zeros((4, 1))] if verb == "fit" else []), verbose=0)
    assert told == [verb == "fit"]


def test_a_step_is_optimized_by_the_passes_that_a_user_asks_for():
    tf.config.optimizer.set_experimental_options({"layout_optimizer": True})  # as it is by default
    with optimized_once(training=True):
        assert passes().layout_optimizer == RewriterConfig.ON


def test_a_gradient_leaves_with_its_graph():
    from tensorflow.python.framework import ops

    @custom_gradient
    def doubled(x):
        return 2 * x, lambda upstream: 2 * upstream

    before = set(ops.gradient_registry._registry)
    concrete = tf.function(doubled).get_concrete_function(tf.TensorSpec((), tf.float32))
    during = set(ops.gradient_registry._registry) - before
    assert concrete(tf.constant(3.0)) == 6
    assert len(during) == 1


def test_so_does_one_in_a_vectorized_call():
    from tensorflow.python.framework import ops

    def doubled(x):
        double = custom_gradient(lambda x: (2 * x, lambda upstream: 2 * upstream))
        vectorized = tf.function(lambda x: tf.vectorized_map(double, x))
        np.testing.assert_array_equal(vectorized(x), 2 * x)
        del vectorized
        gc.collect()
        return len(ops.gradient_registry._registry)

    counts = [doubled(tf.constant([1.0, 2.0])) for _ in range(4)]
    assert counts[1] == counts[-1]  # TensorFlow keeps one function, the last one


@pytest.mark.parametrize("scope", [contextlib.nullcontext, side_by_side])
def test_functions_with_side_effects_wait_for_each_other_unless_they_are_side_by_side(scope):
    checks = tf.function(lambda x: tf.debugging.check_numerics(x, ""), input_signature=[tf.TensorSpec([])])

    @tf.function
    def both():
        for _ in range(2):
            with scope():
                checks(1.0)

    ops = both.get_concrete_function().graph.get_operations()
    waits = [bool(op.control_inputs) for op in ops if op.type == "StatefulPartitionedCall"]
    assert waits == [False, scope is contextlib.nullcontext]


def test_a_function_that_is_called_in_a_trace_has_a_graph_with_shapes():
    @tf.function(autograph=False)
    def doubled(x):
        return x * 2

    @tf.function(autograph=False)
    def outer(x):
        return doubled(x)

    graph = outer.get_concrete_function(tf.TensorSpec((3, 4))).graph
    (call,) = (op for op in graph.get_operations() if op.type in ("PartitionedCall", "StatefulPartitionedCall"))
    (product,) = (op for op in body_of(call, "f").get_operations() if op.type == "Mul")
    assert product.outputs[0].shape == (3, 4)


def test_a_function_asks_in_each_call_for_what_it_has_captured_and_a_tape_follows_what_is_given():
    variable, factor = tf.Variable(3.0), tf.Variable(2.0)
    asked = []

    def give():
        asked.append(True)
        return tf.identity(factor * captured)

    captured = tf.constant(5.0)
    function = tf.function(lambda x: x * captured * variable)
    graphs.ask_in_each_call(function.get_concrete_function(tf.TensorSpec([])), {id(captured): give})
    for factor_now in (2.0, 4.0):
        factor.assign(factor_now)
        with tf.GradientTape() as tape:
            result = function(tf.constant(1.0))
        assert float(result) == 15 * factor_now
        np.testing.assert_array_equal(tape.gradient(result, [factor, variable]), [15, 5 * factor_now])
    assert len(asked) == 2
