"""Every way into a model ends in `call`: through each of them, parallel equals one device."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import soak
from equality import assert_same, assert_same_weights, dense_data, dense_net, make_twins
from keras import layers, ops

ROWS, BATCH = 18, 8  # two batches of 8, and one of 2
X, Y = dense_data(ROWS)

# All entries end in the same call, whose numbers test_exact_batches.py compares. What can go wrong here is what an
# entry does around the call, so that a few meet 8 devices, and the others 3: slices of 3, 3 and 2 rows, and a device
# without a row of the last batch.
every_count = pytest.mark.parametrize("gpus", [soak(3), 8])
uneven_counts = pytest.mark.parametrize("gpus", [3])


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


@pytest.mark.quick
@every_count
def test_fit_on_arrays(gpus):
    assert_same_fit(dense_net, gpus, X, Y, batch_size=BATCH, epochs=3)


@uneven_counts
def test_fit_on_a_tf_data_dataset(gpus):
    assert_same_fit(dense_net, gpus, tf_data)


@uneven_counts
def test_fit_on_a_dataset_whose_batches_have_one_fixed_size(gpus):
    assert_same_fit(dense_net, gpus, lambda: tf_data(drop_remainder=True))


@pytest.mark.soak
@uneven_counts
def test_fit_on_a_py_dataset(gpus):
    assert_same_fit(dense_net, gpus, Batches)


@uneven_counts
def test_fit_on_a_py_dataset_with_several_threads(gpus):
    assert_same_fit(dense_net, gpus, lambda: Batches(workers=2))


@uneven_counts
def test_fit_on_a_python_generator(gpus):
    assert_same_fit(dense_net, gpus, generate, steps_per_epoch=3)


@uneven_counts
def test_fit_with_shuffled_rows(gpus):
    one, parallel = make_twins(dense_net, gpus)
    histories = []
    for model in (one, parallel):
        keras.utils.set_random_seed(7)
        histories.append(model.fit(X, Y, batch_size=BATCH, epochs=2, verbose=0).history)
    assert_same(*histories)
    assert_same_weights(parallel, one)


@uneven_counts
def test_validation_split(gpus):
    assert_same_fit(dense_net, gpus, X, Y, batch_size=BATCH, validation_split=0.3)


@uneven_counts
def test_validation_data(gpus):
    assert_same_fit(dense_net, gpus, X, Y, batch_size=BATCH, validation_data=(X[:5], Y[:5]), validation_batch_size=3)


@uneven_counts
def test_steps_per_execution(gpus):
    assert_same_fit(lambda: dense_net(steps_per_execution=4), gpus, X, Y, batch_size=4)


@uneven_counts
def test_run_eagerly(gpus):
    assert_same_fit(lambda: dense_net(run_eagerly=True), gpus, X, Y, batch_size=BATCH)


@uneven_counts
def test_evaluate(gpus):
    one, parallel = make_twins(dense_net, gpus)
    for kwargs in ({}, {"return_dict": True}, {"sample_weight": np.linspace(0, 1, ROWS)}):
        assert_same(
            parallel.evaluate(X, Y, batch_size=BATCH, verbose=0, **kwargs),
            one.evaluate(X, Y, batch_size=BATCH, verbose=0, **kwargs),
        )


@pytest.mark.quick
@pytest.mark.parametrize(("batch_size", "gpus"), [(1, 3), (5, 8), soak(2, 8), soak(5, 3), soak(64, 4)])
def test_predict_keeps_the_order_of_rows(batch_size, gpus):
    one, parallel = make_twins(dense_net, gpus)
    assert_same(parallel.predict(X, batch_size=batch_size, verbose=0), one.predict(X, verbose=0))


@every_count
def test_predict_on_one_row(gpus):
    one, parallel = make_twins(dense_net, gpus)
    assert_same(parallel.predict(X[:1], verbose=0), one.predict(X[:1], verbose=0))


@uneven_counts
def test_predict_before_compile(gpus):
    one, parallel = make_twins(lambda: keras.Sequential([keras.Input((5,)), layers.Dense(2)]), gpus)
    assert_same(parallel.predict(X, verbose=0), one.predict(X, verbose=0))


# Single batches -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_rows", "gpus"),
    [
        *[(8, 3), (7, 8), (2, 3), (1, 8)],
        *[soak(8, 2), soak(8, 4), soak(8, 8), soak(7, 2), soak(7, 3), soak(1, 2)],
    ],
)
def test_train_on_batch(num_rows, gpus):
    one, parallel = make_twins(dense_net, gpus)
    for _ in range(3):
        results = [model.train_on_batch(X[:num_rows], Y[:num_rows], return_dict=True) for model in (parallel, one)]
        assert_same(*results)
    assert_same_weights(parallel, one)


@uneven_counts
def test_train_on_batch_with_class_weight(gpus):
    one, parallel = make_twins(dense_net, gpus)
    weight = {0: 1.0, 1: 3.0, 2: 0.5}
    assert_same(*(model.train_on_batch(X, Y, class_weight=weight) for model in (parallel, one)))
    assert_same_weights(parallel, one)


@uneven_counts
def test_test_on_batch(gpus):
    one, parallel = make_twins(dense_net, gpus)
    for num_rows in (7, 1):
        assert_same(*(model.test_on_batch(X[:num_rows], Y[:num_rows]) for model in (parallel, one)))


@uneven_counts
def test_predict_on_batch(gpus):
    one, parallel = make_twins(dense_net, gpus)
    for num_rows in (7, 1):
        assert_same(*(model.predict_on_batch(X[:num_rows]) for model in (parallel, one)))


@every_count
def test_a_plain_call(gpus):
    one, parallel = make_twins(dense_net, gpus)
    for num_rows in (7, 1):
        assert_same(parallel(X[:num_rows]), one(X[:num_rows]))


# A training loop of one's own ---------------------------------------------------------------------------------------


def taped_step(model, x, y):
    with tf.GradientTape() as tape:
        loss = ops.mean(keras.losses.sparse_categorical_crossentropy(y, model(x, training=True)))
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)
    return loss


@pytest.mark.parametrize(("eager", "gpus"), [(True, 3), (False, 8), soak(True, 8), soak(False, 3)])
def test_a_gradient_tape_of_ones_own(eager, gpus):
    twins = make_twins(dense_net, gpus)
    losses = []
    for model in twins:
        model.optimizer.build(model.trainable_variables)
        step = functools.partial(taped_step, model)
        step = step if eager else tf.function(step)
        losses.append([float(step(X[:n], Y[:n])) for n in (8, 7, 2, 1)])
    assert_same(*losses)
    assert_same_weights(*twins)


@pytest.mark.quick
@every_count
def test_gradients_of_ones_own_tape_are_those_of_one_device(gpus):
    found = []
    for model in make_twins(dense_net, gpus):
        with tf.GradientTape() as tape:
            loss = ops.sum(model(X, training=True) ** 2)
        found.append(tape.gradient(loss, [weight.value for weight in model.trainable_variables]))
    assert_same(*found)


@uneven_counts
def test_a_persistent_tape_gives_its_gradients_more_than_once(gpus):
    found = []
    for model in make_twins(dense_net, gpus):
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
    return {
        "optimizer": keras.optimizers.SGD(0.1, momentum=0.9),
        "loss": loss,
        "metrics": ["accuracy"],
        **own,
        **kwargs,
    }


OWN_STEPS = [OwnTrainStep, OwnLoss, OwnTestStep, OwnPredictStep, OwnMetrics, OwnCompile]


# of steps, counts and ways of running, each pair; `make soak` has most of those that are run eagerly
PAIRS = [
    (soak if eager and at % 3 else lambda *case: case)(kind, eager, [3, 8][(at + eager) % 2])
    for at, kind in enumerate(OWN_STEPS)
    for eager in (False, True)
]


@pytest.mark.parametrize(("kind", "run_eagerly", "gpus"), PAIRS)
def test_a_step_of_the_templates_own_is_honoured(kind, run_eagerly, gpus):
    twins = make_twins(lambda: built(kind), gpus)
    numbers = []
    for model in twins:
        model.compile(**own_compile_arguments(kind, run_eagerly=run_eagerly))
        predicts = kind in (OwnTrainStep, OwnPredictStep)
        history = fit(model, X, Y, batch_size=BATCH, validation_data=None if predicts else (X, Y))
        numbers.append([history, *([model.predict(X, verbose=0)] if predicts else [])])
    assert_same(*numbers)
    assert_same_weights(*twins)


@uneven_counts
def test_a_template_with_an_own_step_may_be_compiled_beforehand(gpus):
    assert_same_fit(lambda: built(OwnCompile, **own_compile_arguments(OwnCompile)), gpus, X, Y, batch_size=BATCH)


@uneven_counts
@pytest.mark.parametrize("kind", [OwnTrainStep, soak(OwnTestStep), OwnPredictStep])
def test_a_step_of_the_templates_own_on_single_batches(kind, gpus):
    one, parallel = make_twins(lambda: built(kind, **own_compile_arguments(kind)), gpus)
    for name in ("train_on_batch", "test_on_batch"):
        assert_same(*(getattr(model, name)(X[:7], Y[:7], return_dict=True) for model in (parallel, one)))
    assert_same(parallel.predict_on_batch(X[:7]), one.predict_on_batch(X[:7]))
    assert_same_weights(parallel, one)
