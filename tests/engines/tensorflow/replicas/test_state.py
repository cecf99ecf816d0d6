"""What layers keep is what they keep on one device, whether they sum over rows, average them, or count calls."""

import keras
import numpy as np
import pytest
from equality import assert_same, assert_same_training, mean_squared, random_ids, random_rows
from keras import layers, ops

from multigpu import multi_gpu_model

X, Y = random_rows(18, 3), random_rows(18, 2, seed=1)


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
    "sum of masked rows": lambda: Keeps(lambda v, x: v.assign(v + ops.sum(ops.where(x > 0, x, 0.0)))),
    "mean of those above": lambda: Keeps(
        lambda v, x: v.assign(ops.sum(ops.where(x > 0, x, 0.0)) / ops.sum(ops.cast(x > 0, "float32")))
    ),
    "largest": lambda: Keeps(lambda v, x: v.assign(ops.maximum(v, ops.max(x)))),
    "moving mean that says so": lambda: Keeps(
        lambda v, x: v.assign(0.9 * v + 0.1 * ops.mean(x**2)), aggregation="mean"
    ),
    "moving mean": lambda: Keeps(lambda v, x: v.assign(0.9 * v + 0.1 * ops.mean(x**2))),
    "last mean": lambda: Keeps(lambda v, x: v.assign(ops.mean(x**2))),
    "number of calls": lambda: Keeps(lambda v, x: v.assign(v + 1), dtype="int32"),
    "number of rows": lambda: Keeps(lambda v, x: v.assign(v + rows(x)), dtype="int32"),
    "number of rows as float": lambda: Keeps(lambda v, x: v.assign(v + ops.cast(rows(x), "float32"))),
    "metric of rows": lambda: Measures(lambda x: ops.sum(x**2, axis=-1)),
    "metric of a mean": lambda: Measures(lambda x: ops.mean(x**2)),
}


@pytest.mark.parametrize("kinds", [[*LAYERS][::2], [*LAYERS][1::2]], ids=["even", "odd"])
def test_state_of_layers_is_that_of_one_device(kinds):
    def build():
        x = inputs = keras.Input((3,))
        for kind in kinds:
            x = LAYERS[kind]()(keras.layers.Dense(4, activation="tanh")(x))
        return keras.Model(inputs, keras.layers.Dense(2)(x))

    # 18 rows in batches of 8: the last has 2, so that one of 3 replicas stands by
    assert_same_training(build, X, Y, compile=mean_squared, only_fit="sum over rows" not in kinds)


@pytest.mark.parametrize("way", [{"run_eagerly": True}, {"jit_compile": True}], ids=str)
def test_state_is_exact_in_every_way_of_running(way):
    def build():
        inputs = keras.Input((6,), dtype="int32")
        x = keras.layers.Embedding(5, 3, mask_zero=True)(inputs)
        x = keras.layers.GlobalAveragePooling1D()(x)
        for kind in ("sum over rows", "largest", "number of rows", "moving mean"):
            x = LAYERS[kind]()(x)
        return keras.Model(inputs, keras.layers.Dense(2)(x))

    assert_same_training(
        build, random_ids(18, 6, below=5), Y, compile=lambda: {**mean_squared(), **way}, gpus=3, only_fit=True
    )


class OwnNormalization(keras.layers.BatchNormalization):
    """Has another default, and Keras' `call`."""

    def __init__(self, **arguments):
        super().__init__(momentum=0.9, **arguments)


class KeepsATable(keras.layers.Layer):
    """Keeps a moving mean for each class, as a codebook does."""

    def build(self, shape):
        self.table = self.add_weight(shape=(3, shape[-1]), initializer="zeros", trainable=False)

    def call(self, x):
        classes = ops.one_hot(ops.argmax(x[:, :3], axis=-1), 3)
        means = ops.matmul(ops.transpose(classes), x) / (ops.sum(classes, axis=0)[:, None] + 1.0)
        self.table.assign(0.9 * self.table + 0.1 * means)
        return x


class KeepsInAnEmbedding(KeepsATable):
    """Keeps its table in the variable of a layer of Keras, which it holds."""

    def build(self, shape):
        self.book = keras.layers.Embedding(3, shape[-1], embeddings_initializer="zeros", trainable=False)
        self.book.build(None)

    @property
    def table(self):
        return self.book.embeddings


def test_state_that_a_layer_keeps_in_a_layer_of_keras_is_that_of_one_device():
    def build():
        inputs = keras.Input((3,))
        scale = keras.Variable(0.5, trainable=False)

        def kept(x):
            scale.assign(0.9 * scale + 0.1 * ops.max(x))
            return x

        x = KeepsInAnEmbedding()(keras.layers.Dense(4)(inputs))
        x = keras.layers.Lambda(kept, output_shape=(4,))(x)
        return keras.Model(inputs, keras.layers.Dense(2)(x))

    assert_same_training(build, X, Y, compile=mean_squared, gpus=3)


def test_state_of_a_subclass_and_of_a_codebook_is_that_of_one_device():
    def build():
        inputs = keras.Input((3,))
        x = OwnNormalization(synchronized=True)(keras.layers.Dense(4)(inputs))
        return keras.Model(inputs, keras.layers.Dense(2)(KeepsATable()(x)))

    assert_same_training(build, X, Y, compile=mean_squared, gpus=3)


class KeepsInADense(KeepsATable):
    """Keeps its table as the kernel of a Dense, in a branch."""

    def build(self, shape):
        self.dense = keras.layers.Dense(shape[-1], kernel_initializer="zeros", trainable=False)
        self.dense.build((None, 3))

    @property
    def table(self):
        return self.dense.kernel

    def call(self, x):
        return ops.cond(ops.shape(x)[0] > 0, lambda: KeepsATable.call(self, x), lambda: x)


class RemembersTheLargest(keras.Sequential):
    """Keeps the largest value of each column as the scale of one of its layers."""

    def call(self, x, training=None, mask=None):
        x = super().call(x)
        scale = self.layers[-1].gamma
        scale.assign(ops.maximum(scale, ops.max(x, axis=0)))
        return x


def test_state_in_a_dense_and_in_a_layer_of_a_sequential_is_that_of_one_device():
    def build():
        inputs = keras.Input((3,))
        normalize = keras.layers.LayerNormalization(trainable=False)
        x = RemembersTheLargest([keras.Input((3,)), keras.layers.Dense(4), normalize])(inputs)
        return keras.Model(inputs, keras.layers.Dense(2)(KeepsInADense()(x)))

    assert_same_training(build, X, Y, compile=mean_squared, gpus=3, only_fit=True)


class Counting(keras.layers.Layer):
    """Counts calls, and keeps a moving mean of the batches."""

    def build(self, shape):
        zeros = {"shape": (), "initializer": "zeros", "trainable": False}
        self.calls, self.mean = self.add_weight(**zeros), self.add_weight(**zeros)

    def call(self, x):
        self.calls.assign_add(1.0)
        self.mean.assign(0.9 * self.mean + 0.1 * ops.mean(x))
        return x * (1 + 0.01 * self.calls)


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_a_layer_with_state_may_be_the_activation_of_another(run_eagerly):
    def build():
        activated = [keras.layers.Dense(4, activation=each) for each in (Counting(), keras.layers.PReLU())]
        model = keras.Sequential([keras.Input((3,)), *activated, keras.layers.Dense(2)])
        model(X[:2])  # Keras builds an activation when it is first called
        return model

    assert_same_training(build, X, Y, compile=lambda: {**mean_squared(), "run_eagerly": run_eagerly}, only_fit=True)


def observe(variable, x):
    variable.assign(ops.maximum(0.5 * variable, ops.max(ops.abs(x))))


class Observed(layers.Dense):
    """Runs the `call` of Keras, which runs an activation that keeps a range."""

    def __init__(self, start):
        super().__init__(4)
        self.range = self.add_weight(initializer=keras.initializers.Constant(start), trainable=False)
        self.activation = self.observed

    def observed(self, x):
        observe(self.range, x)
        return ops.relu(x)


class KeepsRange(layers.Layer):
    def __init__(self, start):
        super().__init__()
        self.range = self.add_weight(initializer=keras.initializers.Constant(start), trainable=False)

    def call(self, x):
        return x


class Watches(keras.regularizers.Regularizer):
    def __init__(self, variable):
        self.variable = variable

    def __call__(self, x):
        observe(self.variable, x)
        return 0.1 * ops.sum(x**2)


@pytest.mark.parametrize("start", [10.0, 0.0], ids=["that the first batch does not set", "that it sets"])
@pytest.mark.parametrize("runs", ["activation", "regularizer"])
def test_state_that_functions_of_the_users_keep_where_layers_of_keras_run_them(runs, start):
    x = random_rows(24, 5)

    def run(gpus):
        keras.utils.set_random_seed(0)
        inputs = keras.Input((5,))
        if runs == "activation":
            keeps = Observed(start)
            hidden = keeps(inputs)
        else:
            keeps = KeepsRange(start)
            hidden = layers.Dense(4, activity_regularizer=Watches(keeps.range))(keeps(inputs))
        model = keras.Model(inputs, layers.Dense(1)(hidden))
        trained = multi_gpu_model(model, gpus=gpus) if gpus else model
        trained.compile("sgd", "mse")
        trained.fit(x, x[:, :1], batch_size=7, epochs=2, shuffle=False, verbose=0)
        return model.get_weights()

    assert_same(run(3), run(None))


class AddsVariance(layers.Layer):
    def call(self, x):
        self.add_loss(ops.var(x))
        return x


class CallsModel(keras.utils.PyDataset):
    """Batches whose threads call the model, as those that choose hard examples do."""

    def __init__(self, model):
        super().__init__(workers=2)
        self.model = model

    def __len__(self):
        return 10

    def __getitem__(self, number):
        x = random_rows(7, 5, seed=number)
        for _ in range(20):
            y = ops.convert_to_numpy(self.model(x, training=False))
        return x, y


def test_threads_that_prepare_batches_call_the_template_while_a_step_is_traced():
    """Added losses may be missing then, as on one device: a call clears those of the model, also in another thread."""
    outputs = inputs = keras.Input((5,))
    for _ in range(6):
        outputs = AddsVariance()(layers.Dense(5, "relu")(outputs))
    model = keras.Model(inputs, layers.Dense(1)(outputs))
    parallel = multi_gpu_model(model, gpus=3)
    parallel.compile("sgd", "mse")
    assert np.isfinite(parallel.fit(CallsModel(model), shuffle=False, verbose=0).history["loss"][0])


def test_moving_statistics_in_float16_do_not_overflow_over_the_rows():
    x = 90 * np.random.default_rng(0).normal(size=(3000, 4)).astype("float16")

    def build():
        return keras.Sequential([keras.Input((4,)), layers.BatchNormalization(dtype="float16")])

    twins = [build(), build()]
    for model in (twins[0], multi_gpu_model(twins[1], gpus=3)):
        model.compile("sgd", "mse")
        model.train_on_batch(x, 0 * x)
    np.testing.assert_allclose(twins[1].get_weights()[-1], twins[0].get_weights()[-1], rtol=5e-3)


def test_a_counter_of_floats_is_exact_where_its_product_with_rows_is_not():
    class Counts(layers.Layer):
        def build(self, shape):
            self.count = self.add_weight(shape=(), initializer=keras.initializers.Constant(134218), trainable=False)

        def call(self, x):
            self.count.assign_add(1.0)
            return x

    model = keras.Sequential([keras.Input((1,)), Counts()])
    parallel = multi_gpu_model(model, gpus=3)
    parallel.predict(np.ones((1000, 1)), batch_size=1000, verbose=0)
    assert float(model.layers[0].count.numpy()) == 134219.0
