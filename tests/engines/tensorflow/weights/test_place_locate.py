"""The law of place and locate: weights are found where they were put, and nothing but their memory has changed."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import soak
from equality import assert_same, assert_same_weights, dense_data, dense_net
from keras import layers

from multigpu import multi_gpu_model
from multigpu.engines.tensorflow.weights.place_locate import locate, memory, place, read


def build_away(build=dense_net):
    """A model whose weights live on a device that is not the default one."""
    with tf.device("CPU:3"):
        return build()


def devices_of(variables):
    return {locate(variable) for variable in variables}


def relocated(template, gpus=3):
    return multi_gpu_model(template, gpus=gpus, cpu_relocation=True)


def fit(model, epochs=2):
    x, y = dense_data()
    return model.fit(x, y, batch_size=8, epochs=epochs, shuffle=False, verbose=0).history


@pytest.mark.parametrize("device", ["CPU:0", "CPU:5"])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_a_variable_is_located_where_it_was_placed(device, dtype):
    with tf.device("CPU:3"):
        variable = keras.Variable([[0, 1], [1, 0]], dtype=dtype, name="v")
    assert locate(variable) == "CPU:3"
    before = variable.numpy()
    assert place([(variable, device)]) == [variable]
    assert locate(variable) == device
    np.testing.assert_array_equal(variable.numpy(), before)
    np.testing.assert_array_equal(read(variable), before)
    assert variable.name == "v"


def test_what_is_in_place_already_keeps_its_memory():
    variable = keras.Variable([1.0])
    before = memory(variable)
    assert not place([(variable, "CPU:0")])
    assert memory(variable) == before


def test_a_placed_variable_is_assigned_and_updated_where_it_is():
    variable = keras.Variable([1.0, 2.0])
    place([(variable, "CPU:4")])
    variable.assign_add([1.0, 1.0])
    assert variable.numpy().tolist() == [2.0, 3.0]
    assert locate(variable) == "CPU:4"


def test_relocation_moves_all_variables_to_the_cpu_in_place():
    template = build_away()
    assert devices_of(template.weights) == {"CPU:3"}
    objects, values = template.variables, template.get_weights()
    parallel = relocated(template)
    assert parallel.template is template
    assert all(now is before for now, before in zip(template.variables, objects, strict=True))
    assert devices_of(template.variables) == {"CPU:0"}
    assert_same(template.get_weights(), values)


def with_noise_and_statistics():
    model = keras.Sequential(
        [keras.Input((5,)), layers.Dense(6), layers.BatchNormalization(), layers.Dropout(0.5), layers.Dense(3)]
    )
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


def test_relocation_moves_statistics_and_seeds_too():
    template = build_away(with_noise_and_statistics)
    relocated(template)
    assert devices_of(template.variables) == {"CPU:0"}


@pytest.mark.quick
def test_a_relocated_template_trains_as_on_one_device():
    one, template = dense_net(), build_away()
    template.set_weights(one.get_weights())
    history = fit(relocated(template))
    assert_same(history, fit(one))
    assert_same_weights(template, one)


@pytest.mark.parametrize("optimizer", [keras.optimizers.Adam, soak(keras.optimizers.SGD)])
def test_training_that_began_before_relocation_continues_as_if_uninterrupted(optimizer):
    def build():
        return dense_net(optimizer=optimizer(0.05, use_ema=True))

    one, template = build(), build_away(build)
    template.set_weights(one.get_weights())
    for model in (one, template):
        fit(model)  # and its end, where a moving average is put into the weights
    template.predict(dense_data()[0], verbose=0)
    parallel = relocated(template)
    assert_same(fit(parallel), fit(one))
    assert_same_weights(template, one)
    assert_same(template.optimizer.variables, one.optimizer.variables)


def test_a_template_that_was_trained_before_relocation_still_works_itself():
    x, y = dense_data()
    one, template = dense_net(), build_away()
    template.set_weights(one.get_weights())
    for model in (one, template):
        fit(model)
        model.evaluate(x, y, verbose=0)
        model.predict(x, verbose=0)
    parallel = relocated(template)
    assert_same(template.predict(x, verbose=0), one.predict(x, verbose=0))
    assert_same(parallel.predict(x, verbose=0), one.predict(x, verbose=0))
    assert_same(fit(template), fit(one))
    assert_same(template.evaluate(x, y, verbose=0), one.evaluate(x, y, verbose=0))
    assert_same_weights(template, one)


def test_relocating_twice_changes_nothing():
    template = build_away()
    relocated(template)
    memories = [memory(variable) for variable in template.variables]
    relocated(template)
    assert [memory(variable) for variable in template.variables] == memories


def test_layers_shared_with_another_model_stay_shared():
    template = build_away()
    features = keras.Model(template.inputs[0], template.layers[0].output)
    x, _ = dense_data()
    before = features.predict(x, verbose=0)
    parallel = relocated(template)
    assert_same(features(x), before)
    fit(parallel)
    assert_same(features(x), template.layers[0](x))


def test_a_nested_model_that_was_traced_before_relocation_still_works():
    x, _ = dense_data()
    inner = build_away()
    before = inner.predict(x, verbose=0)
    outer = keras.Sequential([keras.Input((5,)), inner])
    relocated(outer)
    assert_same(inner.predict(x, verbose=0), before)
