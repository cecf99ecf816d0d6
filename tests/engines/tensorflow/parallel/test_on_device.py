"""Parts of one model on different devices: they run there, forward and backward, with the numbers of one device."""

import re
import subprocess

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import soak
from equality import FLOAT32, assert_same_numbers, mean_squared, random_ids, random_rows, train
from executed_graphs import executed
from forked_python import python
from keras import layers
from part_models import MODELS, nowhere, shared_encoder

import multigpu
from multigpu.engines.tensorflow.weights.place_locate import locate


def masked_tower(on_device):
    """A mask that crosses devices, noise, moving statistics, a loss added by a layer, a model as a part."""
    ids = keras.Input((6,), dtype="int32")
    with on_device("CPU:3"):
        x = layers.Embedding(9, 4, mask_zero=True)(ids)
    with on_device("CPU:4"):
        x = layers.SimpleRNN(4, activity_regularizer=keras.regularizers.L2(0.1))(x)
        part = keras.Sequential([keras.Input((4,)), layers.Dense(4, kernel_regularizer="l2"), layers.Dropout(0.3)])
        x = part(x)
    with on_device("CPU:5"):
        x = layers.BatchNormalization()(x)
        x = keras.ops.concatenate([x, x * 2], axis=-1)
    return keras.Model(ids, layers.Dense(2)(x))


class Halves(keras.Model):
    """A model of one's own that says in its call where its parts run."""

    def __init__(self, on_device):
        super().__init__()
        self.on_device = on_device
        self.first, self.second = layers.Dense(4, activation="tanh", name="first"), layers.Dense(2, name="second")

    def call(self, x):
        with self.on_device("CPU:1"):
            x = self.first(x)
        with self.on_device("CPU:2"):
            return self.second(x)


def halves(on_device):
    model = Halves(on_device)
    model(random_rows(2, 3))
    return model


def shared_steps(on_device):
    """The same with a layer without a loop, which is traced in a moment."""
    return shared_encoder(on_device, lambda: layers.Conv1D(4, 5, activation="tanh", name="encode"))


SEQUENCES = [random_rows(22, 5, 3), random_rows(22, 5, 3, seed=1)]
CASES = {
    "shared layer": (MODELS["shared weights"][0], SEQUENCES, random_rows(22, 2)),
    "masks, noise, state and losses": (masked_tower, random_ids(22, 6, below=9), random_rows(22, 2)),
    "model of one's own": (halves, random_rows(22, 3), random_rows(22, 2)),
}
STEPS = random_rows(22, 1, 2)


def adam():
    return {"optimizer": keras.optimizers.Adam(0.05), "loss": "mse", "metrics": ["mae"]}


def assert_same_as_on_one_device(build, x, y, compile=mean_squared, only_fit=True, **tolerance):
    """Trains twins, one with its parts on devices, and compares all numbers; the one on devices is given back."""

    def in_a_graph():
        return {"run_eagerly": False, **compile()}

    _, plain = train(lambda: build(nowhere), x, y, compile=compile, gpus=None, only_fit=only_fit)
    model, placed = train(lambda: build(multigpu.on_device), x, y, compile=in_a_graph, gpus=None, only_fit=only_fit)
    assert_same_numbers(placed, plain, **tolerance or FLOAT32)
    return model


@pytest.mark.parametrize("case", CASES)
def test_parts_on_devices_train_as_on_one_device(case):
    assert_same_as_on_one_device(*CASES[case], only_fit=case == "shared layer")


def test_run_eagerly_too():
    assert_same_as_on_one_device(shared_steps, SEQUENCES, STEPS, lambda: {**mean_squared(), "run_eagerly": True})
    assert_same_as_on_one_device(*CASES["model of one's own"], lambda: {**mean_squared(), "run_eagerly": True})


@pytest.mark.parametrize("case", ["model of one's own", soak("masks, noise, state and losses")])
def test_under_mixed_precision_too(case):
    keras.config.set_dtype_policy("mixed_float16")
    try:
        assert_same_as_on_one_device(*CASES[case], rtol=2e-3, atol=2e-4)  # a float16 has 11 bits
    finally:
        keras.config.set_dtype_policy("float32")


@pytest.fixture(scope="module")
def placed():
    """A model whose parts are on devices, and what ran in its training."""
    model = shared_encoder(multigpu.on_device)
    model.compile(**adam())
    return model, executed(lambda: model.fit(SEQUENCES, random_rows(22, 2), verbose=0))


def test_each_part_runs_on_its_device_forward_and_backward(placed):
    model, ran = placed
    trained = ran.devices_of("MatMul")
    predicted = executed(lambda: model.predict(SEQUENCES, verbose=0)).devices_of("MatMul")
    assert set(trained) == set(predicted) == {"CPU:0", "CPU:1", "CPU:2"}
    assert predicted["CPU:1"] == predicted["CPU:2"] >= 2  # of the inputs, and of what is remembered
    assert trained["CPU:1"] == trained["CPU:2"] >= 2 * predicted["CPU:1"]
    assert (predicted["CPU:0"], trained["CPU:0"]) == (1, 3)  # the last layer: forward; for its kernel and its input


def test_a_model_of_ones_own_runs_its_parts_there_too():
    model = halves(multigpu.on_device)
    model.compile(**adam())
    ran = executed(lambda: model.fit(random_rows(22, 3), random_rows(22, 2), epochs=1, verbose=0))
    products = ran.devices_of("MatMul")
    assert products["CPU:1"] == 2  # forward; and for the kernel, since the input is data
    assert products["CPU:2"] == 3  # forward; for the kernel; for its input
    assert set(products) == {"CPU:1", "CPU:2"}


def test_weights_and_slots_are_where_the_layer_was_called_first(placed):
    model, _ = placed
    encode, decide = model.get_layer("encode"), model.get_layer("decide")
    assert {locate(variable) for variable in encode.trainable_variables} == {"CPU:1"}
    assert {locate(variable) for variable in decide.trainable_variables} == {"CPU:0"}
    slots = [v for v in model.optimizer.variables if "lstm_cell" in v.path]
    assert len(slots) == 6
    assert {locate(slot) for slot in slots} == {"CPU:1"}


def test_weights_are_updated_where_they_are(placed):
    _, ran = placed
    roots = ran.devices_of("Sqrt")  # Adam's
    assert roots["CPU:1"] == 3  # one for each of the LSTM's weights
    assert set(roots) == {"CPU:0", "CPU:1"}  # those of the last layer, and of numbers


def test_weights_of_a_model_of_ones_own_are_where_its_parts_run():
    model = halves(multigpu.on_device)
    model.compile(**adam())
    model.fit(random_rows(22, 3), random_rows(22, 2), verbose=0)
    for layer, device in ((model.first, "CPU:1"), (model.second, "CPU:2")):
        assert {locate(variable) for variable in layer.variables} == {device}
        slots = [slot for slot in model.optimizer.variables if layer.name in slot.path]
        assert len(slots) == 4
        assert {locate(slot) for slot in slots} == {device}


def test_a_trained_model_is_moved_to_where_it_is_called():
    encoder = keras.Sequential([keras.Input((3,)), layers.Dense(4)])
    before = encoder.get_weights()
    x = keras.Input((3,))
    with multigpu.on_device("CPU:6"):
        y = encoder(x)
    model = keras.Model(x, y)
    assert {locate(variable) for variable in model.variables} == {"CPU:6"}
    np.testing.assert_array_equal(encoder.get_weights()[0], before[0])


LOAD = """
import sys, keras, numpy
model = keras.models.load_model(sys.argv[1])
assert not any(name.startswith("multigpu") for name in sys.modules)
x = numpy.load(sys.argv[2])
numpy.save(sys.argv[3], model.predict([x[0], x[1]], verbose=0))
"""


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_the_file_is_that_of_a_plain_model(tmp_path, suffix):
    model = shared_steps(multigpu.on_device)
    model.compile(optimizer="adam", loss=keras.losses.MeanSquaredError())
    model.fit(SEQUENCES, STEPS, verbose=0)
    file, data, predicted = tmp_path / f"model{suffix}", tmp_path / "x.npy", tmp_path / "y.npy"
    multigpu.save_model_hdf5(model, file) if suffix == ".h5" else model.save(file)
    np.save(data, np.stack(SEQUENCES))
    subprocess.run([*python(), "-c", LOAD, file, data, predicted], check=True)
    np.testing.assert_allclose(np.load(predicted), model.predict(SEQUENCES, verbose=0), **FLOAT32)


def test_weights_of_a_loaded_model_go_on_on_several_devices(tmp_path):
    model = shared_encoder(multigpu.on_device)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    again = shared_encoder(multigpu.on_device)
    again.set_weights(loaded.get_weights())
    np.testing.assert_allclose(again.predict(SEQUENCES, verbose=0), loaded.predict(SEQUENCES, verbose=0), **FLOAT32)


def test_a_copy_is_plain_and_has_the_same_layers():
    model = shared_encoder(multigpu.on_device)
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    assert [layer.name for layer in copy.layers[2:]] == [layer.name for layer in model.layers[2:]]  # inputs are new
    assert multigpu.multi_gpu_model(copy, gpus=2).predict(SEQUENCES, verbose=0).shape == (22, 2)


def test_a_part_can_be_frozen_and_thawed():
    def build(on_device):
        model = shared_steps(on_device)
        model.get_layer("encode").trainable = False
        return model

    placed_model = assert_same_as_on_one_device(build, SEQUENCES, STEPS)
    placed_model.get_layer("encode").trainable = True
    placed_model.compile(**adam())
    before = placed_model.get_layer("encode").get_weights()
    placed_model.fit(SEQUENCES, STEPS, verbose=0)
    assert not np.array_equal(before[0], placed_model.get_layer("encode").get_weights()[0])


def test_a_model_is_never_compiled_by_xla_which_would_put_it_on_one_device():
    model = shared_encoder(multigpu.on_device)
    with pytest.warns(UserWarning, match="jit_compile"):
        model.compile(loss="mse", jit_compile=True)
    assert not model.jit_compile


def test_the_scope_ends_also_after_an_error():
    def methods():
        return [keras.Layer.__call__, keras.Operation.symbolic_call, keras.Sequential.build, keras.Sequential.add]

    before = methods()
    with pytest.raises(KeyError), multigpu.on_device("CPU:1"):
        raise KeyError
    assert methods() == before
    x = keras.Input((3,))
    layer = layers.Dense(2)
    model = keras.Model(x, layer(x))
    assert locate(model.variables[0]) == "CPU:0"


@pytest.mark.quick
def test_an_inner_scope_wins():
    x = keras.Input((3,))
    with multigpu.on_device("CPU:1"):
        first = layers.Dense(2)
        with multigpu.on_device("CPU:2"):
            y = first(x)
        second = layers.Dense(2)
        y = second(y)
    assert (locate(first.kernel), locate(second.kernel)) == ("CPU:2", "CPU:1")
    assert keras.Model(x, y).predict(random_rows(4, 3), verbose=0).shape == (4, 2)


def test_a_model_that_is_built_in_a_scope_runs_as_a_whole_where_it_is_called():
    x, inner = keras.Input((3,)), keras.Input((3,))
    with multigpu.on_device("CPU:1"):
        encoder = keras.Model(inner, layers.Dense(2, activation="tanh")(inner))
        first = encoder(x)
    with multigpu.on_device("CPU:2"):
        second = encoder(x * 2)
    model = keras.Model(x, [first, second])
    model.compile("sgd", ["mse", "mse"])
    ran = executed(lambda: model.fit(random_rows(4, 3), [random_rows(4, 2)] * 2, verbose=0))
    assert ran.devices_of("TanhGrad") == {"CPU:1": 1, "CPU:2": 1}
    assert {locate(variable) for variable in model.variables} == {"CPU:1"}


def exactly(message):
    return f"^{re.escape(message)}$"


# What is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["GPU:8", "somewhere", 1, None])
def test_a_device_that_is_not_there_is_refused(device):
    with pytest.raises(ValueError, match=r"^Expected `device` to be one of \['CPU:0', 'CPU:1'") as error:
        multigpu.on_device(device)
    assert f"Received: device={device!r}. Name a device of this machine; to try things out" in str(error.value)


def test_adding_to_a_sequential_in_a_scope_is_refused():
    model = keras.Sequential([keras.Input((3,))], name="stack")
    expected = (
        "Expected layers and models to be called in `on_device()`. Received: `add()` of the Sequential 'stack', which "
        "calls all of its layers again. Call them as functions, `with on_device('CPU:1'): x = layer(x)`, and "
        "make a `keras.Model(inputs, outputs)` of it."
    )
    with multigpu.on_device("CPU:1"), pytest.raises(ValueError, match=exactly(expected)):
        model.add(layers.Dense(2))


REFUSED = (
    "Expected a model without `on_device()`, because it runs as a whole on each of its devices. "
    "Received: one in which 'encode' is called in `on_device()`. Build it without that; or give each replica a group "
    "of devices, one for each part, as in `multi_gpu_model(model, gpus=[['GPU:0', 'GPU:1'], ['GPU:2', 'GPU:3']])`."
)


def test_a_template_with_parts_on_devices_is_refused():
    with pytest.raises(ValueError, match=exactly(REFUSED)):
        multigpu.multi_gpu_model(shared_encoder(multigpu.on_device), gpus=2)


def test_a_part_with_parts_on_devices_is_refused():
    model = shared_encoder(multigpu.on_device)
    with multigpu.on_device("CPU:5"), pytest.raises(ValueError, match=exactly(REFUSED)):
        model([keras.Input((5, 3)), keras.Input((5, 3))])


def two_operations():
    """A model without layers, whose operations are in two parts."""
    x = keras.Input((3,))
    with multigpu.on_device("CPU:1"):
        y = keras.ops.square(x)
    with multigpu.on_device("CPU:2"):
        return keras.Model(x, keras.ops.exp(y))


def test_operations_on_devices_are_refused_as_layers_are():
    model = two_operations()
    with pytest.raises(ValueError, match="one in which 'square' is called in `on_device\\(\\)`"):
        multigpu.multi_gpu_model(model, gpus=2)
    with multigpu.on_device("CPU:3"), pytest.raises(ValueError, match="one in which 'square' is called"):
        model(keras.Input((3,)))


def test_a_part_with_parts_is_refused_in_a_model_of_ones_own_too():
    model = two_operations()
    with multigpu.on_device("CPU:3"), pytest.raises(ValueError, match="one in which 'square' is called"):
        model(tf.constant(random_rows(4, 3)))


def test_a_template_of_ones_own_with_parts_on_devices_is_refused_when_it_is_called():
    parallel = multigpu.multi_gpu_model(halves(multigpu.on_device), gpus=2)
    with pytest.raises(ValueError, match="one in which 'first' is called in `on_device\\(\\)`"):
        parallel(tf.constant(random_rows(4, 3)))


def test_an_optimizer_is_built_with_the_settings_of_its_user():
    """Keras keeps them for each thread, and slots that a traced step needs are made in another one."""
    policies = []

    class Notes(keras.optimizers.SGD):
        def build(self, variables):
            policies.append((tf.executing_eagerly(), keras.config.dtype_policy().name))
            super().build(variables)

    x = keras.Input((3,))
    with multigpu.on_device("CPU:3"):
        model = keras.Model(x, layers.Dense(2)(x))
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model.compile(Notes(), "mse")
        model.train_on_batch(random_rows(4, 3), random_rows(4, 2))
    finally:
        keras.config.set_dtype_policy("float32")
    assert policies == [(True, "mixed_bfloat16")]
