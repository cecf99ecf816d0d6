"""A copy of a parallel model is parallel; where only its template would come out, it is refused."""

import copy
import pickle
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from equality import FLOAT32
from keras.src.wrappers.sklearn_wrapper import SKLBase

from multigpu import multi_gpu_model

X = np.random.default_rng(0).normal(size=(7, 4)).astype("float32")
Y = X[:, :2]


def dense():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, kernel_initializer="ones")])


def compiled(model):
    model.compile(keras.optimizers.Adam(0.1), "mse")
    return model


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_is_parallel_and_trains_on_from_the_same_state_by_itself(copied):
    parallel, plain = compiled(multi_gpu_model(dense(), gpus=3)), compiled(dense())
    for model in (parallel, plain):
        model.train_on_batch(X, Y)
    before = parallel.get_weights()
    again = copied(parallel)
    assert type(again) is type(parallel)
    assert again.plan == parallel.plan
    for model in (again, plain):
        model.train_on_batch(X, Y)
    for ours, theirs in zip(again.template.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, **FLOAT32)
    for now, then in zip(parallel.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)


def around(parallel):
    x = keras.Input((4,))
    return keras.Model(x, parallel(x))


@pytest.mark.parametrize(
    "write",
    [pickle.dumps, lambda parallel: pickle.dumps(around(parallel)), lambda parallel: copy.deepcopy(around(parallel))],
    ids=["pickled", "pickled inside of another model", "copied inside of another model"],
)
def test_what_would_leave_the_devices_behind_is_refused(write):
    parallel = multi_gpu_model(dense(), gpus=3)
    with pytest.raises(ValueError, match="to be pickled") as refused:
        write(parallel)
    assert str(refused.value) == (
        "Expected a plain model, such as the template, to be pickled, or copied inside of another model. "
        f"Received: {parallel!r}. Pickle `parallel.template`, and pass the unpickled model to `multi_gpu_model()`."
    )
    again = multi_gpu_model(pickle.loads(pickle.dumps(parallel.template)), gpus=3)
    np.testing.assert_array_equal(again.get_weights()[0], parallel.get_weights()[0])


def test_a_wrapper_for_scikit_learn_which_would_train_a_plain_clone_is_refused():
    parallel = compiled(multi_gpu_model(dense(), gpus=2))
    with pytest.raises(ValueError, match=r"Use `model=lambda X, y: multi_gpu_model\(build\(\)\)`"):
        SKLBase._get_model(SimpleNamespace(model=parallel), X, Y)  # all of it that needs no scikit-learn
    assert SKLBase._get_model(SimpleNamespace(model=lambda **_: parallel, model_kwargs={}), X, Y) is parallel
