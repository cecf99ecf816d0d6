"""One template, made parallel and trained from both languages. Run by `tests/r/embedded/test_embedded_r.py`."""

import keras
import numpy as np
from equality import FLOAT32, dense_model, measured, random_rows

from multigpu import multi_gpu_model
from multigpu.embedded_r import call, run

X, Y = random_rows(22, 3), random_rows(22, 2, seed=1)  # 22 rows in batches of 8 leave an uneven last batch


def twin():
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(0)
    noise = [keras.layers.Dropout(0.3), keras.layers.GaussianNoise(0.1)]
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, "tanh"), *noise, keras.layers.Dense(2)])


def fit_in_python(model):
    return model.fit(X, Y, batch_size=8, epochs=1, shuffle=False, verbose=0)


def fit_in_r(model):
    return call("fit", model, X, Y, batch_size=8, epochs=1, shuffle=False, verbose=0)


def test_both_languages_make_the_same_plan_for_one_template():
    template = dense_model()
    for r, python in (
        ({}, {}),
        ({"gpus": 3.0}, {"gpus": 3}),
        ({"gpus": [0, 2]}, {"gpus": [0, 2]}),
        ({"gpus": ["CPU:1", "CPU:3"]}, {"gpus": ["CPU:1", "CPU:3"]}),
        ({"gpus": 2, "cpu_merge": False}, {"gpus": 2, "cpu_merge": False}),
        ({"gpus": 2, "cpu_relocation": True}, {"gpus": 2, "cpu_relocation": True}),
    ):
        of_r, of_python = call("multi_gpu_model", template, **r), multi_gpu_model(template, **python)
        assert type(of_r) is type(of_python)
        assert of_r.plan == of_python.plan
        assert of_r.template is of_python.template is template


def test_training_from_either_side_alternately_gives_the_weights_of_one_device():
    one = twin()
    one.compile(**measured())
    template = twin()
    parallel = call("multi_gpu_model", template, gpus=3)
    call("compile", parallel, optimizer=measured()["optimizer"], loss="mse", metrics=["mae"])
    for fit in (fit_in_r, fit_in_python, fit_in_r, fit_in_python):
        expected, received = fit_in_python(one), fit(parallel)
        for name, values in expected.history.items():
            np.testing.assert_allclose(received.history[name], values, **FLOAT32)
        assert_same_weights(template, one)
    assert int(parallel.optimizer.iterations) == int(one.optimizer.iterations) == 12
    np.testing.assert_allclose(call("predict", parallel, X), one.predict(X, verbose=0), **FLOAT32)


def test_parallel_models_of_both_languages_train_one_template_in_turn():
    one = twin()
    one.compile(**measured())
    template = twin()
    template.compile(**measured())
    of_r, of_python = call("multi_gpu_model", template, gpus=2), multi_gpu_model(template, gpus=2)
    for model, fit in ((of_r, fit_in_r), (of_python, fit_in_python), (of_r, fit_in_python), (of_python, fit_in_r)):
        fit_in_python(one)
        fit(model)
        assert_same_weights(template, one)


def test_a_callback_of_r_is_called_from_fit_of_python_with_the_weights_trained_so_far():
    template = twin()
    parallel = multi_gpu_model(template, gpus=2)
    parallel.compile(**measured())
    note = run(
        """
        seen <- list()
        function(epoch, logs) {
          seen[[epoch + 1]] <<- list(loss = logs$loss, weights = model$get_weights()[[1]])
        }
        """,
        model=template,
    )
    weights = []

    def both(epoch, logs):
        note(epoch, logs)
        weights.append(template.get_weights()[0])

    callback = keras.callbacks.LambdaCallback(on_epoch_end=both)
    history = parallel.fit(X, Y, epochs=3, verbose=0, callbacks=[callback])
    seen = run("seen")
    assert [each["loss"] for each in seen] == history.history["loss"]
    for each, expected in zip(seen, weights, strict=True):
        np.testing.assert_array_equal(each["weights"], expected)
    assert not np.array_equal(weights[0], weights[2])


def test_a_loss_of_r_trains_in_python_like_that_of_python():
    one, template = twin(), twin()
    one.compile("sgd", loss=lambda y, prediction: keras.ops.mean((y - prediction) ** 2))
    parallel = multi_gpu_model(template, gpus=2)
    call("compile", parallel, optimizer="sgd", loss=run("function(y_true, y_pred) mean((y_true - y_pred)^2)"))
    for model in (one, parallel):
        fit_in_python(model)
    assert_same_weights(template, one)


def assert_same_weights(model, other):
    for weight, expected in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(weight, expected, **FLOAT32)
