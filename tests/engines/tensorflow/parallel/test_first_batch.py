"""The first batch of each kind of call is checked, whatever a trace shows: on some rows, whole and in two slices."""

import functools
import os
import subprocess
import sys
import unittest.mock
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import soak
from equality import ONE_CALL, assert_same_numbers, assert_same_training, mean_squared, random_ids, random_rows
from forked_python import python
from function_layer import FunctionLayer
from keras import layers, ops

from multigpu import multi_gpu_model
from multigpu.engines.tensorflow.batches.call_arguments import CallArguments
from multigpu.engines.tensorflow.parallel import call
from multigpu.engines.tensorflow.parallel.first_batch import FirstBatchCheck
from multigpu.engines.tensorflow.parallel.trial_runs import TrialRuns
from multigpu.engines.tensorflow.replicas import replica
from multigpu.engines.tensorflow.replicas.template import TemplateState

X, Y = random_rows(16, 4), random_rows(16, 2, seed=1)
REFUSED = r"Expected layers that take the rows of a batch one by one.* Received: {}.* rows 0 to 7 and 8 to 15 "


@pytest.fixture(autouse=True)
def without_r(monkeypatch):
    """No layer has functions of R, whatever other tests of this process have imported."""
    monkeypatch.delitem(sys.modules, "multigpu.r.interface", raising=False)


def deviation_of_groups(x):
    groups = tf.reshape(x, [4, -1, tf.shape(x)[1]])
    deviation = tf.reduce_mean(tf.math.reduce_std(groups, axis=0), axis=1, keepdims=True)
    return x + tf.tile(deviation, [4, 1])


def in_numpy(x):
    return tf.ensure_shape(tf.numpy_function(lambda a: a - a.mean(0), [x], tf.float32), x.shape)


def whitened(x):
    """Columns without correlation over the rows."""
    centred = x - tf.reduce_mean(x, 0)
    root = tf.linalg.cholesky(tf.matmul(centred, centred, transpose_a=True) + 0.1 * tf.eye(4))
    return tf.transpose(tf.linalg.triangular_solve(root, tf.transpose(centred)))


def nearest_other_row(x):
    far = ops.sum((x[:, None] - x[None]) ** 2, -1) + 1e9 * ops.eye(ops.shape(x)[0])
    return ops.take(x, ops.argmin(far, axis=1), axis=0)


def halves_swapped(x):
    half = ops.shape(x)[0] // 2
    return ops.concatenate([x[half:], x[:half]], axis=0)


MIXING = {
    "groups of rows": deviation_of_groups,
    "a branch": lambda x: tf.cond(tf.shape(x)[0] > 0, lambda: x - tf.reduce_mean(x, 0), lambda: x),
    "one of several branches": lambda x: tf.switch_case(tf.constant(1), [lambda: x, lambda: x - tf.reduce_mean(x, 0)]),
    "a loop": lambda x: tf.while_loop(lambda i, _: i < 2, lambda i, h: (i + 1, h - tf.reduce_mean(h, 0)), [0, x])[1],
    "a map over columns": lambda x: tf.transpose(tf.map_fn(lambda c: c - tf.reduce_mean(c), tf.transpose(x))),
    "a function": tf.function(lambda x: x - tf.reduce_mean(x, 0)),
    "numpy": in_numpy,
    "softmax": lambda x: ops.softmax(x, axis=0),
    "cumsum": lambda x: ops.cumsum(x, axis=0),
    "sort": lambda x: ops.sort(x, axis=0),
    "reversed": lambda x: x[::-1],
    "rolled": lambda x: ops.roll(x, 1, axis=0),
    "the first row": lambda x: x + x[:1],
    "products of rows": lambda x: ops.matmul(ops.matmul(x, ops.transpose(x)), x),
    "divided by the number of rows": lambda x: x / ops.cast(ops.shape(x)[0], "float32"),
    "the first half": lambda x: x * ops.cast(ops.arange(ops.shape(x)[0]) < ops.shape(x)[0] // 2, "float32")[:, None],
    "whitening": whitened,
    "the nearest other row": nearest_other_row,
    "ranks": lambda x: ops.cast(ops.argsort(ops.argsort(x, axis=0), axis=0), "float32"),
    "halves swapped": halves_swapped,
    "two views, stacked": lambda x: ops.reshape(ops.stack([x, 2 * x]), (-1, 4))[::2],
    "how many rows are above something": lambda x: tf.where(tf.math.count_nonzero(x[:, 0] > -9) > 8, x, -x),
    "rows in time": lambda x: ops.reshape(ops.cumsum(ops.reshape(x, (2, -1, 4)), axis=0), (-1, 4)),
    "one for an even number": lambda x: x if int(x.shape[0] or 0) % 2 else tf.where(tf.shape(x)[0] % 16 == 0, x + 1, x),
}


def after_a_layer(layer):
    return keras.Sequential([keras.Input((4,)), layers.Dense(4), layer, layers.Dense(2)])


@pytest.mark.parametrize("name", MIXING)
def test_a_layer_that_mixes_rows_is_named_without_any_rule(name):
    template = after_a_layer(FunctionLayer(MIXING[name], name="mixes"))
    seen(template, X, "layer 'mixes'")


def twice(x):
    for _ in tf.range(2):
        x = x - 0.1 * tf.square(x)
    return x


class WithItsGradient(layers.Layer):
    """Adds the gradient of a function by its inputs, from a tape of its own."""

    def __init__(self, function, **kwargs):
        super().__init__(**kwargs)
        self.function = tf.function(function)

    def call(self, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = self.function(x)
        return x + tape.gradient(y, x)


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_a_layer_with_a_tape_of_its_own_is_compared(run_eagerly):
    def mixes(x):
        return x * tf.while_loop(lambda i, _: i < 1, lambda i, h: (i + 1, h[::-1]), [0, x])[1]

    parallel = multi_gpu_model(after_a_layer(WithItsGradient(mixes, name="mixes")), gpus=2)
    parallel.compile(**mean_squared(), run_eagerly=run_eagerly)
    error = ValueError if run_eagerly else (ValueError, tf.errors.InvalidArgumentError)
    with pytest.raises(error, match=r"(?s)" + REFUSED.format("layer 'mixes'")):
        parallel.fit(X, Y, batch_size=16, verbose=0)


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_a_layer_with_a_tape_of_its_own_that_keeps_rows_apart_trains_as_on_one_device(run_eagerly):
    def build():
        return after_a_layer(WithItsGradient(twice))

    def compile():
        return {**mean_squared(), "run_eagerly": run_eagerly}

    assert_same_training(build, X, Y, compile=compile, batch_size=7, only_fit=True)


def seen(template, x, who, **kwargs):
    """The check alone sees it, in a call of the model op by op."""
    parallel = multi_gpu_model(template, gpus=2)
    batch = CallArguments((x,), kwargs)
    without_rules = unittest.mock.patch.object(replica, "check_rows_apart")
    with without_rules, pytest.raises(ValueError, match=REFUSED.format(who)):
        FirstBatchCheck(TemplateState.of(template, parallel.plan), batch, parallel.plan).now(batch)


class Codebook(layers.Layer):
    """Keeps a state in the variable of a layer of Keras, which it holds."""

    def __init__(self):
        super().__init__()
        self.book = layers.Embedding(3, 4, trainable=False)

    def build(self, shape):
        self.book.build(None)

    def call(self, x):
        codes = self.book.embeddings
        nearest = ops.one_hot(ops.argmin(ops.sum((x[:, None] - codes[None]) ** 2, -1), -1), 3)
        codes.assign(ops.matmul(ops.transpose(nearest), x) / (ops.sum(nearest, 0)[:, None] + 0.1))
        return x


def two_views():
    first, second = keras.Input((4,)), keras.Input((4,))
    encoder = layers.Dense(3)
    return keras.Model([first, second], layers.Concatenate(axis=0, name="joined")([encoder(first), encoder(second)]))


def test_state_that_slices_would_average_is_seen_without_any_rule(monkeypatch):
    monkeypatch.setattr(replica, "is_combined", lambda variable, assigned_by_users: True)
    template = after_a_layer(Codebook())
    parallel = multi_gpu_model(template, gpus=2)
    check = FirstBatchCheck(TemplateState.of(template, parallel.plan), CallArguments((X,), {}), parallel.plan)
    with pytest.raises(ValueError, match=r"variable '.*/embeddings' differs by"):
        check.now(CallArguments((X,), {}))


def test_rows_joined_along_the_batch_axis_are_seen():
    template = two_views()
    parallel = multi_gpu_model(template, gpus=2)
    parallel.compile(**mean_squared())
    with pytest.raises(ValueError, match=REFUSED.format("layer 'joined'")):
        parallel.predict([X, X[::-1]], batch_size=16, verbose=0)


class Weighted(keras.Model):
    """Takes an argument beside its inputs that has no rows of theirs."""

    def __init__(self, way):
        super().__init__()
        self.way, self.dense = way, layers.Dense(2)

    def call(self, x, neighbours=None):
        return self.dense(x if neighbours is None else self.way(x, neighbours))


ARGUMENTS = {
    "neighbours": lambda x, a: ops.matmul(a, x),
    "a table that ids choose from": lambda x, a: x + tf.gather(a, tf.cast(tf.abs(x[:, 0]) * 4, tf.int32) % 8)[:, :4],
    "distances, as a scale": lambda x, a: x / ops.max(a),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_whose_rows_are_not_those_of_the_batch_is_seen(name):
    template = Weighted(ARGUMENTS[name])
    template(X)
    with pytest.raises(ValueError, match=r"Received: layer|Received: model"):
        multi_gpu_model(template, gpus=2)(X, neighbours=random_rows(16, 16))


def test_a_layer_that_fails_on_slices_is_named():
    in_sixteens = FunctionLayer(lambda x: ops.reshape(ops.reshape(x, (-1, 16, 4)) * 2, (-1, 4)), name="fails")
    with pytest.raises(ValueError, match="Received: layer 'fails', which fails with 8 rows"):
        multi_gpu_model(after_a_layer(in_sixteens), gpus=2)(X)


# Each way of calling a model ------------------------------------------------------------------------------------------


class Compares(layers.Layer):
    """Compares rows in a branch, where no trace shows it, if asked."""

    on = True

    def call(self, x):
        return tf.cond(tf.shape(x)[0] > 0, lambda: x - tf.reduce_mean(x, 0) * self.on, lambda: x)


def own_loop(parallel):
    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(parallel(x, training=True) ** 2)
        weights = parallel.trainable_variables
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(gradient)

    step(tf.constant(X))


WAYS = {
    "fit": lambda p: p.fit(X, Y, batch_size=16, verbose=0),
    "evaluate": lambda p: p.evaluate(X, Y, batch_size=16, verbose=0),
    "predict": lambda p: p.predict(X, batch_size=16, verbose=0),
    "train_on_batch": lambda p: p.train_on_batch(X, Y),
    "a call": lambda p: p(X),
    "a generator": lambda p: p.fit(((X, Y) for _ in range(3)), steps_per_epoch=3, shuffle=False, verbose=0),
    "own_loop": own_loop,
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_calling_ends_before_a_weight_has_changed(way):
    template = after_a_layer(Compares(name="mixes"))
    parallel = multi_gpu_model(template, gpus=2)
    parallel.compile(**mean_squared())
    before = template.get_weights()
    kind = tf.errors.InvalidArgumentError if way == "own_loop" else ValueError  # TensorFlow's, with the same text
    for _ in range(2):
        with pytest.raises(kind, match=r"(?s)" + REFUSED.format("layer 'mixes'")):
            WAYS[way](parallel)
    assert_same_numbers(dict(enumerate(template.get_weights())), dict(enumerate(before)))


class FlipsSome(layers.Layer):
    """Puts the rows of about every second batch in the other order."""

    def __init__(self, generator):
        super().__init__(name="mixes")
        self.generator = generator

    def call(self, x):
        return ops.where(keras.random.uniform((1, 1), seed=self.generator) < 0.5, ops.flip(x, 0), x)


def template_that_flips_the_first_batch(generator):
    def template(seed):
        keras.utils.set_random_seed(seed)
        return after_a_layer(FlipsSome(generator(seed)))

    def flips(model):
        return [bool(np.any(model.layers[1](X) != X)) for _ in range(2)]

    return template(next(seed for seed in range(100) if flips(template(seed)) == [True, False]))


@pytest.mark.parametrize("way", [way for way in WAYS if way not in ("evaluate", "predict", "a generator")])
@pytest.mark.parametrize("generator", [keras.random.SeedGenerator, lambda seed: None], ids=["own", "default"])
def test_the_check_draws_what_the_step_draws(generator, way):
    template = template_that_flips_the_first_batch(generator)
    parallel = multi_gpu_model(template, gpus=2)
    parallel.compile(**mean_squared())
    before = template.get_weights()
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="layer 'mixes'"):
        WAYS[way](parallel)
    assert_same_numbers(dict(enumerate(template.get_weights())), dict(enumerate(before)))  # also of its generator


class Assigns(keras.Model):
    """Assigns a weight of a part before its step calls it, and again afterwards."""

    def __init__(self, part, weight):
        super().__init__()
        self.part, self.weight = part, weight

    def train_step(self, data):
        for _ in range(50):  # long enough for a check that does not wait
            self.weight.assign(self.weight + 1)
        loss = ops.mean(self.part(data[0], training=True))
        self.weight.assign(self.weight * 0)
        return {"mean": loss}


class Fades(layers.Layer):
    """Has a variable that Keras does not know."""

    def __init__(self):
        super().__init__()
        self.share = tf.Variable([0.0], trainable=False)

    def call(self, x):
        return self.share * x


@pytest.mark.parametrize("weight_of", [lambda model: model.layers[-1].bias, lambda model: model.layers[1].share])
def test_all_runs_of_the_check_read_the_values_that_the_call_reads(weight_of, monkeypatch):
    template, values = after_a_layer(Fades()), []
    weight, run = weight_of(template), TrialRuns.run
    monkeypatch.setattr(TrialRuns, "run", lambda *given: values.append(weight.numpy()[0]) or run(*given))
    whole = Assigns(multi_gpu_model(template, gpus=2), weight)
    whole.compile()
    whole.fit(X, Y, batch_size=16, epochs=2, verbose=0)
    assert values
    assert set(values) == {50.0}


def test_a_refused_method_leaves_the_errors_of_other_calls_as_they_are():
    parallel = multi_gpu_model(after_a_layer(Compares(name="mixes")), gpus=2)
    parallel.compile(**mean_squared())
    with pytest.raises(ValueError, match=REFUSED.format("layer 'mixes'")):
        parallel.fit(X, Y, batch_size=16, verbose=0)
    with pytest.raises(ValueError, match="is incompatible with the layer"):
        parallel(X[:, :3])


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_several_steps_in_one_and_a_class_of_ones_own_are_checked(run_eagerly):
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.mixes, self.dense = Compares(name="mixes"), layers.Dense(2)

        def call(self, x, training=False):
            return self.dense(self.mixes(x))

        def train_step(self, data):
            noise = tf.random.stateless_normal(tf.shape(data[0]), [1, 2])
            self(noise, training=True)
            return super().train_step(data)

    template = Own()
    template(X)
    parallel = multi_gpu_model(template, gpus=2)
    parallel.compile(**mean_squared(), run_eagerly=run_eagerly, steps_per_execution=1 if run_eagerly else 2)
    with pytest.raises(ValueError, match=REFUSED.format("layer 'mixes'")):
        parallel.fit(X, Y, batch_size=16, epochs=2, verbose=0)


ONE_THREAD = """
import tensorflow as tf
tf.config.threading.set_inter_op_parallelism_threads(1)
import multigpu
multigpu.simulate_gpus(2)
from test_first_batch import *
one, other = (trained_model(layers.ReLU()) for _ in range(2))
losses = [m.fit(X, Y, batch_size=8, verbose=0, shuffle=False).history["loss"] for m in (one, multi_gpu_model(other, 2))]
np.testing.assert_allclose(*losses, rtol=1e-5)
template = trained_model(Compares(name="compares"))
before = template.get_weights()
try:
    multi_gpu_model(template, 2).fit(X, Y, batch_size=16, verbose=0)
except ValueError as error:
    print(all(map(np.array_equal, template.get_weights(), before)), "layer 'compares'" in str(error))
"""


def trained_model(layer):
    keras.utils.set_random_seed(0)
    model = after_a_layer(layer)
    model.compile(**mean_squared())
    return model


def in_a_process(script, command=(), **variables):
    folders = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    command, surroundings = [*(command or python()), "-c", script], {**os.environ, **folders, **variables}
    return subprocess.run(command, capture_output=True, text=True, env=surroundings, timeout=300)


def test_a_process_with_one_thread_for_ops_checks_and_does_not_wait_for_ever():
    done = in_a_process(ONE_THREAD)
    assert done.stdout.split() == ["True", "True"], done.stderr


WITHIN_AN_OP = """
import tensorflow as tf
tf.config.threading.set_inter_op_parallelism_threads(2)
import multigpu
multigpu.simulate_gpus(2)
from test_first_batch import *
def called(model):
    return tf.function(lambda x: tf.py_function(model, [x], tf.float32))(X)
one, other = (trained_model(layers.ReLU()) for _ in range(2))
np.testing.assert_allclose(called(one), called(multi_gpu_model(other, 2)), rtol=1e-5)
try:
    called(multi_gpu_model(trained_model(Compares(name="compares")), 2))
except tf.errors.InvalidArgumentError as error:  # as TensorFlow passes on a ValueError of a py_function
    print("layer 'compares'" in str(error))
"""


def test_a_first_call_in_a_py_function_is_checked_with_the_threads_that_are_left():
    done = in_a_process(WITHIN_AN_OP)
    assert done.stdout.split() == ["True"], done.stderr


CLUSTERED = """
import multigpu
multigpu.simulate_gpus(3)
from test_first_batch import *
double = tf.custom_gradient(lambda x: (x * 2, lambda upstream: upstream * 2))
normal = lambda: layers.BatchNormalization(synchronized=True)
dropout, own = lambda: layers.Dropout(0.3, seed=1), lambda: layers.Lambda(double)
for make in (dropout, normal, own, lambda: Compares(name="compares")):
    try:
        models = trained_model(make()), multi_gpu_model(trained_model(make()), 3)
        losses = [m.fit(X[:12], Y[:12], batch_size=12, verbose=0, shuffle=False).history["loss"] for m in models]
        print(np.allclose(*losses, rtol=1e-5))
    except ValueError as error:
        print("layer 'compares'" in str(error))
"""


def test_what_xla_compiles_in_clusters_is_compared_without_them():
    flags = "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"  # `tf.config.optimizer.set_jit()` is the first of them
    done = in_a_process(CLUSTERED, [sys.executable], TF_XLA_FLAGS=flags)
    assert done.stdout.split() == ["True"] * 4, done.stderr


def test_the_first_call_may_be_one_for_each_element_of_a_vectorized_map():
    template = keras.Sequential([keras.Input((4,)), layers.Dense(2)])
    batches = tf.reshape(tf.constant(X), (4, 4, 4))
    np.testing.assert_allclose(
        tf.vectorized_map(multi_gpu_model(template, gpus=3), batches), tf.vectorized_map(template, batches), **ONE_CALL
    )


def test_a_part_that_a_plain_model_trains_is_refused_by_the_name_of_its_layer():
    class Plain(keras.Model):
        def __init__(self, part):
            super().__init__()
            self.part = part

        def call(self, x):
            return self.part(x)

    part = after_a_layer(Compares(name="mixes"))
    model = Plain(multi_gpu_model(part, gpus=2))
    model.compile(**mean_squared())
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)" + REFUSED.format("layer 'mixes'")):
        model.fit(X, Y, batch_size=16, verbose=0)


def test_one_row_is_no_batch_to_check_and_the_next_one_is():
    parallel = multi_gpu_model(after_a_layer(Compares(name="mixes")), gpus=2)
    parallel.compile(**mean_squared())
    parallel.train_on_batch(X[:1], Y[:1])
    with pytest.raises(ValueError, match=r"Received: layer 'mixes'. With rows 0 to 1 and 2 to 2 of the first batch"):
        parallel.train_on_batch(X[:3], Y[:3])


def test_a_switch_turns_it_off(monkeypatch):
    monkeypatch.setenv("MULTIGPU_CHECK", "0")
    template = after_a_layer(Compares(name="mixes"))
    parallel = multi_gpu_model(template, gpus=2)
    slices = np.concatenate([template(X[:8]), template(X[8:])])
    np.testing.assert_allclose(parallel(X), slices, rtol=1e-5, atol=1e-6)


class FromZero(Compares):
    """Adds what compares rows with a weight that is 0 at first."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(), initializer="zeros")

    def call(self, x):
        return x + self.scale * super().call(x)


def with_a_head_of_zeros():
    inputs = keras.Input((4,))
    return keras.Model(inputs, layers.Dense(2, kernel_initializer="zeros")(Compares(name="mixes")(inputs)))


@pytest.mark.parametrize("build", [lambda: after_a_layer(FromZero(name="mixes")), with_a_head_of_zeros])
def test_weights_of_zeros_do_not_hide_a_layer_that_mixes_rows(build):
    template = build()
    before = template.get_weights()
    parallel = multi_gpu_model(template, gpus=2)
    parallel.compile(**mean_squared())
    with pytest.raises(ValueError, match=REFUSED.format("layer 'mixes'")):
        parallel.fit(X, Y, batch_size=16, verbose=0)
    assert_same_numbers(dict(enumerate(template.get_weights())), dict(enumerate(before)))


def test_groups_of_rows_are_compared_in_slices_that_they_fit():
    parallel = multi_gpu_model(after_a_layer(FunctionLayer(deviation_of_groups, name="mixes")), gpus=3)
    parallel.compile(**mean_squared())
    with pytest.raises(ValueError, match=r"Received: layer 'mixes'. With rows 0 to 3 and 4 to 11 of the first batch"):
        parallel.fit(X[:12], Y[:12], batch_size=12, verbose=0)


def only_of_sizes(*sizes):
    def function(x):
        fits = tf.reduce_any(tf.equal(tf.shape(x)[0], sizes))
        with tf.control_dependencies([tf.debugging.Assert(fits, [x])]):
            return tf.identity(x)

    return function


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_a_batch_that_cannot_be_compared_is_said_once(run_eagerly, recwarn):
    parallel = multi_gpu_model(after_a_layer(FunctionLayer(only_of_sizes(1, 4, 12), name="of_sizes")), gpus=3)
    parallel.compile(**mean_squared(), run_eagerly=run_eagerly)
    for _ in range(4):
        parallel.train_on_batch(X[:12], Y[:12])
    told = [str(each.message) for each in recwarn if "could not be checked" in str(each.message)]
    assert len(told) == 1
    assert "and no other batch will be: a run on some of their rows ends in InvalidArgumentError: assert" in told[0]


@tf.custom_gradient
def clipped(x):
    return tf.identity(x), lambda upstream: tf.clip_by_norm(upstream, 0.01)


@ops.custom_gradient
def with_the_mean_gradient(x):
    return (
        x,
        lambda *args, upstream=None: ops.mean(args[0] if upstream is None else upstream, axis=0, keepdims=True) + 0 * x,
    )


@tf.custom_gradient
def reversed_gradient(x):
    return tf.identity(x), lambda upstream: -0.5 * upstream


def after_a_gradient(function):
    inputs = keras.Input((4,))
    layer = FunctionLayer(function, name="mixes")
    return keras.Model(inputs, layers.Dense(2)(layer(layers.Dense(4, activation="silu")(inputs))))


def like_others(x):
    """A similarity to other rows, of which only the gradient is added."""
    similar = ops.sum(ops.matmul(x, ops.transpose(x)), axis=1, keepdims=True)
    return x * (1 + 0.1 * (similar - ops.stop_gradient(similar)))


def gradient_by_rows(x):
    return ops.stop_gradient(x) + (x - ops.stop_gradient(x)) / ops.cast(ops.shape(x)[0], x.dtype)


def rounded(x):
    return x + ops.stop_gradient(ops.round(4 * x) / 4 - x)


STOPPED = {
    "by others": like_others,
    "by their number": gradient_by_rows,
    "in a branch": lambda x: tf.cond(tf.shape(x)[0] > 0, lambda: like_others(x), lambda: x),
    "in a loop": lambda x: tf.while_loop(lambda n, _: n < 1, lambda n, h: (n + 1, like_others(h)), [0, x])[1],
    "in a part that is computed again": keras.remat(like_others),
}


@pytest.mark.parametrize("function", [clipped, soak(with_the_mean_gradient), *STOPPED.values()])
def test_a_custom_gradient_that_sees_all_rows_is_refused_in_training(function):
    parallel = multi_gpu_model(after_a_gradient(function), gpus=2)
    parallel.compile(**mean_squared())
    parallel.predict(X, verbose=0)
    before = parallel.get_weights()
    with pytest.raises(
        ValueError, match=REFUSED.format("layer 'mixes'") + r".*the gradient of 'dense\w*/kernel' differs"
    ):
        parallel.fit(X, Y, batch_size=16, verbose=0)
    assert_same_numbers(dict(enumerate(parallel.get_weights())), dict(enumerate(before)))


class Beside(keras.Model):
    """A model that mixes rows by itself, beside a layer with a custom gradient."""

    def __init__(self):
        super().__init__(name="beside")
        self.custom, self.normalized = FunctionLayer(reversed_gradient), layers.BatchNormalization(synchronized=True)

    def call(self, x, training=False):
        twice = ops.reshape(ops.concatenate([x, 2 * x], axis=0), (-1, 2, 4))
        return ops.sum(self.normalized(self.custom(twice), training=training), axis=1)


def test_a_layer_with_a_custom_gradient_is_not_named_where_the_outputs_differ():
    model = Beside()
    model(X)
    parallel = multi_gpu_model(model, gpus=2)
    parallel.compile(**mean_squared())
    with pytest.raises(ValueError, match=REFUSED.format("model 'beside'") + ".*output 0 differs"):
        parallel.fit(X, X, batch_size=16, verbose=0)


@pytest.mark.parametrize("function", [reversed_gradient, rounded])
def test_a_custom_gradient_of_single_rows_has_the_numbers_of_one_device(function):
    one, template = (after_a_gradient(function) for _ in range(2))
    template.set_weights(one.get_weights())
    for model in (one, multi_gpu_model(template, gpus=3)):
        model.compile(**mean_squared())
        model.fit(X, Y, batch_size=7, shuffle=False, verbose=0)
    for weight, expected in zip(template.get_weights(), one.get_weights(), strict=True):
        np.testing.assert_allclose(weight, expected, rtol=1e-5, atol=1e-6)


def test_a_gradient_that_an_operation_of_a_functional_model_stops_is_compared():
    def build():
        inputs = keras.Input((4,))
        return keras.Model(inputs, layers.Dense(2)(like_others(layers.Dense(4)(inputs))))

    parallel = multi_gpu_model(build(), gpus=2)
    parallel.compile(**mean_squared())
    with pytest.raises(ValueError, match=r"the gradient of 'dense.*/kernel' differs"):
        parallel.fit(X, Y, batch_size=16, verbose=0)


class Phases(layers.Layer):
    """Compares rows in its second phase, and counts its calls in Python."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.compares, self.number = False, 0

    def call(self, x):
        self.number += 1
        return tf.cond(tf.shape(x)[0] > 0, lambda: x - tf.reduce_mean(x, 0), lambda: x) if self.compares else x


@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize("way", ["fit", "a call"])
def test_after_a_change_of_a_value_in_python_the_next_batch_is_checked(way, run_eagerly):
    layer = Phases(name="mixes")
    parallel = multi_gpu_model(after_a_layer(layer), gpus=2)
    parallel.compile(**mean_squared(), run_eagerly=run_eagerly)
    WAYS[way](parallel)
    layer.compares = True
    parallel.compile(**mean_squared(), run_eagerly=run_eagerly)
    with pytest.raises(ValueError, match=REFUSED.format("layer 'mixes'")):
        WAYS[way](parallel)


def test_what_a_call_itself_counts_in_python_needs_no_new_check(monkeypatch):
    made = unittest.mock.Mock(wraps=FirstBatchCheck)
    monkeypatch.setattr(call, "FirstBatchCheck", made)
    parallel = multi_gpu_model(after_a_layer(Phases()), gpus=2)
    parallel.compile(**mean_squared(), run_eagerly=True)
    parallel.fit(X, Y, batch_size=4, verbose=0)
    assert made.call_count == 1


@pytest.mark.parametrize("way", WAYS)
def test_the_switch_also_turns_off_the_check_of_a_step_that_was_refused(way, monkeypatch):
    parallel = multi_gpu_model(after_a_layer(Compares(name="mixes")), gpus=2)
    parallel.compile(**mean_squared())
    function = WAYS[way]
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="layer 'mixes'"):
        function(parallel)
    monkeypatch.setenv("MULTIGPU_CHECK", "0")
    function(parallel)


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_a_layer_that_was_mended_after_it_was_refused_is_accepted(run_eagerly):
    class Scaled(layers.Layer):
        axis = 0

        def call(self, x):
            return x / ops.max(ops.abs(x), axis=self.axis, keepdims=True)

    layer = Scaled(name="mixes")
    template = after_a_layer(layer)
    parallel = multi_gpu_model(template, gpus=2)
    parallel.compile(**mean_squared(), run_eagerly=run_eagerly)
    with pytest.raises(ValueError, match=r"'mixes'"):
        parallel(X)
    layer.axis = -1
    np.testing.assert_allclose(parallel(X), template(X), **ONE_CALL)


class CountsCalls(layers.Layer):
    calls = 0

    def call(self, x):
        type(self).calls += 1
        return x


def test_each_kind_of_call_is_checked_once(monkeypatch):
    parallel = multi_gpu_model(after_a_layer(CountsCalls()), gpus=2)
    parallel.compile(**mean_squared())
    monkeypatch.setattr(CountsCalls, "calls", 0)
    for calls in (4, 4):  # the check's trace and the step's, of training and of validation
        parallel.fit(X, Y, batch_size=5, epochs=2, validation_data=(X, Y), verbose=0)
        assert CountsCalls.calls == calls


def test_no_batch_of_a_generator_is_lost():
    batches = [(X[:size], Y[:size]) for size in (8, 8, 5)]
    one, parallel = after_a_layer(layers.ReLU()), after_a_layer(layers.ReLU())
    parallel.set_weights(one.get_weights())
    spread = multi_gpu_model(parallel, gpus=2)
    for model in (one, spread):
        model.compile(**mean_squared())
        model.fit((batch for batch in batches), steps_per_epoch=3, shuffle=False, verbose=0)
    assert int(spread.optimizer.iterations) == 3
    for weight, expected in zip(parallel.get_weights(), one.get_weights(), strict=True):
        np.testing.assert_allclose(weight, expected, rtol=1e-4, atol=1e-6)


# What is no mistake ---------------------------------------------------------------------------------------------------


def ids_and_masks():
    return keras.Sequential([keras.Input((6,), dtype="int32"), layers.Embedding(9, 4, mask_zero=True), layers.LSTM(3)])


def normalized():
    return after_a_layer(layers.BatchNormalization())


def ill_conditioned():
    """One last digit of an input moves its outputs by about 1."""
    return after_a_layer(layers.Lambda(lambda x: ops.sin(1e7 * x)))


def nearest():
    return after_a_layer(layers.Lambda(lambda x: ops.one_hot(ops.argmax(x, -1), 4)))


def in_the_other_branch(x):
    return tf.switch_case(tf.constant(0), [lambda: x, lambda: x - tf.reduce_mean(x, 0)])


TAKEN = {
    "masks": (ids_and_masks, random_ids(16, 6, below=9)),
    "BatchNormalization": (normalized, X),
    "ill-conditioned": (ill_conditioned, X),
    "argmax": (nearest, X),
    "another branch": (lambda: after_a_layer(FunctionLayer(in_the_other_branch)), X),
    "Dropout": (lambda: after_a_layer(layers.Dropout(0.5)), X),
    "noise of TensorFlow's": (lambda: after_a_layer(FunctionLayer(lambda x: x + tf.random.normal(tf.shape(x)))), X),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_one_device_gives_is_not_refused(name):
    build, x = TAKEN[name]
    template = build()
    plan = multi_gpu_model(template, gpus=2).plan
    for training in (True, False):
        batch = CallArguments((x,), {"training": training})
        check = FirstBatchCheck(TemplateState.of(template, plan), batch, plan)
        check.now(batch)
        assert check.is_done


def rows_mixed_in_a_branch(x, share=1.0):
    return tf.switch_case(tf.constant(1), [lambda: x, lambda: x - tf.cast(share, x.dtype) * tf.reduce_mean(x, 0)])


@pytest.mark.parametrize(("policy", "share"), [("mixed_float16", 0.05), ("mixed_bfloat16", 0.3)])
def test_a_type_with_three_digits_does_not_hide_that_rows_are_mixed(policy, share):
    mixes = FunctionLayer(functools.partial(rows_mixed_in_a_branch, share=share), dtype=policy, name="mixes")
    template = keras.Sequential(
        [keras.Input((4,)), layers.Dense(32, dtype=policy), mixes, layers.Dense(1, dtype=policy)]
    )
    parallel = multi_gpu_model(template, gpus=2)
    parallel.compile("sgd", "mse")
    with pytest.raises(ValueError, match=REFUSED.format("layer 'mixes'")):
        parallel.train_on_batch(X + np.repeat([0, 1], 8)[:, None], Y[:, :1])  # slices with other means


def summed_in(kind):
    """Adds sums in another type, of many rows in another order than of few."""

    def function(x):
        numbers = tf.cast(x, kind)
        few, many = tf.cumsum(numbers, 1)[:, -1:], tf.cumsum(numbers, 1, reverse=True)[:, :1]
        return x + tf.cast(tf.where(tf.shape(x)[0] > 8, many, few), x.dtype)

    return function


@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize(
    ("policy", "kind"),
    [("float64", "float32"), ("float64", "bfloat16"), ("float32", "float16"), ("float32", "bfloat16")],
)
def test_rounding_in_a_type_that_code_casts_to_is_no_difference(policy, kind, run_eagerly):
    x, y = random_rows(16, 50).astype(policy), np.zeros((16, 1))

    def train(**functions):
        stack = [FunctionLayer(function, dtype=policy, name=name) for name, function in functions.items()]
        template = keras.Sequential([keras.Input((50,), dtype=policy), *stack, layers.Dense(1, dtype=policy)])
        parallel = multi_gpu_model(template, gpus=2)
        parallel.compile("sgd", "mse", run_eagerly=run_eagerly)
        return parallel.train_on_batch(x, y)

    assert train(sums=summed_in(kind)) > 0
    with pytest.raises(ValueError, match=REFUSED.format("layer 'mixes'")):
        train(sums=summed_in(kind), mixes=rows_mixed_in_a_branch)
    with pytest.raises(ValueError, match=REFUSED.format("layer 'mixes'")):
        train(mixes=rows_mixed_in_a_branch, sums=summed_in(kind))


LEAST = {"InceptionResNetV2": 75, "InceptionV3": 75, "Xception": 71}  # rows and columns of an image
ALL = [name for name in dir(keras.applications) if name[0].isupper()]


@pytest.mark.soak
@pytest.mark.parametrize("name", ALL)
def test_the_check_of_the_first_batch_has_nothing_against_a_step_of_a_model_of_keras_applications(name):
    keras.utils.set_random_seed(1)
    size = LEAST.get(name, 32)
    template = getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=3)
    parallel = multi_gpu_model(template, gpus=3)
    parallel.compile(keras.optimizers.SGD(1e-3), "sparse_categorical_crossentropy")
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0, 255, (4, size, size, 3)).astype("float32"), rng.integers(0, 3, 4)
    before = template.get_weights()[-1]
    assert np.isfinite(parallel.train_on_batch(x, y))
    assert not np.array_equal(template.get_weights()[-1], before)
    (check,) = parallel._spread._checks.values()
    assert check.is_done


def test_where_functions_run_op_by_op_gradients_are_compared_too(recwarn):
    tf.config.run_functions_eagerly(True)
    try:
        inputs = keras.Input((4,))
        stopped = FunctionLayer(lambda x: x + tf.stop_gradient(x))(inputs)
        parallel = multi_gpu_model(keras.Model(inputs, layers.Dense(2)(stopped)), gpus=2)
        parallel.compile("sgd", "mse")
        parallel.fit(X, Y, batch_size=4, verbose=0)
    finally:
        tf.config.run_functions_eagerly(False)
    assert not [each for each in recwarn if "could not be checked" in str(each.message)]
