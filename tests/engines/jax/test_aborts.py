"""No model ends the process: XLA aborts it where a sort has unevenly divided rows and indices that it cannot take.

It also aborts where a Fourier transform has too few elements on a device, where a reshape makes other rows of unevenly
divided ones, and where the windows of a convolution or of pooling run along divided rows.

Each case runs in a process of its own, beside its twin on one device.
"""

import subprocess
import sys

import pytest

PROGRAM = """
import os
os.environ["KERAS_BACKEND"] = "jax"
import keras, multigpu, numpy as np
from keras import layers, ops
multigpu.simulate_gpus({gpus})
rng = np.random.default_rng(0)
x, y = rng.normal(size=(8, 6)).astype("float32"), rng.normal(size=({rows}, 6)).astype("float32")

class Own(layers.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(8, 1, 2), initializer="glorot_uniform")

    def call(self, x):
        own = self
        return {call}

def train(gpus):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((6,)), layers.Dense(6), Own(), *{then}])
    used = multigpu.multi_gpu_model(model, gpus) if gpus else model
    used.compile(keras.optimizers.SGD(0.1), lambda y, p: ops.mean(ops.square(y[: ops.shape(p)[0]] - p)), **{how})
    for rows in {sizes}:
        used.train_on_batch(x[:rows], y[:rows])
    {loop}
    return model.get_weights()

for one, other in zip(train({gpus}), train(None)):
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
print("the same")
"""

LOOP = """
    import jax
    def loss(w, x):
        return ops.mean(ops.square(used.stateless_call(w, [v.value for v in model.non_trainable_variables], x)[0]))
    step = jax.jit(jax.grad(loss))
    for rows in (8, 7):
        gradients = step([v.value for v in model.trainable_variables], x[:rows])
        for v, g in zip(model.trainable_variables, gradients): v.assign(np.asarray(v) - 0.1 * np.asarray(g))
"""

CALLS = {
    "sort": "ops.sort(x, axis=-1) * ops.arange(6.0)",
    "sort of rows": "ops.sort(x, axis=0) * ops.arange(6.0)",
    "cut, then sort": "ops.sort(x[1:], axis=-1) * ops.arange(6.0)",
    "median": "x - ops.median(x, axis=-1, keepdims=True)",
    "quantile": "x * ops.quantile(x, 0.3, axis=0, keepdims=True)",
    "cut, then top k": "ops.concatenate([ops.top_k(x[1:], 3)[0]] * 2, axis=-1)",
    "sort in a loop": "ops.scan(lambda c, _: (ops.sort(c[::-1]) * ops.arange(6.0) * 0.3, None), x, ops.arange(3.0))[0]",
    "sort in a branch": "ops.cond(ops.sum(x) > -1e6, lambda: ops.sort(x[1:]) * ops.arange(6.0), lambda: x[1:])",
    "scattered rows": "ops.scatter_update(x, [[0], [2]], ops.ones((2, 6))) * "
    "ops.take_along_axis(x, ops.argsort(x), axis=-1)",
    "a Fourier transform of rows": "ops.transpose(ops.fft((ops.transpose(x), ops.transpose(0.3 * x)))[0])",
    "rows at numbers of 16 bits": "ops.take(x, ops.cast(ops.argsort(x[:, 0]), 'int16'), axis=0) + x",
    "rows at numbers of 8 bits": "ops.take(x, ops.cast(ops.argsort(x[:, 0]), 'int8'), axis=0) + x",
    "segments": "ops.segment_sum(x, ops.arange(ops.shape(x)[0]) // 2, 8)[: ops.shape(x)[0]]",
}


def run(call, how="{}", loop="", then="[]", gpus=4, sizes=(8, 7, 5), first=""):
    program = first + PROGRAM.format(call=call, how=how, loop=loop, then=then, gpus=gpus, sizes=sizes, rows=8)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("name", CALLS)
def test_uneven_rows(name):
    done = run(CALLS[name])
    assert (done.returncode, done.stdout) == (0, "the same\n"), done.stderr[-2000:]


@pytest.mark.parametrize("how", ["{'jit_compile': False}", "{'run_eagerly': True}"])
def test_steps_that_are_not_compiled(how):
    done = run(CALLS["cut, then sort"], how)
    assert (done.returncode, done.stdout) == (0, "the same\n"), done.stderr[-2000:]


PADDED = """
import keras, jax, multigpu, numpy as np
multigpu.simulate_gpus(4)

class Padded(keras.layers.Layer):
    def call(self, x):
        return jax.lax.pad(x, 0.0, ((-1, 0, 1), (0, 0, 0)))

model = keras.Sequential([keras.Input((6,)), Padded()])
parallel, x = multigpu.multi_gpu_model(model, 4), np.arange(48, dtype="float32").reshape(8, 6)
parallel.compile("sgd", "mse", **{how})
np.testing.assert_array_equal(parallel.predict_on_batch(x), model(x))
print(parallel.test_on_batch(x, np.zeros((14, 6))) > 0)
"""


@pytest.mark.parametrize("how", ["{}", "{'jit_compile': False}", "{'run_eagerly': True}"])
def test_rows_that_are_cut_off_and_put_apart(how):  # aborted where such a step is not compiled
    done = subprocess.run([sys.executable, "-c", PADDED.replace("{how}", how)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr[-2000:]


def test_numbers_of_64_bits():  # in the Embedding of an input of integers, too
    wide = "jax.config.update('jax_enable_x64', True)"
    done = run("ops.take(x, ops.argsort(x[:, 0]).astype('int64'), axis=0) + x", first=f"import jax; {wide}")
    assert (done.returncode, done.stdout) == (0, "the same\n"), done.stderr[-2000:]


@pytest.mark.parametrize("name", ["cut, then sort", "a Fourier transform of rows"])
def test_a_loop_of_ones_own(name):
    done = run(CALLS[name], loop=LOOP)
    assert (done.returncode, done.stdout) == (0, "the same\n"), done.stderr[-2000:]


@pytest.mark.parametrize("gpus", [3, 6])
@pytest.mark.parametrize("layer", ["Conv1D(3, 2)", "DepthwiseConv1D(2)"])
def test_other_rows_of_uneven_ones(gpus, layer):
    call, then = "ops.reshape(x, (-1, 3, 1))[: ops.shape(x)[0]]", f"[layers.{layer}, layers.Flatten(), layers.Dense(6)]"
    done = run(call, then=then, gpus=gpus, sizes=(8, 5, 4, 2))
    assert (done.returncode, done.stdout) == (0, "the same\n"), done.stderr[-2000:]


def test_other_rows_of_fewer_than_there_are_devices():  # aborted in the gradient of a grouped convolution
    call = "ops.reshape(ops.tile(x[:, :4], (1, 2)), (-1, 2, 2))[: ops.shape(x)[0]]"
    then = "[layers.Conv1D(4, 3, padding='same', groups=2), layers.Flatten(), layers.Dense(6)]"
    done = run(call, then=then, gpus=3, sizes=(2,))
    assert (done.returncode, done.stdout) == (0, "the same\n"), done.stderr[-2000:]


WINDOWS = {  # along rows: (features, rows, 1)
    "convolution": "ops.conv(ops.tile(x, (4, 1, 1)), own.kernel[: x.shape[1]], strides=2)",
    "convolution of channels": "ops.depthwise_conv(ops.tile(x, (4, 1, 1)), own.kernel[: x.shape[1]], strides=2)",
    "largest": "ops.max_pool(x, 3, 1)",
    "parts": "ops.extract_sequences(x[..., 0], x.shape[1], 2)",
}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("gpus", [3, 4])
def test_windows_along_rows(name, gpus):
    call = f"(lambda x: ops.transpose(ops.reshape({WINDOWS[name]}, (6, -1)))[:5])(ops.transpose(x)[..., None])"
    done = run(call, gpus=gpus, sizes=(8, 6))
    assert (done.returncode, done.stdout) == (0, "the same\n"), done.stderr[-2000:]


@pytest.mark.parametrize("how", ["{'jit_compile': False}", "{}"])
def test_windows_along_rows_op_by_op_or_in_a_loop_of_ones_own(how):
    both = f"ops.concatenate([ops.conv(x, own.kernel[: x.shape[1], ..., :1]), {WINDOWS['largest']}], axis=-2)"
    call = f"(lambda x: ops.transpose(ops.reshape({both}, (6, -1)))[:5])"
    done = run(f"{call}(ops.transpose(x)[..., None])", how, loop="" if "jit" in how else LOOP, sizes=(8,))
    assert (done.returncode, done.stdout) == (0, "the same\n"), done.stderr[-2000:]


def test_windows_along_rows_in_a_loop_of_ones_own_with_as_many_features_as_rows():
    features = "ops.transpose(ops.concatenate([x, x[:, :2]], axis=1))[..., None]"
    done = run(f"ops.transpose(ops.max_pool({features}, 3, 1, 'same')[:6, :, 0])", loop=LOOP, sizes=())
    assert (done.returncode, done.stdout) == (0, "the same\n"), done.stderr[-2000:]
