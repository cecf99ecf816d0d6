"""Every way into a model ends in `call`: through each of them, parallel equals one device."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops
from twins import assert_same, assert_same_weights, dense_data, dense_net, make_twins

ROWS, BATCH = 22, 8  # two even batches, and 6 rows for 3 devices
X, Y = dense_data(ROWS)


class Batches(keras.utils.PyDataset):
    """The data in batches, as Keras' own multi-threaded source."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        rows = slice(index * BATCH, (index + 1) * BATCH)
        return X[rows], Y[rows]


def generate():
    """The data in batches, for ever."""
    while True:
        for index in range(3):
            yield Batches()[index]


def tf_data(**kwargs):
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH, **kwargs)


def fit(model, *args, **kwargs):
    return model.fit(*args, verbose=0, shuffle=False, **kwargs).history


def assert_same_fit(build, gpus, *args, **kwargs):
    """Histories and weights after `fit` with equal arguments; a callable among them makes the argument anew."""
    one, parallel = make_twins(build, gpus)
    before = one.get_weights()
    assert_same(fit(parallel, *_made(args), **kwargs), fit(one, *_made(args), **kwargs))
    assert_same_weights(parallel, one)
    assert not np.allclose(before[0], one.get_weights()[0])


def _made(args):
    return [arg() if callable(arg) else arg for arg in args]


# Data of all kinds --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpus", [2, 8])
def test_fit_on_arrays(gpus):
    assert_same_fit(dense_net, gpus, X, Y, batch_size=BATCH, epochs=3)


def test_fit_on_a_tf_data_dataset():
    assert_same_fit(dense_net, 3, tf_data)


def test_fit_on_a_dataset_whose_batches_have_one_fixed_size():
    assert_same_fit(dense_net, 3, lambda: tf_data(drop_remainder=True))


def test_fit_on_a_py_dataset():
    assert_same_fit(dense_net, 3, Batches)


def test_fit_on_a_py_dataset_with_several_threads():
    assert_same_fit(dense_net, 3, lambda: Batches(workers=2))


def test_fit_on_a_python_generator():
    assert_same_fit(dense_net, 3, generate, steps_per_epoch=3)


def test_fit_with_shuffled_rows():
    one, parallel = make_twins(dense_net)
    histories = []
    for model in (one, parallel):
        keras.utils.set_random_seed(7)
        histories.append(model.fit(X, Y, batch_size=BATCH, epochs=2, verbose=0).history)
    assert_same(*histories)
    assert_same_weights(parallel, one)


def test_validation_split():
    assert_same_fit(dense_net, 3, X, Y, batch_size=BATCH, validation_split=0.3)


def test_validation_data():
    assert_same_fit(dense_net, 3, X, Y, batch_size=BATCH, validation_data=(X[:5], Y[:5]), validation_batch_size=3)


def test_steps_per_execution():
    assert_same_fit(lambda: dense_net(steps_per_execution=4), 3, X, Y, batch_size=4)


def test_run_eagerly():
    assert_same_fit(lambda: dense_net(run_eagerly=True), 3, X, Y, batch_size=BATCH)


def test_evaluate():
    one, parallel = make_twins(dense_net)
    for kwargs in ({}, {"return_dict": True}, {"sample_weight": np.linspace(0, 1, ROWS)}):
        assert_same(
            parallel.evaluate(X, Y, batch_size=BATCH, verbose=0, **kwargs),
            one.evaluate(X, Y, batch_size=BATCH, verbose=0, **kwargs),
        )


@pytest.mark.parametrize("batch_size", [1, 2, 5, 64])
def test_predict_keeps_the_order_of_rows(batch_size):
    one, parallel = make_twins(dense_net, gpus=4)
    assert_same(parallel.predict(X, batch_size=batch_size, verbose=0), one.predict(X, verbose=0))


def test_predict_on_one_row():
    one, parallel = make_twins(dense_net, gpus=8)
    assert_same(parallel.predict(X[:1], verbose=0), one.predict(X[:1], verbose=0))


def test_predict_before_compile():
    one, parallel = make_twins(lambda: keras.Sequential([keras.Input((5,)), layers.Dense(2)]))
    assert_same(parallel.predict(X, verbose=0), one.predict(X, verbose=0))


# Single batches -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_rows", [8, 7, 2, 1])
def test_train_on_batch(num_rows):
    one, parallel = make_twins(dense_net)
    for _ in range(3):
        results = [model.train_on_batch(X[:num_rows], Y[:num_rows], return_dict=True) for model in (parallel, one)]
        assert_same(*results)
    assert_same_weights(parallel, one)


def test_train_on_batch_with_class_weight():
    one, parallel = make_twins(dense_net)
    weight = {0: 1.0, 1: 3.0, 2: 0.5}
    assert_same(*(model.train_on_batch(X, Y, class_weight=weight) for model in (parallel, one)))
    assert_same_weights(parallel, one)


def test_test_on_batch():
    one, parallel = make_twins(dense_net)
    for num_rows in (7, 1):
        assert_same(*(model.test_on_batch(X[:num_rows], Y[:num_rows]) for model in (parallel, one)))


def test_predict_on_batch():
    one, parallel = make_twins(dense_net)
    for num_rows in (7, 1):
        assert_same(*(model.predict_on_batch(X[:num_rows]) for model in (parallel, one)))


def test_a_plain_call():
    one, parallel = make_twins(dense_net)
    for num_rows in (7, 1):
        assert_same(parallel(X[:num_rows]), one(X[:num_rows]))


# A training loop of one's own ---------------------------------------------------------------------------------------


def taped_step(model, x, y):
    with tf.GradientTape() as tape:
        loss = ops.mean(keras.losses.sparse_categorical_crossentropy(y, model(x, training=True)))
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)
    return loss


@pytest.mark.parametrize("wrap", [lambda step: step, tf.function], ids=["eager", "function"])
def test_a_gradient_tape_of_ones_own(wrap):
    twins = make_twins(dense_net)
    losses = []
    for model in twins:
        model.optimizer.build(model.trainable_variables)
        step = wrap(lambda x, y, model=model: taped_step(model, x, y))
        losses.append([float(step(X[:n], Y[:n])) for n in (8, 7, 2, 1)])
    assert_same(*losses)
    assert_same_weights(*twins)


def test_gradients_of_ones_own_tape_are_those_of_one_device():
    found = []
    for model in make_twins(dense_net):
        with tf.GradientTape() as tape:
            loss = ops.sum(model(X, training=True) ** 2)
        found.append(tape.gradient(loss, [weight.value for weight in model.trainable_variables]))
    assert_same(*found)


def test_a_persistent_tape_gives_its_gradients_more_than_once():
    found = []
    for model in make_twins(dense_net):
        weights = [weight.value for weight in model.trainable_variables]
        with tf.GradientTape(persistent=True) as tape:
            y = model(X, training=True)
            losses = [ops.sum(y[:, 0]), ops.sum(y**2)]
        found.append([tape.gradient(loss, weights) for loss in losses])
    assert_same(*found)


# Templates with a training step of their own ------------------------------------------------------------------------


class Net(keras.Model):
    """A subclassed model of 5 features."""

    def __init__(self):
        super().__init__()
        self.hidden, self.top = layers.Dense(8, activation="tanh"), layers.Dense(3)

    def call(self, x, training=False):
        return self.top(self.hidden(x))


class OwnTrainStep(Net):
    """Calls itself twice, adds a loss of its own and reports a number of its own."""

    def train_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            predictions = self(x, training=True)
            smoothness = ops.mean((self(x + 0.1, training=True) - predictions) ** 2)
            loss = self.compute_loss(x=x, y=y, y_pred=predictions) + smoothness
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply(gradients, self.trainable_weights)
        for metric in self.metrics:
            metric.update_state(loss) if metric.name == "loss" else metric.update_state(y, predictions)
        return {metric.name: metric.result() for metric in self.metrics} | {"smoothness": smoothness}


class OwnLoss(Net):
    """Its loss looks at the inputs too."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        return loss + ops.mean(ops.abs(y_pred) * ops.mean(x**2, axis=-1, keepdims=True))


class OwnTestStep(Net):
    """Evaluates with a number of its own."""

    def test_step(self, data):
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        return {"spread": ops.std(self(x, training=False))}


class OwnPredictStep(Net):
    """Predicts classes."""

    def predict_step(self, data):
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        return ops.argmax(self(x, training=False), axis=-1)


class OwnMetrics(Net):
    """Keeps a metric of its own and reports it."""

    def __init__(self):
        super().__init__()
        self.largest = keras.metrics.Mean(name="largest")

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        self.largest.update_state(ops.max(y_pred, axis=-1))
        return super().compute_metrics(x, y, y_pred, sample_weight)


class OwnCompile(OwnLoss):
    """Takes an argument of its own in `compile`."""

    def compile(self, scale, **kwargs):
        super().compile(**kwargs)
        self.scale = scale

    def compute_loss(self, *args, **kwargs):
        return self.scale * super().compute_loss(*args, **kwargs)


def built(kind, **compile_kwargs):
    model = kind()
    model(X[:2])
    if compile_kwargs:
        model.compile(**compile_kwargs)
    return model


def own_compile_arguments(kind, **kwargs):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    own = {"scale": 0.5} if kind is OwnCompile else {}
    return {"optimizer": keras.optimizers.Adam(0.05), "loss": loss, "metrics": ["accuracy"], **own, **kwargs}


OWN_STEPS = [OwnTrainStep, OwnLoss, OwnTestStep, OwnPredictStep, OwnMetrics, OwnCompile]


@pytest.mark.parametrize("run_eagerly", [False, True], ids=["traced", "eager"])
@pytest.mark.parametrize("kind", OWN_STEPS)
def test_a_step_of_the_templates_own_is_honoured(kind, run_eagerly):
    twins = make_twins(lambda: built(kind))
    numbers = []
    for model in twins:
        model.compile(**own_compile_arguments(kind, run_eagerly=run_eagerly))
        history = fit(model, X, Y, batch_size=BATCH, validation_data=(X, Y))
        numbers.append((history, model.predict(X, verbose=0)))
    assert_same(*numbers)
    assert_same_weights(*twins)


def test_a_template_with_an_own_step_may_be_compiled_beforehand():
    assert_same_fit(lambda: built(OwnCompile, **own_compile_arguments(OwnCompile)), 3, X, Y, batch_size=BATCH)


@pytest.mark.parametrize("kind", [OwnTrainStep, OwnTestStep, OwnPredictStep])
def test_a_step_of_the_templates_own_on_single_batches(kind):
    one, parallel = make_twins(lambda: built(kind, **own_compile_arguments(kind)))
    for name in ("train_on_batch", "test_on_batch"):
        assert_same(*(getattr(model, name)(X[:7], Y[:7], return_dict=True) for model in (parallel, one)))
    assert_same(parallel.predict_on_batch(X[:7]), one.predict_on_batch(X[:7]))
    assert_same_weights(parallel, one)
