"""Unsupported models raise `ValueError` before training: what was expected, what was received, what to do."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from equality import ONE_CALL
from keras import layers

from multigpu import engines, multi_gpu_model

NO_BATCH_AXIS = (
    "Expected every output of the template to have a batch axis, so that the slices of the replicas can be merged. "
    "Received: output {name!r} with shape {shape}. Return one value per row, for instance a loss of shape (batch,), "
    "or move the reduction into a loss function or into `add_loss()`."
)

LAYER_TO_NAME = (
    "Expected layers that take the rows of a batch one by one, so that slices of it can be run and merged. "
    "Received: {layer}. Return one output row for each input row there, for any number of rows; or run the template on "
    "one device, or with `KERAS_BACKEND=jax`, where layers see the whole batch. The error was: {error}"
)


def refusal(model, kind=ValueError, gpus=2):
    with pytest.raises(kind) as error:
        multi_gpu_model(model, gpus=gpus)
    return str(error.value)


def dense():
    return keras.Sequential([keras.Input((4,)), layers.Dense(2)], name="plain")


# The model itself ---------------------------------------------------------------------------------------------------


def unbuilt(name):
    return (
        f"Expected a built model, whose weights exist. Received: {name!r}, which is not built. Start it with "
        "`keras.Input(shape)`, or call it once on a batch, before `multi_gpu_model()`."
    )


def test_an_unbuilt_sequential_model_is_refused():
    assert refusal(keras.Sequential([layers.Dense(2)], name="later")) == unbuilt("later")


def test_an_unbuilt_subclassed_model_is_refused():
    class Own(keras.Model):
        def call(self, x):
            return x

    assert refusal(Own(name="own")) == unbuilt("own")


class ClaimsToBeBuilt(keras.Model):
    def __init__(self, **heads):
        super().__init__(name="own")
        self.heads = list(heads.values())
        self.built = True

    def call(self, x):
        return self.heads[0](x)


def test_a_part_that_is_built_by_the_first_call_is_refused_naming_its_weight():
    template = ClaimsToBeBuilt(used=layers.Dense(2, name="head", kernel_initializer="ones"))  # sums without rounding
    told = r"Received: 'own', which made the weight '.*head/kernel' when it was first called"
    with pytest.raises(ValueError, match=told):
        multi_gpu_model(template, gpus=2)(np.ones((4, 3), "float32"))
    parallel = multi_gpu_model(template, gpus=2)  # which the call has built after all
    np.testing.assert_array_equal(parallel(np.ones((4, 3))), template(np.ones((4, 3))))


def test_a_part_that_is_never_called_need_not_be_built():
    used = layers.Dense(2, kernel_initializer="ones")  # sums without rounding
    used.build((None, 3))
    template = ClaimsToBeBuilt(used=used, spare=layers.Dense(2))
    np.testing.assert_array_equal(multi_gpu_model(template, gpus=2)(np.ones((4, 3))), template(np.ones((4, 3))))


def test_text_vectorization_whose_inner_lookup_is_never_built_is_taken():
    vectorize = layers.TextVectorization(max_tokens=10, output_sequence_length=5)
    vectorize.adapt(np.array(["a b c", "b c d e"]))
    template = keras.Sequential([keras.Input((1,), dtype="string"), vectorize])
    text = tf.constant([["a b"], ["c d e"], ["x"]])
    np.testing.assert_array_equal(multi_gpu_model(template, gpus=2)(text), template(text))


@pytest.mark.parametrize("thing", [None, "model", 3, layers.Dense(2), dense])
def test_what_is_not_a_keras_model_is_refused(thing):
    assert refusal(thing) == (
        f"Expected `model` to be a Keras model. Received: {thing!r} of type {type(thing).__name__}. "
        "Pass a built `keras.Sequential`, functional or subclassed `keras.Model`."
    )


def test_a_keras_2_model_is_refused():
    model = type("Functional", (), {"__module__": "tf_keras.src.engine.functional"})
    own = type("Own", (model,), {"__module__": "my_script"})
    for stand_in in (model, own):
        assert refusal(stand_in()) == (
            f"Expected `model` to be a Keras 3 model. Received: {stand_in.__name__} from `tf_keras`, which is Keras 2. "
            "Build the model with `import keras` (and unset TF_USE_LEGACY_KERAS if `tf.keras` is used)."
        )


def test_an_already_parallel_model_is_refused():
    parallel = multi_gpu_model(dense(), gpus=2)
    assert refusal(parallel) == (
        "Expected a template: a model that runs on one device. Received: 'plain', which is parallel already "
        f"({parallel.plan}). Pass `parallel.template` to replicate it again."
    )


def test_a_parallel_model_inside_a_template_is_refused():
    class Outer(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = multi_gpu_model(dense(), gpus=2)

        def call(self, x):
            return self.inner(x)

    outer = Outer()
    outer(np.ones((6, 4), "float32"))
    assert "'plain', which is parallel already" in refusal(outer)


def test_another_backend_is_refused(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the whole text is compared
        engines.__getattr__("Training")
    assert str(error.value) == (
        "Expected Keras to run on TensorFlow or JAX. Received: backend 'torch'. Set the environment variable "
        "KERAS_BACKEND=tensorflow or KERAS_BACKEND=jax before the first `import keras`."
    )


@pytest.mark.parametrize("gpus", [1, [0]])
def test_scripts_that_fall_back_to_the_template_keep_working(gpus):
    model = dense()
    try:
        parallel = multi_gpu_model(model, gpus=gpus)
    except ValueError:
        parallel = model
    assert parallel is model


# Inputs and state that belong to a global batch ----------------------------------------------------------------------


@pytest.mark.parametrize("fixed", [{"batch_shape": (6, 4)}, {"shape": (4,), "batch_size": 6}])
def test_a_fixed_batch_size_is_refused_naming_the_input(fixed):
    x, fine = keras.Input(name="fixed", **fixed), keras.Input((4,), name="fine")
    model = keras.Model([fine, x], layers.Dense(2)(x))
    assert refusal(model) == (
        "Expected inputs without a fixed batch size, so that a batch can be split. Received: input 'fixed' with the "
        "fixed batch size 6. Declare it with `keras.Input(shape=...)` instead of `batch_shape` or `batch_size`."
    )


def own_sequential():
    return keras.Sequential([layers.Dense(3, activation="tanh"), layers.Dense(2)], name="own")


class HasSequential(keras.Model):
    def __init__(self):
        super().__init__()
        self.body = own_sequential()

    def build(self, shape):
        self.body.build(shape)

    def call(self, x):
        return self.body(x)


@pytest.mark.parametrize("start", [lambda m: m(np.ones((6, 4), "float32")), lambda m: m.build((6, 4))])
@pytest.mark.parametrize("make", [own_sequential, lambda: keras.Sequential([own_sequential()]), HasSequential])
def test_a_sequential_that_has_seen_one_batch_takes_batches_of_any_size(make, start):
    model = make()
    start(model)
    x = np.random.default_rng(0).normal(size=(7, 4)).astype("float32")
    parallel = multi_gpu_model(model, gpus=2)
    np.testing.assert_allclose(parallel(x), model(x), **ONE_CALL)
    np.testing.assert_allclose(parallel(x[:3]), model(x[:3]), **ONE_CALL)


class BuiltForSixRows(layers.Layer):
    def build(self, shape):
        self.rows = shape[0]

    def call(self, x):
        return keras.ops.reshape(x, (self.rows, -1))


class CountsRowsInPython(layers.Layer):
    def call(self, x):
        return x + keras.ops.zeros((x.shape[0], 1))


def test_a_sequential_whose_layers_know_the_rows_of_one_batch_is_refused():
    counting, built = (
        keras.Sequential([kind(name="odd")], name="own") for kind in (CountsRowsInPython, BuiltForSixRows)
    )
    for model in (counting, built):
        model(np.ones((6, 4), "float32"))
    assert NO_BATCH_AXIS.format(name="odd", shape=(6, None)) in refusal(built)
    message = refusal(counting)
    assert message.startswith(
        "Expected a model that takes batches of any size, so that a batch can be split. "
        "Received: 'own', which fails for an open number of rows: "
    )
    assert message.endswith("In its layers, read the number from the batch, as `keras.ops.shape(x)[0]`.")


class AddsSixRows(layers.Layer):
    def call(self, x):
        return x + keras.ops.zeros((6, 1))


def test_so_is_a_functional_model_with_such_a_layer():
    message = refusal(keras.Sequential([keras.Input((4,)), AddsSixRows(name="odd")], name="own"))
    assert message.startswith(
        "Expected a model that takes batches of any size, so that a batch can be split. Received: 'own', which fails "
        "for 840 rows: "
    )
    assert "'odd'" in message


def stateful(name):
    return (
        f"Expected layers that keep nothing between batches. Received: the stateful layer {name!r}, whose state has "
        "one row per row of a global batch. Use `stateful=False`, or run the template on one device, or with "
        "`KERAS_BACKEND=jax`, where layers see the whole batch."
    )


class Recurrent(keras.Model):
    """A subclassed model, whose batch size no input fixes."""

    def __init__(self, part):
        super().__init__()
        self.part = part

    def call(self, x):
        return self.part(x)


def called_on_six_rows(part):
    model = Recurrent(part)
    model(np.ones((6, 5, 3), "float32"))
    return model


@pytest.mark.quick
@pytest.mark.parametrize("kind", [layers.LSTM, layers.GRU, layers.SimpleRNN])
def test_a_stateful_layer_is_refused_by_name(kind):
    assert refusal(called_on_six_rows(kind(2, stateful=True, name="memory"))) == stateful("memory")


def test_a_stateful_layer_inside_bidirectional_is_refused():
    wrapped = layers.Bidirectional(layers.LSTM(2, stateful=True, name="memory"), name="both")
    assert refusal(called_on_six_rows(wrapped)) in (stateful("both"), stateful("forward_memory"))


def test_a_stateful_layer_inside_a_nested_model_is_refused():
    inner = keras.Sequential([layers.LSTM(2, stateful=True, name="memory")])
    assert refusal(called_on_six_rows(inner)) == stateful("memory")


def test_a_recurrent_layer_without_state_is_welcome():
    assert multi_gpu_model(called_on_six_rows(layers.LSTM(2)), gpus=2).template.built


# Outputs without a batch axis ---------------------------------------------------------------------------------------


def functional_with(second_output):
    x = keras.Input((4,))
    y = layers.Dense(2, name="logits")(x)
    return keras.Model(x, [y, second_output(y)])


class Total(layers.Layer):
    def call(self, y):
        return keras.ops.sum(y, axis=0, keepdims=True)


class Scalar(layers.Layer):
    def call(self, y):
        return keras.ops.sum(y)


class OwnLoss(layers.Lambda):
    def __init__(self, name):
        super().__init__(lambda y: tf.reduce_mean(tf.square(y)), name=name)


@pytest.mark.parametrize(("layer", "shape"), [(Total, (1, 2)), (Scalar, ()), (OwnLoss, ())])
def test_an_output_over_the_whole_batch_of_a_functional_model_is_refused_by_name(layer, shape):
    model = functional_with(layer(name="whole"))
    assert refusal(model) == LAYER_TO_NAME.format(
        layer=f"layer 'whole', whose output has shape {shape} for an input of shape (840, 2)",
        error=NO_BATCH_AXIS.format(name="whole", shape=shape),
    )


class TwoOutputs(keras.Model):
    """A subclassed model, whose outputs are known once it is called."""

    def __init__(self, reduce):
        super().__init__()
        self.dense = layers.Dense(2)
        self.reduce = reduce

    def call(self, x):
        y = self.dense(x)
        return {"logits": y, "whole": self.reduce(y)}


def subclassed(reduce):
    model = TwoOutputs(reduce)
    model(np.ones((6, 4), "float32"))
    return multi_gpu_model(model, gpus=2)


WHOLE = [(keras.ops.mean, ()), (lambda y: keras.ops.sum(y, axis=0, keepdims=True), (1, 2))]


@pytest.mark.parametrize(("reduce", "shape"), WHOLE)
def test_such_an_output_of_a_subclassed_model_is_refused_at_the_first_call(reduce, shape):
    parallel = subclassed(reduce)
    with pytest.raises(ValueError, match="batch axis") as error:
        parallel(np.ones((6, 4), "float32"))
    assert NO_BATCH_AXIS.format(name="whole", shape=shape) in str(error.value)


@pytest.mark.quick
@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize(("reduce", "shape"), WHOLE)
def test_such_an_output_of_a_subclassed_model_is_refused_at_the_first_step(reduce, shape, run_eagerly):
    parallel = subclassed(reduce)
    parallel.compile("sgd", loss={"logits": "mse"}, run_eagerly=run_eagerly)
    with pytest.raises(ValueError, match="batch axis") as error:
        parallel.predict_on_batch(np.ones((6, 4), "float32"))
    assert NO_BATCH_AXIS.format(name="whole", shape=shape) in str(error.value)


class Odd(layers.Layer):
    """A layer of somebody's own, which needs its batch in one piece."""

    def __init__(self, function):
        super().__init__(name="odd")
        self.function = function

    def call(self, x):
        return self.function(x)


class CallsOdd(keras.Model):
    def __init__(self, function):
        super().__init__(name="own")
        self.first, self.odd, self.last = layers.Dense(4), function, layers.Dense(1)

    def call(self, x):
        return self.last(self.odd(self.first(x)))


WHOLE_BATCH = {
    "pairs of rows": (lambda y: keras.ops.reshape(y, (-1, 8)), (3, 8)),
    "two rows": (lambda y: keras.ops.reshape(y, (2, -1)), (2, 12)),
    "the sum": (lambda y: keras.ops.sum(y, axis=0, keepdims=True), (1, 4)),
    "products": (lambda y: keras.ops.reshape(keras.ops.tensordot(y, y, 2), (1, 1)), (1, 1)),
}


@pytest.mark.parametrize("run_eagerly", [False, True])
@pytest.mark.parametrize(("function", "shape"), WHOLE_BATCH.values(), ids=WHOLE_BATCH)
def test_the_layer_that_needs_its_batch_in_one_piece_is_named(function, shape, run_eagerly):
    x = np.ones((6, 4), "float32")
    own_call = f"layer 'own', whose output has shape {(shape[0], 1)} for an input of shape (6, 4)"
    odd_layer = f"layer 'odd', whose output has shape {shape} for an input of shape (6, 4)"
    for odd, told in ((Odd(function), odd_layer), (function, own_call)):
        template = CallsOdd(odd)
        template(x)
        parallel = multi_gpu_model(template, gpus=2)
        parallel.compile(run_eagerly=run_eagerly)
        for call in (parallel, parallel.predict_on_batch):
            with pytest.raises(ValueError, match="Expected layers that take the rows of a batch one by one") as error:
                call(x)
            assert f"Received: {told}. Return one output row for each input row there" in str(error.value)


@pytest.mark.parametrize("function", [lambda y: y[:3], lambda y: keras.ops.reshape(y, (-1, 8))])
def test_it_is_named_when_the_model_is_made_where_shapes_tell(function):
    inputs = keras.Input((4,))
    functional = keras.Model(inputs, Odd(function)(layers.Dense(4)(inputs)))
    sequential = keras.Sequential([keras.Input((4,)), layers.Dense(4), Odd(function)])
    for model in (functional, sequential):
        assert "Received: layer 'odd', whose output has shape" in refusal(model)


def test_a_layer_is_named_whose_call_was_assigned_and_keeps_it():
    odd = layers.Layer(name="odd")
    odd.call = assigned = lambda y: keras.ops.reshape(y, (2, -1))
    template = CallsOdd(odd)
    template(np.ones((6, 4), "float32"))
    with pytest.raises(ValueError, match=r"Received: layer 'odd', whose output has shape \(2, 12\)"):
        multi_gpu_model(template, gpus=2)(np.ones((6, 4), "float32"))
    assert odd.call is assigned


class FoldsSteps(keras.Model):
    """Makes rows of the steps of its rows, and steps of them again, before a layer that needs six rows."""

    def __init__(self, last):
        super().__init__(name="own")
        self.fold = Odd(lambda x: keras.ops.reshape(x, (-1, 2)))
        self.unfold = Odd(lambda x: keras.ops.reshape(x, (-1, 2, 2)))
        self.last = last

    def call(self, x):
        return self.last(self.unfold(self.fold(x)))


def test_layers_that_change_rows_and_change_them_back_are_not_the_ones_to_name():
    x = np.ones((6, 2, 2), "float32")
    template = FoldsSteps(Odd(lambda y: keras.ops.reshape(y, (6, 4))))
    template.last.name = "of_six_rows"
    template(x)
    with pytest.raises(ValueError, match=r"Received: layer 'of_six_rows', which fails with 3 rows\. Return one"):
        multi_gpu_model(template, gpus=2)(x)


def test_a_layer_that_fails_with_the_only_row_of_a_slice_is_named():
    x = np.ones((4, 4), "float32")
    template = CallsOdd(Odd(lambda y: keras.ops.reshape(keras.ops.reshape(y, (-1, 8)), (-1, 4))))
    template(x)
    with pytest.raises(ValueError, match=r"Received: layer 'odd', which fails with 1 row"):
        multi_gpu_model(template, gpus=4)(x)


def test_an_error_that_one_device_has_too_is_left_as_it_is():
    template = called_on_six_rows(layers.LSTM(2))
    for model in (template, multi_gpu_model(template, gpus=2)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="Matrix size-incompatible") as error:
            model(np.ones((6, 5, 4), "float32"))
        assert "one by one" not in str(error.value)


# Own training steps -------------------------------------------------------------------------------------------------


class CallsItsParts(keras.Model):
    """A model whose training never calls the model, so that nothing of it would be spread."""

    def __init__(self, encoder):
        super().__init__(name="parts")
        self.encoder, self.decoder = encoder, layers.Dense(4, kernel_initializer="ones")
        self(np.ones((6, 4), "float32"))

    def call(self, x):
        return self.decoder(self.encoder(x))

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = keras.ops.mean((self.decoder(self.encoder(data)) - data) ** 2)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_a_train_step_that_only_calls_its_parts_is_refused(run_eagerly):
    model = CallsItsParts(keras.Sequential([layers.Dense(3)]))
    before = model.get_weights()
    parallel = multi_gpu_model(model, gpus=2)
    parallel.compile("sgd", run_eagerly=run_eagerly)
    with pytest.raises(ValueError, match="train_step") as error:
        parallel.fit(np.ones((6, 4), "float32"), verbose=0)
    assert (
        "Expected `train_step` of CallsItsParts to call the model itself, as `self(x, training=True)`: that is the "
        "call that is spread over the devices. Received: one that only calls parts of it, or "
        "`stateless_call()`, which runs on one device. Make its parts parallel "
        "instead, in `__init__` of the class: `self.encoder = multi_gpu_model(encoder)`; and train the model as it is."
    ) in str(error.value)
    if not run_eagerly:  # refused while traced: not a single step was taken
        np.testing.assert_array_equal(before[0], model.get_weights()[0])


def test_parts_that_are_layers_are_not_proposed_to_be_made_parallel():
    parallel = multi_gpu_model(CallsItsParts(layers.Dense(3)), gpus=2)
    parallel.compile("sgd")
    with pytest.raises(ValueError, match=r"runs on one device\. Let `train_step` call the model itself, or train"):
        parallel.fit(np.ones((6, 4), "float32"), verbose=0)


def test_the_remedy_for_it_works():
    encoder = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    one = CallsItsParts(keras.models.clone_model(encoder))
    data_parallel = CallsItsParts(multi_gpu_model(encoder, gpus=2))
    data_parallel.set_weights(one.get_weights())
    x = np.random.default_rng(0).normal(size=(7, 4)).astype("float32")
    for model in (one, data_parallel):
        model.compile(keras.optimizers.SGD(0.1))
        model.fit(x, batch_size=7, epochs=3, verbose=0)
    np.testing.assert_allclose(data_parallel(x), one(x), rtol=1e-4, atol=1e-5)


class WithoutCall(keras.Model):
    """A GAN as keras.io writes them: its step calls its parts, and it has no call."""

    def __init__(self, spread=lambda model: model):
        super().__init__(name="gan")
        generator = keras.Sequential([keras.Input((2,)), layers.Dense(4, kernel_initializer="ones")])
        discriminator = keras.Sequential([keras.Input((4,)), layers.Dense(1, kernel_initializer="ones")])
        self.generator, self.discriminator = spread(generator), spread(discriminator)
        self.loss_tracker = keras.metrics.Mean(name="loss")

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = keras.ops.mean((self.discriminator(self.generator(data)) - 1) ** 2)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


REMEDIES = {
    False: "before `compile()`: `model.generator = multi_gpu_model(model.generator)`, `model.discriminator = "
    "multi_gpu_model(model.discriminator)`",
    True: "in `__init__` of the class: `self.generator = multi_gpu_model(generator)`, `self.discriminator = "
    "multi_gpu_model(discriminator)`",
}


@pytest.mark.parametrize("built", [False, True])
def test_a_class_without_call_is_refused_with_its_parts_named_and_that_remedy_works(built):
    one, model = WithoutCall(), WithoutCall()
    model.built = built
    assert refusal(model) == (
        "Expected a model whose class defines `call()`: that is the call that is spread over the devices. Received: "
        "'gan' of the class WithoutCall, which has none. Make its parts parallel instead, "
        f"{REMEDIES[built]}; and train the model as it is."
    )
    if built:
        model = WithoutCall(spread=lambda model: multi_gpu_model(model, gpus=2))
        model.built = True
    else:
        model.generator = multi_gpu_model(model.generator)
        model.discriminator = multi_gpu_model(model.discriminator)
    x = np.random.default_rng(0).normal(size=(7, 2)).astype("float32")
    losses = []
    for each in (one, model):
        each.compile(keras.optimizers.SGD(0.01))
        losses.append(each.fit(x, batch_size=7, epochs=3, verbose=0).history["loss"])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


# Rows that look at each other ---------------------------------------------------------------------------------------


def pairs(inputs):
    rows = layers.Dense(2)(inputs)
    return keras.ops.matmul(rows, keras.ops.transpose(rows))


def test_an_output_of_all_pairs_of_rows_is_refused():
    inputs = keras.Input((4,), name="x")
    model = keras.Model({"x": inputs}, {"rows": layers.Dense(1, name="one")(inputs), "pairs": pairs(inputs)})
    assert refusal(model) == (
        "Expected outputs whose rows do not depend on the number of rows. Received: output "
        f"{model.output_names[0]!r} with shape (None, None), which for 2 rows is (2, 2) and for 3 rows (3, 3). "
        "Return values of single rows, and compare rows in a loss function, which sees the global batch."
    )


FUNCTIONS = {
    "tensordot": lambda x, y: y + keras.ops.tensordot(x, y, 2),
    "mean": lambda x, y: y - keras.ops.mean(x, axis=0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_makes_one_value_of_all_rows_is_refused_by_name(name):
    inputs = keras.Input((4,))
    model = keras.Model(inputs, FUNCTIONS[name](layers.Dense(3)(inputs), layers.Dense(3)(inputs)))
    shape = () if name == "tensordot" else (3,)
    for template in (model, keras.Sequential([keras.Input((4,)), model])):
        assert refusal(template) == (
            "Expected functions that take the rows of a batch one by one, so that slices of it can be run and merged. "
            f"Received: {name!r}, whose output has shape {shape} for an input of shape (None, 3). Keep the batch axis, "
            "or compare rows in a loss function, which sees the global batch."
        )


def test_functions_that_move_the_batch_axis_and_move_it_back_are_taken():
    inputs = keras.Input((4, 3))
    rows_last = keras.ops.transpose(inputs, (1, 2, 0))
    model = keras.Model(inputs, layers.Dense(2)(keras.ops.transpose(2 * rows_last, (2, 0, 1))))
    assert multi_gpu_model(model, gpus=2).template is model


@pytest.mark.parametrize("build", [lambda x: layers.LSTM(2, return_sequences=True)(x), lambda x: x[:, ::2]])
def test_an_output_of_open_length_is_taken(build):
    inputs = keras.Input((None, 3))
    model = keras.Model(inputs, build(layers.Dense(3)(inputs)))
    parallel = multi_gpu_model(model, gpus=2)
    x = np.ones((5, 7, 3), "float32")
    np.testing.assert_allclose(parallel.predict(x, verbose=0), model.predict(x, verbose=0), **ONE_CALL)


# A call, and the class ----------------------------------------------------------------------------------------------


def test_a_call_without_rows():
    parallel = multi_gpu_model(OwnCall(), gpus=2)
    with pytest.raises(ValueError, match=r"Expected a batch: at least one input tensor with rows\. Received: args=\("):
        parallel(tf.constant(1.0))


class OwnCall(keras.Model):
    def __init__(self):
        super().__init__()
        self.scale = self.add_weight(shape=())
        self.built = True

    def call(self, x):
        return x * self.scale


def test_the_class_of_a_parallel_model_is_not_assigned():
    parallel = multi_gpu_model(dense(), gpus=2)
    with pytest.raises(AttributeError, match="Expected `__class__` to stay as it is"):
        parallel.__class__ = keras.Model
