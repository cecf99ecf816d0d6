"""Replicas draw the noise of one device: each slice that of its rows."""

import random as python_random

import keras
import numpy as np
import pytest
import tensorflow as tf
from equality import FLOAT32, assert_same_training, mean_squared
from keras import ops, random

import multigpu
from multigpu.engines.tensorflow.replicas.scope import is_seed

LONG = np.random.default_rng(0).uniform(0.1, 1, (11, 5, 6)).astype("float32")
PER_ROW = LONG[:, 0]


def rows(x):
    return ops.shape(x)[0]


DRAWS = {  # of rows (rows, 6) and of rows of an open length (rows, length, 6)
    "uniform": lambda x, long, seed: random.uniform((rows(x), 8), seed=seed),
    "uniform of an odd width": lambda x, long, seed: random.uniform((rows(x), 3), -1, 1, seed=seed),
    "uniform, a number for each row": lambda x, long, seed: random.uniform((rows(x),), seed=seed),
    "uniform, float16": lambda x, long, seed: random.uniform((rows(x), 7), dtype="float16", seed=seed),
    "uniform, float64": lambda x, long, seed: random.uniform((rows(x), 3), dtype="float64", seed=seed),
    "uniform, several for each row": lambda x, long, seed: ops.reshape(
        random.uniform((rows(x) * 3, 5), seed=seed), (-1, 15)
    ),
    "uniform, of an open length": lambda x, long, seed: random.uniform(ops.shape(long), seed=seed),
    "uniform, of rows times length": lambda x, long, seed: ops.reshape(
        random.uniform(ops.shape(ops.reshape(long, (-1, 3))), seed=seed), ops.shape(long)
    ),
    "uniform, time first": lambda x, long, seed: ops.transpose(
        random.uniform(ops.shape(ops.transpose(long, (1, 0, 2))), seed=seed), (1, 0, 2)
    ),
    "uniform, of lengths alone": lambda x, long, seed: random.uniform(ops.shape(long)[1:], seed=seed) + 0 * long,
    "uniform, without rows": lambda x, long, seed: random.uniform((3, 6), seed=seed)[0] + 0 * x,
    "uniform, seeded by a number": lambda x, long, seed: random.uniform(ops.shape(x), seed=3),
    "uniform, from the seeds of all": lambda x, long, seed: random.uniform(ops.shape(x)),
    "from the seeds of all, in a branch": lambda x, long, seed: ops.cond(
        ops.shape(long)[1] > 1, lambda: random.uniform(ops.shape(x)), lambda: x
    ),
    "normal": lambda x, long, seed: random.normal((rows(x), 8), 1.0, 2.0, seed=seed),
    "normal of an odd width": lambda x, long, seed: random.normal((rows(x), 5), seed=seed),
    "normal, bfloat16": lambda x, long, seed: random.normal((rows(x), 5), dtype="bfloat16", seed=seed),
    "truncated normal": lambda x, long, seed: random.truncated_normal((rows(x), 5), seed=seed),
    "truncated normal, float64": lambda x, long, seed: random.truncated_normal(
        (rows(x), 5), dtype="float64", seed=seed
    ),
    "whole numbers": lambda x, long, seed: random.randint((rows(x), 3), 0, 1000, seed=seed),
    "whole numbers of 64 bits": lambda x, long, seed: random.randint((rows(x), 3), 0, 1000, dtype="int64", seed=seed),
    "dropout": lambda x, long, seed: random.dropout(x, 0.5, seed=seed),
    "dropout of whole columns": lambda x, long, seed: random.dropout(x, 0.5, noise_shape=(1, None), seed=seed),
    "dropout of whole rows": lambda x, long, seed: random.dropout(x, 0.5, noise_shape=(None, 1), seed=seed),
    "dropout in a branch": lambda x, long, seed: ops.cond(
        ops.shape(long)[1] > 1, lambda: random.dropout(x, 0.5, seed=3), lambda: x
    ),
    "dropout in a loop": lambda x, long, seed: ops.fori_loop(
        0, 2, lambda i, y: ops.reshape(random.dropout(y, 0.3, seed=3), ops.shape(y)), x
    ),
    "TensorFlow's": lambda x, long, seed: tf.random.stateless_uniform(tf.shape(x), seed=[1, 2]),
}
RARE = {  # which draw what the global batch does
    "categories": lambda x, long, seed: random.categorical(ops.log(x), 3, seed=seed),
    "gamma": lambda x, long, seed: random.gamma((rows(x), 6), x, seed=seed),
    "gamma of one shape": lambda x, long, seed: random.gamma((rows(x), 3), 2.0, seed=seed),
    "beta": lambda x, long, seed: random.beta((rows(x), 6), x, 2 * x, seed=seed),
    "binomial": lambda x, long, seed: random.binomial((rows(x), 6), ops.ones_like(x) * 9, x, seed=seed),
    "Poisson": lambda x, long, seed: tf.random.stateless_poisson(tf.shape(x), [1, 2], 9 * x, tf.float32),
    "permuted columns": lambda x, long, seed: random.shuffle(x, axis=1, seed=seed),
}
THREEFRY = {  # which XLA alone has
    "Threefry": lambda x, long, seed: tf.random.stateless_uniform(tf.shape(x), seed=[1, 2], alg="threefry")
}


class Draws(keras.layers.Layer):
    """All of some draws, one after the other, each from seeds of its own."""

    def __init__(self, draws):
        super().__init__()
        self.draws = list(draws.values())
        self.seeds = [random.SeedGenerator(number) for number in range(len(draws))]

    def call(self, inputs):
        drawn = [draw(*inputs, seed) for draw, seed in zip(self.draws, self.seeds, strict=True)]
        return [ops.cast(noise, "float64") for noise in drawn]


def build(draws):
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(7)
    inputs = [keras.Input((6,)), keras.Input((None, 6))]
    return keras.Model(inputs, Draws(draws)(inputs))


OPEN = [tf.TensorSpec((None, 6)), tf.TensorSpec((None, None, 6))]


def drawn(draws, batches, call, gpus=None):
    """What is drawn in calls with so many rows of such lengths, by the names of the draws; and the seeds after them."""
    template = build(draws)
    model = call(multigpu.multi_gpu_model(template, gpus=gpus) if gpus else template)
    outputs = [model(PER_ROW[:rows], LONG[:rows, :length]) for rows, length in batches]
    return outputs, [variable.numpy() for variable in template.non_trainable_variables]


def assert_drawn_as_on_one_device(draws, batches, call, one_device):
    (expected, expected_seeds), (outputs, seeds) = drawn(draws, batches, one_device), drawn(draws, batches, call, 4)
    for batch, *noise in zip(batches, expected, outputs, strict=True):
        differ = [name for name, *pair in zip(draws, *noise, strict=True) if not np.array_equal(*pair)]
        assert not differ, batch
    np.testing.assert_array_equal(seeds, expected_seeds)


def op_by_op(model):
    return lambda *x: model(list(x))


def eagerly(model):
    model.compile(run_eagerly=True)
    return op_by_op(model)


def traced(model):
    return tf.function(lambda *x: model(list(x)), input_signature=OPEN, autograph=False)


def compiled(model):
    model.compile(jit_compile=True)
    jit = None if hasattr(model, "plan") else True  # of what runs on several devices, each replica is compiled
    return tf.function(lambda *x: model(list(x)), input_signature=OPEN, autograph=False, jit_compile=jit)


def test_each_draw_is_that_of_one_device_and_seeds_advance_alike():
    uneven, fewer_than_devices, one_row, shorter = (11, 5), (3, 5), (1, 5), (8, 4)
    batches = [uneven, fewer_than_devices, one_row, shorter]
    assert_drawn_as_on_one_device(DRAWS | RARE, batches, call=traced, one_device=op_by_op)


def test_so_it_is_op_by_op_where_all_sizes_are_numbers():
    as_many_as_rows, several_for_a_row = (8, 3), (11, 5)  # on four devices, of which one has two rows or three
    batches = [as_many_as_rows, several_for_a_row, (3, 5), (1, 5), (8, 4)]
    assert_drawn_as_on_one_device(DRAWS | RARE, batches, call=eagerly, one_device=op_by_op)


def test_what_xla_compiles_draws_as_one_device_does_with_xla():
    kinds = ["uniform", "uniform of an odd width", "uniform, of rows times length", "normal of an odd width"]
    kinds += ["truncated normal", "whole numbers", "dropout of whole columns"]
    draws = {name: DRAWS[name] for name in kinds}
    assert_drawn_as_on_one_device(draws | THREEFRY, [(11, 5)], call=compiled, one_device=compiled)


def test_a_template_with_a_branch_draws_as_one_device_does_without_xla():
    draws = {name: DRAWS[name] for name in ("from the seeds of all, in a branch", "uniform", "whole numbers")}
    assert_drawn_as_on_one_device(draws, [(11, 5)], call=compiled, one_device=op_by_op)


def of_whole_rows(x, long, seed):
    return tf.random.uniform(tf.shape(x)[:1], 0, 10**9, tf.int64)[:, None] + tf.zeros(tf.shape(x), tf.int64)


KEEPING_STATE = {  # in TensorFlow, which one device does not show
    "uniform": lambda x, long, seed: tf.random.uniform(tf.shape(x), seed=1),
    "whole numbers": of_whole_rows,
    "normal": lambda x, long, seed: tf.random.normal(tf.shape(x), seed=1),
    "truncated normal": lambda x, long, seed: tf.random.truncated_normal(tf.shape(x)),
    "dropout": lambda x, long, seed: tf.nn.dropout(tf.ones((tf.shape(x)[0], 60)), 0.5, seed=1),
}
WITHOUT_ROWS = {"without rows": lambda x, long, seed: tf.random.uniform([6]) + 0 * x}


@pytest.mark.parametrize("call", [traced, eagerly, compiled])
def test_where_tensorflow_keeps_a_state_each_row_has_noise_of_its_own_in_each_step(call):
    steps, _ = drawn(KEEPING_STATE, [(11, 5)] * 2, call, gpus=4)
    for number, name in enumerate(KEEPING_STATE):
        rows = {tuple(row) for step in steps for row in np.asarray(step[number])}
        assert len(rows) == 22, name


def test_and_noise_without_rows_is_the_same_for_all_rows():
    (step,), _ = drawn(WITHOUT_ROWS, [(11, 5)], traced, gpus=4)
    assert len(np.unique(step, axis=0)) == 1


# Trainings ------------------------------------------------------------------------------------------------------------

X, Y = np.tile(PER_ROW, (2, 1)), np.tile(PER_ROW[:, :2], (2, 1))


def noisy():
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(7)
    noise = [keras.layers.Dropout(0.3), keras.layers.GaussianNoise(0.2), keras.layers.Lambda(of_all_and_a_number)]
    return keras.Sequential([keras.Input((6,)), keras.layers.Dense(5, "tanh"), *noise, keras.layers.Dense(2)])


def of_all_and_a_number(x):
    return x + 0.1 * random.uniform(ops.shape(x)) + 0.1 * random.normal(ops.shape(x), seed=3)


WAYS = {
    "several steps in one": {"steps_per_execution": 2},
    "op by op": {"run_eagerly": True},
    "in a graph": {"run_eagerly": False},
    "XLA": {"jit_compile": True},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_training_with_noise_is_that_of_one_device(way):
    assert_same_training(noisy, X, Y, compile=lambda: {**mean_squared(), **WAYS[way]}, only_fit=True)


@pytest.mark.parametrize("way", WAYS)
def test_seeds_set_after_compile_count_as_on_one_device_and_nothing_else_is_drawn_from_python(way):
    def numbers(gpus):
        template = noisy()
        model = multigpu.multi_gpu_model(template, gpus=gpus) if gpus else template
        model.compile(**{**mean_squared(), **WAYS[way]})
        of_steps, of_python = [], []
        for seed in (5, 9):
            keras.utils.set_random_seed(seed)  # which takes Keras' default generator away
            of_steps += model.fit(X, Y, batch_size=8, verbose=0).history["loss"]
            of_python.append(python_random.random())
        return [*of_steps, *model.predict(X, verbose=0)], of_python

    (expected, python_of_one), (found, python) = numbers(None), numbers(3)
    for number, of_one in zip(found, expected, strict=True):
        np.testing.assert_allclose(number, of_one, **FLOAT32)
    assert python == python_of_one


def test_seeds_set_between_direct_calls_count_as_on_one_device():
    def numbers(gpus):
        template = noisy()
        model = multigpu.multi_gpu_model(template, gpus=gpus) if gpus else template
        outputs = []
        for seed in (5, 9, 5):
            keras.utils.set_random_seed(seed)
            outputs += [model(X, training=True), model(X[:3])]
        return outputs

    for number, of_one in zip(numbers(3), numbers(None), strict=True):
        np.testing.assert_allclose(number, of_one, **FLOAT32)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float64"])
@pytest.mark.parametrize("run_eagerly", [False, True])
def test_noise_is_that_of_one_device_bit_for_bit_in_every_precision(policy, run_eagerly):
    keras.config.set_dtype_policy(policy)
    try:
        layers = [keras.layers.Dropout(0.5, seed=1), keras.layers.GaussianNoise(0.5, seed=2)]
        layers += [keras.layers.GaussianDropout(0.5, seed=3), keras.layers.AlphaDropout(0.5, seed=4)]
        inputs = keras.Input((6,))
        template = keras.Model(inputs, [layer(inputs, training=True) for layer in layers])
        assert {output.dtype for output in template.outputs} == {keras.config.dtype_policy().compute_dtype}
        before = [layer.seed_generator.state.numpy() for layer in layers]
        expected = [template(PER_ROW[:rows]) for rows in (11, 3, 1)]
        for layer, state in zip(layers, before, strict=True):
            layer.seed_generator.state.assign(state)
        parallel = multigpu.multi_gpu_model(template, gpus=4)
        parallel.compile(run_eagerly=run_eagerly)
        for rows, of_one in zip((11, 3, 1), expected, strict=True):
            for noise, known in zip(parallel(PER_ROW[:rows]), of_one, strict=True):
                np.testing.assert_array_equal(noise, known)
    finally:
        keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize("in_a_graph", [False, True])
def test_a_loop_of_ones_own_has_the_noise_of_one_device_and_leaves_its_generators_alike(in_a_graph):
    def trained(gpus):
        template = noisy()
        model, optimizer = (
            multigpu.multi_gpu_model(template, gpus=gpus) if gpus else template,
            keras.optimizers.SGD(0.1),
        )
        optimizer.build(template.trainable_variables)

        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
            optimizer.apply(tape.gradient(loss, template.trainable_variables))
            return loss

        step = tf.function(step, reduce_retracing=True) if in_a_graph else step
        losses = [float(step(tf.constant(X[:rows]), tf.constant(Y[:rows]))) for rows in (11, 3, 1)]
        return [*losses, *(variable.numpy() for variable in template.variables)]

    for number, of_one in zip(trained(3), trained(None), strict=True):
        np.testing.assert_allclose(number, of_one, **FLOAT32)


@pytest.mark.quick
def test_without_training_nothing_is_dropped():
    dropout = keras.Sequential([keras.Input((6,)), keras.layers.Dropout(0.5)])
    parallel = multigpu.multi_gpu_model(dropout, gpus=4)
    np.testing.assert_array_equal(parallel.predict(PER_ROW, verbose=0), PER_ROW)


def test_seeds_are_recognised_by_the_name_that_keras_gives_them():
    assert is_seed(keras.random.SeedGenerator(1).state)
    assert not any(map(is_seed, keras.layers.BatchNormalization().weights))
