"""Settings that are made around a model: one of JAX that runs all op by op, meshes, and the command for Keras 2."""

import jax
import keras
import numpy as np
import pytest
from equality import random_rows
from keras import layers

import multigpu
from multigpu.cli.main import main

DATA = random_rows(30, 6), random_rows(30, 4)
set_mesh = getattr(jax, "set_mesh", None) or jax.sharding.use_mesh


def build():
    keras.utils.set_random_seed(1)
    inputs = keras.Input((6,))
    hidden = layers.Conv1D(8, 3, activation="tanh")(layers.Reshape((6, 1))(inputs))
    return keras.Model(inputs, layers.Dense(4)(layers.Flatten()(hidden)))


def trained(model, scope):
    model.compile("sgd", "mse")
    with scope:
        model.fit(*DATA, batch_size=11, shuffle=False, verbose=0)
        return model.evaluate(*DATA, verbose=0), model.predict(DATA[0], verbose=0), model.get_weights()


def meshes(kind, number):
    kinds = {"axis_types": (getattr(jax.sharding.AxisType, kind),)}
    return set_mesh(jax.make_mesh((number,), ("a",), devices=jax.devices()[:number], **kinds))


def assert_equal(one, other):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), one, other)


def test_where_jax_looks_for_a_nan_the_layer_is_named():
    logarithm = layers.Lambda(keras.ops.log, name="logarithm")
    template = keras.Sequential([keras.Input((6,)), layers.Dense(4), logarithm, layers.Dense(4)])
    parallel = multigpu.multi_gpu_model(template, 4)
    parallel.compile("sgd", "mse")
    before = template.get_weights()
    with jax.debug_nans(True):
        for work in (lambda: parallel.fit(*DATA, verbose=0), lambda: parallel.predict(DATA[0], verbose=0)):
            with pytest.raises(FloatingPointError, match=r"calling Lambda\.call\(\)(.|\n)*encountered in log"):
                work()
    for actual, expected in zip(template.get_weights(), before, strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_a_nan_of_the_compiled_step_alone_is_said_to_be_one():
    only_traced = layers.Lambda(lambda x: x * (float("nan") if isinstance(x, jax.core.Tracer) else 1.0))
    parallel = multigpu.multi_gpu_model(keras.Sequential([keras.Input((6,)), only_traced]), 2)
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match=r"a NaN or an infinite.* not have op by op"):
        parallel.predict(DATA[0], verbose=0)


def test_without_jit_everything_runs_op_by_op():
    parallel = multigpu.multi_gpu_model(build(), 4)
    assert_equal(trained(parallel, jax.disable_jit()), trained(build(), jax.disable_jit()))


def test_without_jit_after_a_fit_and_before_another():
    one, other = build(), build()
    parallel = multigpu.multi_gpu_model(other, 4)
    for model in (one, parallel):
        model.compile("sgd", "mse")
        for scope in (jax.disable_jit(False), jax.disable_jit(), jax.disable_jit(False)):
            with scope:
                model.fit(*DATA, batch_size=11, shuffle=False, verbose=0)
    assert_equal(one.get_weights(), other.get_weights())


def test_a_layer_that_reads_values_without_jit():
    class Sign(layers.Layer):
        def compute_output_shape(self, shape):
            return shape

        def call(self, x):
            return x if isinstance(x, keras.KerasTensor) or float(x.sum()) > 0 else -x

    model = keras.Sequential([keras.Input((6,)), Sign(), layers.Dense(4)])
    parallel = multigpu.multi_gpu_model(model, 4)
    with jax.disable_jit():
        assert_equal(parallel.predict(DATA[0], verbose=0), model.predict(DATA[0], verbose=0))


def test_a_loop_of_ones_own_without_jit():
    model = build()
    parallel = multigpu.multi_gpu_model(model, 4)

    def gradients(used):
        def loss(weights):
            return (used.stateless_call(weights, [], DATA[0][:7])[0] ** 2).mean()

        return jax.grad(loss)([variable.value for variable in model.trainable_variables])

    with jax.disable_jit():
        ours = gradients(parallel)
    multigpu.bring_home(parallel)
    assert_equal(ours, gradients(model))


@pytest.mark.parametrize(("kind", "number"), [("Auto", 2), ("Auto", 4), ("Explicit", 4), ("Explicit", 1)])
def test_a_mesh_that_is_set_around_a_verb(kind, number):
    parallel = multigpu.multi_gpu_model(build(), 4)
    with meshes(kind, number):
        direct = parallel(DATA[0][:7])
    np.testing.assert_allclose(direct, parallel.template(DATA[0][:7]), rtol=1e-4, atol=1e-5)
    assert_equal(trained(parallel, meshes(kind, number)), trained(build(), jax.disable_jit(False)))


def test_a_part_that_is_divided_by_hand_is_left_as_it_is():
    mesh = jax.make_mesh((4,), ("z",), axis_types=(jax.sharding.AxisType.Auto,))
    everywhere = jax.sharding.PartitionSpec(None, None)

    def convolved(x):
        kernel, how = np.full((3, 16, 16), 0.1, "float32"), ("NWC", "WIO", "NWC")
        return jax.lax.conv_general_dilated(x[None], kernel, (1,), "SAME", dimension_numbers=how)[0]

    class ByHand(layers.Layer):
        def call(self, x):
            return jax.shard_map(convolved, mesh=mesh, in_specs=everywhere, out_specs=everywhere, check_vma=False)(x)

    model = keras.Sequential([keras.Input((6,)), layers.Dense(16), ByHand(), layers.Dense(4)])
    parallel = multigpu.multi_gpu_model(model, 4)

    def gradients(used):
        def loss(weights):
            return (used.stateless_call(weights, [], DATA[0][:8])[0] ** 2).mean()

        return jax.jit(jax.grad(loss))([variable.value for variable in model.trainable_variables])

    assert_equal(gradients(parallel), gradients(model))


def test_scripts_for_keras_2_are_refused_in_one_line(tmp_path, capsys):
    (tmp_path / "script.py").touch()
    with pytest.raises(SystemExit) as ended:
        main(["run", str(tmp_path / "script.py")])
    assert ended.value.code == 2
    assert "error: Expected Keras to run on TensorFlow" in capsys.readouterr().err
