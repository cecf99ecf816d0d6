"""Replicas of a template with parts, each on a group of devices: the numbers of one device, each part on its device."""

import contextlib
from collections import Counter

import keras
import numpy as np
import pytest
import tensorflow as tf
from equality import FLOAT32, assert_same_numbers, random_ids, random_rows, train
from executed_graphs import executed, sent_tensors
from keras import layers

import multigpu
from multigpu.replicas import launch_order
from multigpu.weights.place_locate import locate

LAYOUTS = {
    "two groups": lambda parts: [[f"CPU:{1 + parts * group + part}" for part in range(parts)] for group in range(2)],
    "four slices": lambda parts: [[f"CPU:{part}" for part in range(parts)]] * 4,
}


def nowhere(device):
    """`on_device` for the twin on one device."""
    return contextlib.nullcontext()


def two_parts(on):
    """Dense parts, with batch statistics over all slices, and an activation whose gradient is not TensorFlow's own."""
    x = keras.Input((3,))
    with on("GPU:0"):
        h = layers.Dense(6, activation="silu")(x)
        h = layers.BatchNormalization(synchronized=True)(h)
    with on("GPU:1"):
        h = layers.Dense(5, activation="tanh", kernel_regularizer="l2")(h)
    return keras.Model(x, layers.Dense(2)(h))


def masked_tower(on):
    """A mask that crosses devices, loops, losses that layers add, a model as a part, operations without a layer."""
    ids = keras.Input((6,), dtype="int32")
    with on("GPU:0"):
        x = layers.Embedding(9, 4, mask_zero=True)(ids)
    with on("GPU:1"):
        x = layers.GRU(4, activity_regularizer=keras.regularizers.L2(0.1))(x)
        x = keras.Sequential([keras.Input((4,)), layers.Dense(4, "tanh", kernel_regularizer="l2")])(x)
    with on("GPU:2"):
        x = layers.BatchNormalization(synchronized=True)(x)
        x = keras.ops.concatenate([x, x * 2], axis=-1)
    return keras.Model(ids, layers.Dense(2)(x))


def shared_encoder(on):
    """Two sequences encoded by one LSTM, each in a part of its own, put together on the host."""
    first, second = keras.Input((5, 3)), keras.Input((5, 3))
    encode = layers.LSTM(4, name="encode")
    with on("GPU:1"):
        a = encode(first)
    with on("GPU:2"):
        b = encode(second)
    with on("CPU:0"):
        both = layers.concatenate([a, b])
    return keras.Model([first, second], layers.Dense(2, name="decide")(both))


def there_and_back(on):
    """A part that is used before and after another one; its first layer twice."""
    x = keras.Input((3,))
    again = layers.Dense(3, activation="tanh")
    with on("GPU:0"):
        h = again(x)
    with on("GPU:1"):
        h = layers.Dense(3, activation="relu")(h)
    with on("GPU:0"):
        return keras.Model(x, layers.Dense(2)(again(h)))


class OfBatch(keras.Layer):
    """Adds losses that are no mean over rows, and counts what it saw."""

    def build(self, shape):
        self.seen = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x):
        self.add_loss(tf.reduce_max(x) ** 2)
        self.add_loss(0.1 * tf.reduce_sum(x**2))
        self.seen.assign_add(tf.reduce_sum(x))
        return x


def with_losses(on):
    x = keras.Input((3,))
    with on("GPU:0"):
        h = OfBatch()(layers.Dense(4)(x))
    with on("GPU:1"):
        h = OfBatch()(layers.Dense(4)(h))
        return keras.Model(x, layers.Dense(2)(h))


def looked_up(on):
    """Numbers, looked up in a table that is no weight."""
    numbers = keras.Input((2,), dtype="int64")
    with on("GPU:0"):
        ids = layers.IntegerLookup(vocabulary=[1, 3, 5])(numbers)
        h = layers.Flatten()(layers.Embedding(5, 4)(ids))
    with on("GPU:1"):
        return keras.Model(numbers, layers.Dense(2)(layers.Dropout(0.0)(h)))


class Halves(keras.Model):
    """A model of one's own that says in its call where its parts run, and uses operations of TensorFlow there."""

    def __init__(self, on):
        super().__init__()
        self.on = on
        self.first, self.second = layers.Dense(4, name="first"), layers.Dense(2, name="second")

    def call(self, x):
        with self.on("GPU:0"):
            x = tf.tanh(self.first(x))
        with self.on("GPU:1"):
            return self.second(tf.nn.silu(x))


def halves(on):
    model = Halves(on)
    model(random_rows(2, 3))
    return model


X, Y = random_rows(22, 3), random_rows(22, 2, seed=1)
SEQUENCES = [random_rows(22, 5, 3), random_rows(22, 5, 3, seed=1)]
MODELS = {
    "two parts": (two_parts, X, 2),
    "masks, loops and operations": (masked_tower, random_ids(22, 6, below=9), 3),
    "shared weights": (shared_encoder, SEQUENCES, 2),
    "there and back": (there_and_back, X, 2),
    "losses and state of the batch": (with_losses, X, 2),
    "a model of one's own": (halves, X, 2),
    "a table": (looked_up, random_ids(22, 2, below=7).astype("int64"), 2),
}


def sgd():
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=1.0)
    return {"optimizer": optimizer, "loss": "mse", "metrics": ["mae"]}


def assert_same(build, x, gpus, compile=sgd, tolerance=FLOAT32, y=Y, **fit):
    """Trains twins, one with its parts in groups, and compares all numbers; the one in groups is given back."""
    _, plain = train(lambda: build(nowhere), x, y, compile=compile, gpus=None, **fit)
    model, grouped = train(lambda: build(multigpu.on_device), x, y, compile=compile, gpus=gpus, **fit)
    assert_same_numbers(grouped, plain, **tolerance)
    return model


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", MODELS)
def test_groups_train_as_one_device(name, layout):
    build, x, parts = MODELS[name]
    assert_same(build, x, LAYOUTS[layout](parts), epochs=2)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_row_too(layout):
    assert_same(two_parts, X[:9], LAYOUTS[layout](2), y=Y[:9], batch_size=4)  # batches of 4, 4 and 1 row


@pytest.mark.parametrize("layout", LAYOUTS)
def test_run_eagerly_too(layout):
    ids = random_ids(22, 6, below=9)
    assert_same(masked_tower_apart, ids, LAYOUTS[layout](2), lambda: {**sgd(), "run_eagerly": True})


def masked_tower_apart(on):
    ids = keras.Input((6,), dtype="int32")
    with on("GPU:0"):
        x = layers.Embedding(9, 4, mask_zero=True)(ids)
    with on("GPU:1"):
        return keras.Model(ids, layers.Dense(2)(layers.GRU(4)(x)))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_mixed_precision_too(layout):
    keras.config.set_dtype_policy("mixed_float16")
    try:
        assert_same(two_parts, X, LAYOUTS[layout](2), tolerance={"rtol": 4e-3, "atol": 4e-4})  # a float16 has 11 bits
    finally:
        keras.config.set_dtype_policy("float32")


def two_outputs(on):
    """Of two outputs, the second has no finite derivative: a gradient of zero that went through it would be NaN."""
    x = keras.Input((3,))
    with on("GPU:0"):
        h = layers.Dense(4, activation="relu")(x)
    with on("GPU:1"):
        y = layers.Dense(2, name="y")(h)
        root = keras.ops.sqrt(h * 0)
    return keras.Model(x, {"y": y, "root": root})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_output_without_a_loss_gets_no_gradient(layout):
    losses = {"optimizer": "sgd", "loss": {"y": "mse", "root": None}}
    assert_same(two_outputs, X, LAYOUTS[layout](2), lambda: losses, y={"y": Y})


class Penalised(Halves):
    """Trained with the gradient of its gradient, in a step of its own."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                inner.watch(x)
                y_pred = self(x, training=True)
                norm = tf.reduce_sum(y_pred**2)
            slope = inner.gradient(norm, x)
            loss = self.compute_loss(x, y, y_pred) + tf.reduce_mean(slope**2)
        self.optimizer.apply_gradients(
            zip(outer.gradient(loss, self.trainable_variables), self.trainable_variables, strict=True)
        )
        return {"loss": loss}


def penalised(on):
    model = Penalised(on)
    model(random_rows(2, 3))
    return model


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_gradient_of_a_gradient(layout):
    assert_same(penalised, X, LAYOUTS[layout](2), lambda: {"optimizer": "sgd", "loss": "mse"}, only_fit=True)


@pytest.mark.parametrize("options", [{"run_eagerly": False, "steps_per_execution": 2}])
def test_several_steps_in_one(options):
    assert_same(two_parts, X, LAYOUTS["four slices"](2), lambda: {**sgd(), **options})


def test_a_loop_of_ones_own_and_single_batches():
    numbers = []
    for gpus in (None, LAYOUTS["two groups"](2)):
        keras.utils.set_random_seed(0)
        model = two_parts(multigpu.on_device if gpus else nowhere)
        model = multigpu.multi_gpu_model(model, gpus=gpus) if gpus else model
        model.compile(**sgd())
        loss = model.train_on_batch(X[:7], Y[:7])
        with tf.GradientTape() as tape:
            value = tf.reduce_mean((model(X[:7], training=True) - Y[:7]) ** 2)
        gradients = tape.gradient(value, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        with tf.GradientTape() as tape:
            at_rest = tf.reduce_mean((model(X[:7]) - Y[:7]) ** 2)  # not training, and differentiated all the same
        gradients = [*gradients, *tape.gradient(at_rest, model.trainable_variables)]
        numbers.append([*loss, value, at_rest, *gradients, *model.get_weights(), model.predict_on_batch(X[:1])])
    for plain, grouped in zip(*numbers, strict=True):
        np.testing.assert_allclose(grouped, plain, **FLOAT32)


# Where things are -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpus", [[["CPU:1", "CPU:2"], ["CPU:3", "CPU:4"]], [["CPU:1", "CPU:2"]] * 4])
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


def test_weights_are_kept_by_the_devices_of_their_parts():
    model = two_parts(multigpu.on_device)
    parallel = multigpu.multi_gpu_model(model, gpus=[["CPU:1", "CPU:2"], ["CPU:3", "CPU:4"]])
    parallel.compile("adam", "mse")
    parallel.fit(X[:16], Y[:16], batch_size=16, verbose=0)
    of_first = [v for layer in model.layers[1:3] for v in layer.trainable_variables]
    assert {locate(variable) for variable in of_first} == {"CPU:1", "CPU:3"}
    assert {locate(variable) for variable in model.layers[3].variables} == {"CPU:2", "CPU:4"}
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


def test_shared_weights_travel_to_the_other_part_once_for_all_slices():
    parallel = multigpu.multi_gpu_model(shared_encoder(multigpu.on_device), gpus=[["CPU:1", "CPU:2"]] * 4)
    parallel.compile("sgd", "mse")
    ran = executed(lambda: parallel.fit(SEQUENCES, Y, batch_size=22, verbose=0))
    shapes = Counter(sent.shape for sent in sent_tensors(ran) if (sent.start, sent.end) == ("CPU:1", "CPU:2"))
    assert shapes[3, 16] == shapes[4, 16] == 1  # of the LSTM's kernels


def test_a_gpu_is_given_slice_after_slice_and_not_far_ahead(monkeypatch):
    monkeypatch.setattr(launch_order, "IN_ORDER", ("CPU", "GPU"))
    assert_same(two_parts, X, LAYOUTS["four slices"](2))
    assert_same(shared_encoder, SEQUENCES, [["CPU:1", "CPU:2"]] * 3 + [["CPU:3", "CPU:4"]] * 2)
    parallel = multigpu.multi_gpu_model(wide(multigpu.on_device), gpus=[["CPU:1", "CPU:2"]] * 4)
    parallel.compile("sgd", "mse")
    graph = executed(lambda: parallel.predict(random_rows(16, 64), batch_size=16, verbose=0)).graphs
    waits = [name for definition in graph for node in definition.node for name in node.input if name.startswith("^")]
    assert sum("/stage/" in name for name in waits) >= 2 * 3 + 2  # for the slice before, and for the next part


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


class InFunction(Halves):
    """A model whose parts are inside of a function that TensorFlow calls."""

    @tf.function
    def call(self, x):
        return super().call(x)


def test_parts_inside_of_a_function_are_refused():
    model = InFunction(multigpu.on_device)
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


def test_effects_happen_once_in_each_slice(tmp_path):
    x = keras.Input((3,))
    with multigpu.on_device("CPU:1"):
        h = Writes(tmp_path / "first")(layers.Dense(4)(x))
    with multigpu.on_device("CPU:2"):
        y = layers.Dense(2)(Writes(tmp_path / "second")(h))
    parallel = multigpu.multi_gpu_model(keras.Model(x, y), gpus=[["CPU:1", "CPU:2"]] * 3)
    parallel.compile("sgd", "mse")
    parallel.fit(X[:18], Y[:18], batch_size=9, verbose=0)
    for name in ("first", "second"):
        assert (tmp_path / name).read_text().splitlines() == ["called"] * 3 * 2


def test_a_template_without_parts_in_groups_is_refused():
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
    with pytest.raises(ValueError, match="and a template without parts"):
        multigpu.multi_gpu_model(model, gpus=[["CPU:0", "CPU:1"]])
