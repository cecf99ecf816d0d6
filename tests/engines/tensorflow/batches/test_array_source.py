"""Large arrays that are cut batch by batch train as the same arrays do in Keras' own `fit`, bit by bit."""

import threading

import keras
import numpy as np
import pytest
from cases import soak

import multigpu
from multigpu.engines.tensorflow.batches import array_source, fit_arguments
from multigpu.engines.tensorflow.batches.array_source import ArrayOwner, batches, take_rows
from multigpu.r import interface as r_interface


@pytest.fixture(autouse=True)
def every_array_is_large(monkeypatch):
    monkeypatch.setattr(fit_arguments, "LARGE", 1)


def arrays(rows=103):
    rng = np.random.default_rng(0)
    x = np.asfortranarray(rng.normal(size=(rows, 4)))
    return {"x": x, "y": rng.normal(size=(rows, 1)), "sample_weight": rng.uniform(size=rows)}


def one_layer_model():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", weighted_metrics=["mae"])
    return model


def trained(fit, build=one_layer_model, **arguments):
    keras.utils.set_random_seed(1)
    model = build()
    history = fit(model, batch_size=8, epochs=3, verbose=0, **arguments).history
    return history, model.get_weights()


def assert_as_in_keras(build=one_layer_model, **arguments):
    history, weights = trained(r_interface.fit, build, **arguments)
    history_of_keras, weights_of_keras = trained(lambda model, **rest: model.fit(**rest), build, **arguments)
    assert history == history_of_keras
    for ours, theirs in zip(weights, weights_of_keras, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("shuffle", [True, False, "batch"])
def test_rows_come_in_the_order_of_keras_for_the_same_seed(shuffle):
    assert_as_in_keras(**arguments_without_weights(), shuffle=shuffle)


def arguments_without_weights():
    data = arrays()
    return {"x": data["x"], "y": data["y"]}


@pytest.mark.parametrize(
    "more",
    [
        soak({"validation_split": 0.2}),
        {"validation_split": 0.2, "validation_batch_size": 5, "validation_steps": 2},
        {"steps_per_epoch": 4},
        {"validation_data": (np.ones((9, 4)), np.ones((9, 1)), np.arange(9.0))},
    ],
    ids=["split", "split in batches", "steps", "weighted validation"],
)
def test_validation_and_steps_are_those_of_keras(more):
    assert_as_in_keras(**arrays(), **more)


@pytest.mark.parametrize("y", ["numbers", "column", "one-hot"])
def test_class_weights_are_those_of_keras(y):
    numbers = np.arange(103) % 3
    targets = {"numbers": numbers.astype(float), "column": numbers[:, None] * 1.0, "one-hot": np.eye(3)[numbers]}[y]
    loss = "categorical_crossentropy" if y == "one-hot" else "sparse_categorical_crossentropy"

    def classifier():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
        model.compile("sgd", loss)
        return model

    assert_as_in_keras(classifier, x=arrays()["x"], y=targets, class_weight={0: 3.0, 2: 0.5})


@pytest.mark.parametrize("structure", [soak(list), dict])
def test_several_inputs_and_outputs_keep_their_structure(structure):
    def model_of_two():
        a, b = keras.Input((4,), name="a"), keras.Input((2,), name="b")
        joined = keras.layers.Concatenate()([a, b])
        outputs = [keras.layers.Dense(1, name="c")(joined), keras.layers.Dense(2, name="d")(joined)]
        model = keras.Model([a, b], outputs)
        model.compile("sgd", ["mse", "mae"])
        return model

    data = arrays()
    x, y = [data["x"], data["x"][:, :2]], [data["y"], data["x"][:, 1:3]]
    if structure is dict:
        x = dict(zip("ab", x, strict=True))
    assert_as_in_keras(model_of_two, x=x, y=y, sample_weight=data["sample_weight"], validation_split=0.25)


def test_a_parallel_model_trains_on_cut_arrays_as_its_template_does():
    def parallel():
        return multigpu.multi_gpu_model(one_layer_model(), gpus=4)

    _, weights = trained(r_interface.fit, parallel, **arrays())
    _, plain = trained(lambda model, **rest: model.fit(**rest), **arrays())
    np.testing.assert_allclose(weights[0], plain[0], rtol=1e-5)  # sums of four slices are rounded in another order


@pytest.mark.quick
def test_evaluate_and_predict_are_those_of_keras():
    model, data = one_layer_model(), arrays()
    assert r_interface.evaluate(model, **data, verbose=0) == model.evaluate(**data, verbose=0)
    predicted = r_interface.predict(model, x=data["x"], batch_size=10, verbose=0)
    np.testing.assert_array_equal(predicted, model.predict(data["x"], batch_size=10, verbose=0))


def test_what_keras_refuses_is_still_refused_by_keras():
    model, data = one_layer_model(), arrays()
    with pytest.raises(ValueError, match="cardinality"):
        r_interface.fit(model, x=data["x"], y=data["y"][:5])
    with pytest.raises(ValueError, match="not sufficient to split"):
        r_interface.fit(model, x=data["x"][:1], y=data["y"][:1], validation_split=0.5)
    with pytest.raises(ValueError, match=r"sample_weight. at the same time"):
        r_interface.fit(model, **data, class_weight={0: 2.0})


def test_small_arrays_are_left_to_keras(monkeypatch):
    monkeypatch.setattr(fit_arguments, "LARGE", 2**26)
    monkeypatch.setattr(fit_arguments, "batches", None)
    trained(r_interface.fit, **arrays())


@pytest.mark.parametrize(
    ("x", "is_cut"),
    [
        (np.ones((8, 4), "float32"), False),
        (np.ones((8, 4), "float64"), True),
        (np.ones((8, 4), "float32", order="F"), True),
        (np.ones((8, 4), "int64"), False),
    ],
    ids=["as Keras takes it", "of another type", "in another order", "whole numbers"],
)
def test_arrays_that_keras_would_copy_are_cut(x, is_cut, monkeypatch):
    monkeypatch.setattr(fit_arguments, "LARGE", x.nbytes)
    cut = []
    monkeypatch.setattr(fit_arguments, "batches", lambda *given: (cut.append(1), batches(*given))[1])
    r_interface.predict(one_layer_model(), x=x, verbose=0)
    assert bool(cut) == is_cut


@pytest.mark.parametrize("order", "CF")
def test_cut_rows_are_c_ordered_and_cast(order, monkeypatch):
    monkeypatch.setattr(array_source, "CHUNK", 100)  # cut in several pieces
    array = np.arange(60.0).reshape(10, 3, 2).copy(order)
    indices = np.array([7, 1, 1, 9])
    taken = take_rows(array, indices)
    assert taken.dtype == "float32"
    assert taken.flags.c_contiguous
    np.testing.assert_array_equal(taken, array[indices])


class AsGiven(keras.Model):
    """Its predictions are the batches that Keras gives to a step."""

    def call(self, x):
        return x


STRIDES = {
    "C": lambda a: a,
    "F": np.asfortranarray,
    "reversed": lambda a: a[::-1],
    "every second": lambda a: np.repeat(a, 2, axis=0)[::2],
    "columns": lambda a: np.concatenate([a, a], axis=1)[:, ::2],
    "one row again and again": lambda a: np.broadcast_to(a[3:4], a.shape),
    "not writeable": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "not aligned": lambda a: np.frombuffer(b"." + a.tobytes(), a.dtype, offset=1).reshape(a.shape),
}


TYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]


def test_rows_of_all_types_orders_and_strides_are_those_of_keras():
    numbers = np.array([[0, 1, 2], [3, 100, 127], [1, 0, 7], [5, 6, 64], [4, 9, 8]])
    x = {
        f"{order}{kind}, {name}": of(numbers.astype(order + kind))
        for kind in TYPES
        for order in "<>"
        for name, of in STRIDES.items()
    }
    model = AsGiven()
    model.compile(run_eagerly=True)
    expected = model.predict(x, batch_size=2, verbose=0)
    cut = r_interface.predict(model, x=x, batch_size=2, verbose=0)
    assert cut.keys() == expected.keys() == x.keys()
    for name in x:
        assert cut[name].dtype == expected[name].dtype, name
        np.testing.assert_array_equal(cut[name], x[name], err_msg=name)


def test_labels_in_the_other_byte_order_train_as_on_one_device():
    def classifier():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")])
        model.compile("sgd", "sparse_categorical_crossentropy")
        return model

    x, y = arrays()["x"], np.arange(103) % 3
    for data in ({"y": y.astype(">i8")}, {"y": y.astype(">i2"), "sample_weight": np.arange(103).astype(">u2")}):
        plain, _ = trained(lambda model, **rest: model.fit(**rest), classifier, x=x, **data)
        parallel, _ = trained(
            lambda m, **rest: multigpu.multi_gpu_model(m, gpus=3).fit(**rest), classifier, x=x, **data
        )
        np.testing.assert_allclose(parallel["loss"], plain["loss"], rtol=1e-5)


TARGETS = np.linspace(-1, 1, 103)[:, None]


@pytest.mark.parametrize(
    ("losses", "data"),
    [
        (["mse", None], {"y": [TARGETS, None]}),
        (["mse", None], {"y": [TARGETS, None], "sample_weight": np.arange(103.0)}),
        (["mse", "mae"], {"y": [TARGETS, TARGETS], "sample_weight": [None, np.arange(103.0)]}),
    ],
    ids=["no targets", "no targets, weighted rows", "no weights"],
)
def test_an_output_may_be_without_targets_or_weights(losses, data):
    def model_of_two():
        x = keras.Input((4,))
        first = keras.layers.Dense(1, name="first")(x)
        model = keras.Model(x, [first, keras.layers.Rescaling(2.0, name="second")(first)])
        model.compile("sgd", losses)
        return model

    data = {"x": arrays()["x"], **data, "validation_split": 0.2}
    plain, _ = trained(lambda model, **rest: model.fit(**rest), model_of_two, **data)
    parallel, _ = trained(lambda m, **rest: multigpu.multi_gpu_model(m, gpus=3).fit(**rest), model_of_two, **data)
    assert parallel.keys() == plain.keys()
    for name, values in plain.items():
        np.testing.assert_allclose(parallel[name], values, rtol=1e-5)


def test_released_rows_refer_to_no_array_once_cuts_under_way_have_ended(monkeypatch):
    started, go_on = threading.Event(), threading.Event()

    def slow(array, indices):
        started.set()
        go_on.wait()
        return array[indices]

    monkeypatch.setattr(array_source, "take_rows", slow)
    rows = ArrayOwner([np.arange(3)])
    taken = []
    cutting = threading.Thread(target=lambda: taken.append(rows.take(np.array([0]))))
    cutting.start()
    assert started.wait(60)
    releasing = threading.Thread(target=rows.release)
    releasing.start()
    assert releasing.is_alive()
    go_on.set()
    cutting.join()
    releasing.join()
    assert len(taken[0]) == 1
    assert rows.take(np.array([0])) == []


def test_no_cut_begins_while_the_arrays_are_being_released():
    asked, begun = threading.Event(), threading.Event()

    class Asked(threading.Condition):  # which threads wait for
        def __enter__(self):
            asked.set()
            return super().__enter__()

    class Rows(np.ndarray):
        def __getitem__(self, indices):
            begun.set()
            return super().__getitem__(indices)

    rows = ArrayOwner([np.arange(3).view(Rows)])
    rows._changed = changed = Asked()
    cutting = threading.Thread(target=lambda: rows.take(np.array([0])))
    changed.acquire()
    try:
        cutting.start()
        assert asked.wait(60)
        assert not begun.wait(0.1)  # it waits for the lock
    finally:
        changed.release()
    cutting.join()
    assert begun.is_set()


def test_an_interrupted_fit_releases_its_arrays():
    released = []

    class Interrupt(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise KeyboardInterrupt

    original = ArrayOwner.release
    ArrayOwner.release = lambda rows: (released.append(rows), original(rows))
    try:
        with pytest.raises(KeyboardInterrupt):
            r_interface.fit(one_layer_model(), **arrays(), callbacks=[Interrupt()], verbose=0)
    finally:
        ArrayOwner.release = original
    assert len(released) == 1


def test_batches_know_their_number():
    dataset, _ = batches(np.ones((10, 2)), batch_size=4)
    assert int(dataset.cardinality()) == 3
    assert [batch.shape[0] for batch in dataset] == [4, 4, 2]


@pytest.mark.parametrize("verb", ["fit", "evaluate", "predict"])
def test_a_parallel_model_cuts_large_arrays_too_and_has_the_numbers_of_one_device(verb, monkeypatch):
    x, y = np.asfortranarray(np.random.default_rng(0).normal(size=(23, 4))), np.ones((23, 1))
    cut = []

    def spied(array, indices):
        cut.append(len(indices))
        return take_rows(array, indices)

    monkeypatch.setattr(array_source, "take_rows", spied)
    results = []
    for parallel in (False, True):  # only the second cuts
        keras.utils.set_random_seed(1)
        model = one_layer_model()
        model = multigpu.multi_gpu_model(model, gpus=3) if parallel else model
        arguments = (x,) if verb == "predict" else (x, y)
        result = getattr(model, verb)(*arguments, batch_size=8, verbose=0)
        results.append(result.history if verb == "fit" else result)
    assert set(cut) == {8, 7}
    keras.tree.map_structure(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), *results)


@pytest.mark.parametrize(
    "arguments",
    [
        {"x": np.ones((4, 2)), "y": np.ones(3)},
        {"x": np.ones((4, 2)), "y": np.float64(1)},
        {"x": np.ones((0, 2)), "y": np.ones(0)},
        {"x": np.array(["a", "b"]), "y": np.ones(2)},
        {"x": [[1.0], [2.0]], "y": np.ones(2)},
        {"x": None, "y": None},
    ],
    ids=["rows of other numbers", "a number", "no rows", "texts", "lists", "nothing"],
)
def test_what_is_not_numeric_arrays_of_the_same_rows_is_left_to_keras(arguments):
    assert not fit_arguments.are_arrays(arguments)


def test_numeric_arrays_of_the_same_rows_are_cut():
    assert fit_arguments.are_arrays({"x": {"a": np.ones((4, 2)), "b": np.ones(4, "uint8")}, "y": np.ones(4, bool)})
