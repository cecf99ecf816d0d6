"""TensorFlow's own files of a parallel model are those of its template, and any of both restores any of both."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from equality import ONE_CALL

from multigpu import multi_gpu_model

X = np.random.default_rng(0).normal(size=(7, 3)).astype("float32")


def plain():
    layers = [keras.layers.Dense(4), keras.layers.BatchNormalization(), keras.layers.Dense(2)]
    return keras.Sequential([keras.Input((3,)), *layers])


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.parts = [keras.layers.Dense(4), keras.layers.Dense(2)]

    def call(self, x):
        return self.parts[1](self.parts[0](x))


def subclassed():
    model = Subclassed()
    model(X)
    return model


def around(parallel):
    """A model with another one inside."""
    x = keras.Input((3,))
    return keras.Model(x, (multi_gpu_model(plain(), gpus=3) if parallel else plain())(x))


def made(build, parallel):
    if build is around:
        return around(parallel)
    return multi_gpu_model(build(), gpus=3) if parallel else build()


def trained(model):
    model.compile(keras.optimizers.Adam(0.1), "mse")
    model.train_on_batch(X, np.ones((7, 2)))
    return model


@pytest.mark.parametrize("build", [plain, subclassed, around])
@pytest.mark.parametrize("saved", [False, True], ids=["plain", "parallel"])
def test_a_checkpoint_of_either_restores_either(build, saved, tmp_path):
    source = trained(made(build, saved))
    path = tf.train.Checkpoint(model=source, optimizer=source.optimizer).save(tmp_path / "checkpoint")
    for parallel in (False, True):
        target = trained(made(build, parallel))
        status = tf.train.Checkpoint(model=target, optimizer=target.optimizer).restore(path)
        status.assert_existing_objects_matched()
        for ours, theirs in zip(target.variables, source.variables, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(target.optimizer.variables[2], source.optimizer.variables[2])


def test_a_checkpoint_has_the_same_keys_and_waits_for_what_is_made_later(tmp_path):
    template, twin = plain(), plain()
    parallel = multi_gpu_model(template, gpus=2)
    of_both = [tf.train.Checkpoint(model=model).save(tmp_path / name) for model, name in ((parallel, "p"), (twin, "t"))]
    one, other = ([name for name, _ in tf.train.list_variables(path)] for path in of_both)
    assert one == other
    trained(twin)
    path = tf.train.Checkpoint(model=twin).save(tmp_path / "trained")
    tf.train.Checkpoint(model=parallel).restore(path)  # has the optimizer's state, for which there is no optimizer yet
    parallel.compile(keras.optimizers.Adam(0.1), "mse")
    assert parallel.optimizer.iterations == 1


def test_what_tensorflow_exports_of_it_runs_without_its_devices(tmp_path):
    template = plain()
    parallel = multi_gpu_model(template, gpus=3)
    expected = template.predict(X, verbose=0)
    tf.saved_model.save(parallel, tmp_path / "saved")
    archive = keras.export.ExportArchive()
    archive.track(parallel)
    archive.add_endpoint("serve", lambda x: parallel(x, training=False) * 2, [tf.TensorSpec((None, 3))])
    archive.write_out(tmp_path / "archive", verbose=False)
    module = tf.Module()
    module.model = parallel
    module.serve = tf.function(parallel, input_signature=[tf.TensorSpec((None, 3))])
    tf.saved_model.save(module, tmp_path / "module")
    saved, archive, module = (tf.saved_model.load(tmp_path / name) for name in ("saved", "archive", "module"))
    (served,) = saved.signatures["serving_default"](tf.constant(X)).values()
    for values in (served, archive.serve(X) / 2, module.serve(X)):
        np.testing.assert_allclose(values, expected, **ONE_CALL)
    (function,) = module.serve.concrete_functions
    assert not any("CPU:1" in op.device or "CPU:2" in op.device for op in function.graph.get_operations())
