"""Where a device runs out of memory, the error says which, how many rows it had, and what to try."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from equality import assert_same

from multigpu import multi_gpu_model

DEVICES = ["CPU:2", "CPU:3"]
ABSURD = 10**13  # floats: more than any machine has


class Greedy(keras.layers.Layer):
    """Asks for more memory than there is, for more rows than it can stand."""

    def __init__(self, most):
        super().__init__()
        self.most = most

    def call(self, x):
        wanted = tf.where(tf.shape(x)[0] > self.most, tf.constant(ABSURD, tf.int64), 1)
        return x + 1e-30 * tf.reduce_min(tf.random.uniform([wanted]))  # TensorFlow leaves out what is always zero


class Weak(Greedy):
    """Fails as if it had asked, without the ten seconds for which TensorFlow hopes that memory will be freed."""

    def call(self, x):
        return tf.ensure_shape(tf.numpy_function(self.check, [x], tf.float32), x.shape)

    def check(self, x):
        if len(x) > self.most:
            raise MemoryError("OOM when allocating tensor on /job:localhost/replica:0/task:0/device:CPU:3")
        return x


def model_that_stands(most, layer=Weak):
    model = keras.Sequential([keras.Input((3,)), layer(most), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    return model


X, Y = np.ones((24, 3), "float32"), np.ones((24, 2), "float32")
ADVICE = (
    "Expected batches that fit into the memory of every device. Received: a batch of {rows} rows, {share} per replica, "
    "which does not fit on {device}. Try `batch_size={smaller}`; `multigpu.estimate()` shows what takes how much "
    "memory. The template keeps its weights and can be used.\n\nTensorFlow's error: "
)


def told(work):
    with pytest.raises(tf.errors.ResourceExhaustedError) as error:
        work()
    return error.value.message


def batches(rows):
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(rows)


@pytest.mark.parametrize(
    ("verb", "rows"),
    [
        (lambda model: model.fit(X, Y, batch_size=16, verbose=0), 16),
        (lambda model: model.fit(X, Y, verbose=0), 24),
        (lambda model: model.fit(batches(20), shuffle=False, verbose=0), 20),
        (lambda model: model.fit(X[:4], Y[:4], validation_data=(X, Y), batch_size=18, verbose=0), 18),
        (lambda model: model.predict(X, batch_size=12, verbose=0), 12),
        (lambda model: model.train_on_batch(X, Y), 24),
    ],
)
def test_the_error_names_device_rows_and_a_batch_size_to_try(verb, rows):
    model = model_that_stands(most=4)
    message = told(lambda: verb(multi_gpu_model(model, gpus=DEVICES)))
    assert message.startswith(ADVICE.format(rows=rows, share=rows // 2, device="CPU:3", smaller=rows // 4 * 2))
    assert "OOM when allocating tensor" in message


@pytest.mark.quick
def test_the_device_that_ran_out_of_memory_is_named_and_the_template_is_usable():
    model = model_that_stands(most=4, layer=Greedy)
    before = model.get_weights()
    message = told(lambda: multi_gpu_model(model, gpus=DEVICES).fit(X, Y, batch_size=9, verbose=0))
    assert message.startswith(ADVICE.format(rows=9, share=5, device="CPU:2", smaller=4))  # CPU:3 has four rows
    assert "OOM when allocating tensor" in message
    assert_same(model.get_weights(), before)
    assert model.predict(X, batch_size=4, verbose=0).shape == (24, 2)


def test_the_batch_size_that_is_advised_works():
    parallel = multi_gpu_model(model_that_stands(most=4), gpus=DEVICES)
    told(lambda: parallel.fit(X, Y, batch_size=16, verbose=0))
    parallel.fit(X, Y, batch_size=8, verbose=0)


def test_a_batch_that_fits_on_several_devices_only_is_checked_by_fewer_rows():
    class Compares(Weak):
        def call(self, x):
            return tf.map_fn(lambda row: row - tf.reduce_mean(x), super().call(x))

    parallel = multi_gpu_model(model_that_stands(most=4, layer=Compares), gpus=DEVICES)
    with pytest.raises(ValueError, match="With rows 0 to 1 and 2 to 3 of the first batch in separate slices"):
        parallel.fit(X * np.arange(24)[:, None], Y, batch_size=8, verbose=0)


def test_one_row_per_replica_leaves_other_remedies():
    message = told(lambda: multi_gpu_model(model_that_stands(most=0), gpus=DEVICES).train_on_batch(X[:2], Y[:2]))
    assert "a batch of 2 rows, 1 per replica" in message
    assert "Try the dtype policy 'mixed_float16', or a smaller model;" in message


def test_of_a_generator_the_rows_are_not_known():
    def generator():
        while True:
            yield X, Y

    message = told(
        lambda: multi_gpu_model(model_that_stands(most=4), gpus=DEVICES).fit(
            generator(), steps_per_epoch=1, shuffle=False
        )
    )
    assert "Received: one that does not fit on CPU:" in message
    assert "Make the batches smaller." in message
