"""Where the parts of a template in groups run, what travels between them, in which order, and what is refused."""

import math
from collections import Counter

import keras
import numpy as np
import pytest
import tensorflow as tf
from equality import FLOAT32, random_rows
from executed_graphs import executed, sent_tensors
from keras import layers
from part_models import SEQUENCES, Halves, X, Y, assert_same_in_groups, shared_encoder, two_parts

import multigpu
from multigpu.engines.tensorflow.pipeline import launch_order
from multigpu.engines.tensorflow.weights.place_locate import locate


@pytest.mark.parametrize("gpus", [[["CPU:2", "CPU:3"], ["CPU:4", "CPU:5"]], [["CPU:2", "CPU:3"]] * 4])
def test_each_part_runs_on_its_device_of_each_group_forward_and_backward(gpus):
    model = two_parts(multigpu.on_device)
    parallel = multigpu.multi_gpu_model(model, gpus=gpus)
    parallel.compile("sgd", "mse")
    ran = executed(lambda: parallel.fit(X[:16], Y[:16], batch_size=16, verbose=0))
    first, second = ([group[part] for group in gpus] for part in range(2))
    for device in {*first, *second}:
        slices = first.count(device) + second.count(device)
        products = 2 if device in first else 6  # of the first layer not that for the input, which is data
        assert ran.devices_of("MatMul")[device] == products * slices
    assert set(ran.devices_of("MatMul")) == {*first, *second}
    assert set(ran.devices_of("TanhGrad")) == set(second)
    assert set(ran.devices_of("Sigmoid")) == set(first)  # of silu, and of its gradient
    assert set().union(*ran.ops.values()) == {"CPU:0", *first, *second}  # the sums over slices too


def test_weights_are_kept_by_the_devices_of_their_parts():
    model = two_parts(multigpu.on_device)
    parallel = multigpu.multi_gpu_model(model, gpus=[["CPU:1", "CPU:2"], ["CPU:3", "CPU:4"]])
    parallel.compile("adam", "mse")
    parallel.fit(X[:16], Y[:16], batch_size=16, verbose=0)
    of_first = [v for layer in model.layers[1:3] for v in layer.trainable_variables]
    assert {locate(variable) for variable in of_first} == {"CPU:1", "CPU:3"}
    assert {locate(variable) for variable in model.layers[4].variables} == {"CPU:2", "CPU:4"}
    names = [variable.path.replace("/", "_") for variable in of_first]
    slots = [slot for slot in model.optimizer.variables if any(name in slot.path for name in names)]
    assert len(slots) == 2 * len(of_first)
    assert {locate(slot) for slot in slots} == {"CPU:1", "CPU:3"}


def wide(on):
    x = keras.Input((64,))
    with on("CPU:1"):
        h = layers.Dense(64, activation="relu")(x)
    with on("CPU:2"):
        return keras.Model(x, layers.Dense(64)(h))


def test_activations_travel_once_each_way_and_weights_to_other_groups_alone():
    x = y = random_rows(16, 64)
    for gpus, copied in (
        ([["CPU:1", "CPU:2"]] * 4, False),
        ([["CPU:1", "CPU:2"], ["CPU:3", "CPU:4"]], True),
    ):
        model = wide(multigpu.on_device)
        parallel = multigpu.multi_gpu_model(model, gpus=gpus)
        parallel.compile("sgd", "mse")
        ran = executed(lambda parallel=parallel: parallel.fit(x, y, batch_size=16, verbose=0))
        between = Counter((sent.start, sent.end) for sent in sent_tensors(ran) if sent.dtype == "float32")
        slices = gpus.count(gpus[0])
        for first, second in set(map(tuple, gpus)):
            assert between[first, second] == between[second, first] == slices
        assert any({"CPU:1", "CPU:3"} == set(pair) for pair in between) == copied


def test_weights_travel_to_the_other_group_in_the_type_of_computation():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        parallel = multigpu.multi_gpu_model(wide(multigpu.on_device), gpus=[["CPU:1", "CPU:2"], ["CPU:3", "CPU:4"]])
        parallel.compile("sgd", "mse")
        x = random_rows(16, 64)
        ran = executed(lambda: parallel.fit(x, x, batch_size=16, verbose=0))
    finally:
        keras.config.set_dtype_policy("float32")
    kernels = [sent.dtype for sent in sent_tensors(ran) if math.prod(sent.shape or ()) >= 64 * 64]
    assert set(kernels) == {"float16"}


def test_shared_weights_travel_to_the_other_part_once_for_all_slices():
    parallel = multigpu.multi_gpu_model(shared_encoder(multigpu.on_device), gpus=[["CPU:1", "CPU:2"]] * 4)
    parallel.compile("sgd", "mse")
    ran = executed(lambda: parallel.fit(SEQUENCES, Y, batch_size=17, verbose=0))
    shapes = Counter(sent.shape for sent in sent_tensors(ran) if (sent.start, sent.end) == ("CPU:1", "CPU:2"))
    assert shapes[3, 16] == shapes[4, 16] == 1  # of the LSTM's kernels


def test_a_gpu_is_given_slice_after_slice_and_not_far_ahead(monkeypatch):
    monkeypatch.setattr(launch_order, "IN_ORDER", ("CPU", "GPU"))
    uneven = [["CPU:1", "CPU:2"]] * 3 + [["CPU:3", "CPU:4"]] * 2
    assert_same_in_groups(two_parts, X, [uneven], only_fit=True)
    parallel = multigpu.multi_gpu_model(wide(multigpu.on_device), gpus=[["CPU:1", "CPU:2"]] * 4)
    parallel.compile("sgd", "mse")
    graphs = executed(lambda: parallel.predict(random_rows(16, 64), batch_size=16, verbose=0)).graphs
    nodes = [node for graph in graphs for node in graph.node if node.op != "Const"]  # folded: of a known shape
    waits = [name for node in nodes for name in node.input if name.startswith("^") and "/stage/" in name]
    assert len(waits) >= 2 * 3 + 2  # for the slice before, in each part, and for the next part


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_the_file_is_that_of_a_plain_model(tmp_path, suffix):
    model = two_parts(multigpu.on_device)
    parallel = multigpu.multi_gpu_model(model, gpus=[["CPU:1", "CPU:2"]] * 2)
    parallel.compile("sgd", "mse")
    parallel.fit(X, Y, verbose=0)
    file = tmp_path / f"model{suffix}"
    multigpu.save_model_hdf5(parallel, file) if suffix == ".h5" else parallel.save(file)
    loaded = keras.models.load_model(file, compile=False)
    np.testing.assert_allclose(loaded.predict(X, verbose=0), parallel.predict(X, verbose=0), **FLOAT32)


class InLoop(Halves):
    """A model whose parts are inside of a loop."""

    def call(self, x):
        return tf.while_loop(lambda i, _: i < 1, lambda i, _: (i + 1, super(InLoop, self).call(x)), (0, x[:, :1]))[1]


def test_parts_inside_of_a_loop_are_refused():
    model = InLoop(multigpu.on_device)
    model.first.build((None, 3))
    model.second.build((None, 4))
    model(random_rows(2, 3))
    parallel = multigpu.multi_gpu_model(model, gpus=[["CPU:1", "CPU:2"]] * 2)
    parallel.compile("sgd", "mse")
    with pytest.raises(ValueError, match=r"Received: `on_device\('CPU:0'\)` inside of a `tf.function` or of a loop"):
        parallel.fit(X, Y, verbose=0)


class Writes(keras.Layer):
    """Writes a line each time that it is called."""

    def __init__(self, path):
        super().__init__()
        self.file = path

    def call(self, x):
        tf.print("called", output_stream=f"file://{self.file}")
        return x


def test_effects_happen_once_in_each_slice(tmp_path, unchecked):
    x = keras.Input((3,))
    with multigpu.on_device("CPU:1"):
        h = Writes(tmp_path / "first")(layers.Dense(4)(x))
    with multigpu.on_device("CPU:2"):
        y = layers.Dense(2)(Writes(tmp_path / "second")(h))
    parallel = multigpu.multi_gpu_model(keras.Model(x, y), gpus=[["CPU:1", "CPU:2"]] * 3)
    parallel.compile("sgd", "mse")
    parallel.fit(X[:16], Y[:16], batch_size=8, verbose=0)
    for name in ("first", "second"):
        assert (tmp_path / name).read_text().splitlines() == ["called"] * 3 * 2


def test_a_template_without_parts_in_groups_is_refused():
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
    with pytest.raises(ValueError, match="and a template without parts"):
        multigpu.multi_gpu_model(model, gpus=[["CPU:0", "CPU:1"]])
