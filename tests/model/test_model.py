"""Whatever is asked of the parallel model, it answers as its template does."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from equality import assert_same
from keras import layers, ops

import multigpu
from multigpu import multi_gpu_model


def sequential():
    return keras.Sequential(
        [keras.Input((4,), name="x"), layers.Dense(3, name="hidden"), layers.Dense(2, name="top")], name="sequence"
    )


def functional():
    x, extra = keras.Input((4,), name="x"), keras.Input((3,), name="extra")
    hidden = layers.Dense(3, kernel_regularizer="l2", name="hidden")(layers.Concatenate()([x, extra]))
    hidden = layers.Dropout(0.5)(layers.BatchNormalization()(hidden))
    return keras.Model([x, extra], [layers.Dense(2, name="a")(hidden), layers.Dense(1, name="b")(hidden)], name="two")


def functional_on_dicts():
    x, extra = keras.Input((4,), name="x"), keras.Input((3,), name="extra")
    top = layers.Dense(2, name="top")(layers.Concatenate()([x, extra]))
    return keras.Model({"x": x, "extra": extra}, {"top": top}, name="dicts")


def nested():
    x = keras.Input((4,), name="x")
    return keras.Model(x, layers.Dense(1, name="top")(sequential()(x)), name="outer")


@keras.saving.register_keras_serializable("tests")
class Subclassed(keras.Model):
    def __init__(self, units=3, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.hidden = layers.Dense(units, name="hidden")

    def call(self, x):
        return self.hidden(x)

    def encode(self, x):
        return ops.tanh(self.hidden(x))

    def get_config(self):
        return {**super().get_config(), "units": self.units}


def subclassed():
    model = Subclassed(name="own")
    model(np.ones((2, 4), "float32"))
    return model


SYMBOLIC = [sequential, functional, functional_on_dicts, nested]
ALL = [*SYMBOLIC, subclassed]


def parallel_of(build, gpus=2):
    return multi_gpu_model(build(), gpus=gpus)


def is_same_object(actual, expected):
    """Whether lists hold the same objects, or the two are one."""
    if isinstance(expected, list | tuple):
        return len(actual) == len(expected) and all(a is e for a, e in zip(actual, expected, strict=True))
    return actual is expected


@pytest.mark.quick
@pytest.mark.parametrize("build", ALL)
def test_it_is_a_keras_model_with_a_template(build):
    template = build()
    parallel = multi_gpu_model(template, gpus=2)
    assert isinstance(parallel, keras.Model)
    assert parallel.template is template
    assert parallel.built
    assert parallel.name == template.name


@pytest.mark.parametrize(
    "attribute",
    [
        "layers",
        "weights",
        "variables",
        "trainable_weights",
        "non_trainable_weights",
        "trainable_variables",
        "non_trainable_variables",
    ],
)
@pytest.mark.parametrize("build", ALL)
def test_its_parts_are_those_of_the_template(build, attribute):
    parallel = parallel_of(build)
    assert is_same_object(getattr(parallel, attribute), getattr(parallel.template, attribute))


@pytest.mark.parametrize("attribute", ["inputs", "outputs"])
@pytest.mark.parametrize("build", SYMBOLIC)
def test_its_symbolic_tensors_are_those_of_the_template(build, attribute):
    parallel = parallel_of(build)
    assert is_same_object(getattr(parallel, attribute), getattr(parallel.template, attribute))


@pytest.mark.parametrize("build", [functional, functional_on_dicts, nested])
def test_its_input_and_output_are_those_of_the_template(build):
    parallel = parallel_of(build)
    for side in ("input", "output"):
        found, expected = getattr(parallel, side), getattr(parallel.template, side)
        keras.tree.assert_same_structure(found, expected)
        assert is_same_object(keras.tree.flatten(found), keras.tree.flatten(expected))


@pytest.mark.parametrize("attribute", ["input_shape", "output_shape", "trainable", "dtype", "losses"])
@pytest.mark.parametrize("build", SYMBOLIC)
def test_it_describes_itself_as_the_template_does(build, attribute):
    parallel = parallel_of(build)
    assert str(getattr(parallel, attribute)) == str(getattr(parallel.template, attribute))


@pytest.mark.parametrize(
    ("build", "names"),
    [(sequential, ["x"]), (functional, ["x", "extra"]), (functional_on_dicts, ["extra", "x"]), (nested, ["x"])],
)
def test_it_names_its_inputs(build, names):
    assert parallel_of(build).input_names == names


@pytest.mark.parametrize(
    ("build", "names"), [(functional, ["a", "b"]), (functional_on_dicts, ["top"]), (nested, ["top"])]
)
def test_it_names_its_outputs(build, names):
    parallel = parallel_of(build)
    assert parallel.output_names == parallel.template.output_names == names


@pytest.mark.parametrize("build", ALL)
def test_it_counts_its_parameters_once(build):
    parallel = parallel_of(build)
    assert parallel.count_params() == parallel.template.count_params()


@pytest.mark.parametrize("build", ALL)
def test_its_configuration_is_the_templates_and_makes_the_template_anew(build):
    parallel = parallel_of(build)
    assert parallel.get_config() == parallel.template.get_config()
    again = type(parallel.template).from_config(parallel.get_config())
    assert type(again) is type(parallel.template)


@pytest.mark.parametrize("build", SYMBOLIC)
def test_its_layers_are_found_by_name_and_by_number(build):
    parallel = parallel_of(build)
    for number, layer in enumerate(parallel.template.layers):
        assert parallel.get_layer(layer.name) is layer
        assert parallel.get_layer(index=number) is parallel.layers[number] is layer
    with pytest.raises(ValueError, match="No such layer: nobody"):
        parallel.get_layer("nobody")


@pytest.mark.quick
@pytest.mark.parametrize("build", ALL)
def test_weights_are_read_and_set_through_either_model(build):
    parallel = parallel_of(build)
    new = [np.ones_like(weight) for weight in parallel.get_weights()]
    parallel.set_weights(new)
    assert_same(parallel.template.get_weights(), new)
    parallel.template.set_weights([2 * weight for weight in new])
    assert_same(parallel.get_weights(), [2 * weight for weight in new])


def lines_of_summary(model, **kwargs):
    lines = []
    model.summary(print_fn=lambda line, **_: lines.append(line), **kwargs)
    return "\n".join(lines)


@pytest.mark.parametrize("build", ALL)
@pytest.mark.parametrize("kwargs", [{}, {"expand_nested": True, "show_trainable": True}])
def test_its_summary_is_the_templates_and_a_line_on_devices(build, kwargs):
    parallel = parallel_of(build)
    template, line = lines_of_summary(parallel.template, **kwargs), f" Parallel: {parallel.plan}"
    assert lines_of_summary(parallel, **kwargs).startswith(f"{template}\n{line}")
    assert "2 replicas on CPU:0, CPU:1; outputs merged on CPU:0" in line


@pytest.mark.parametrize("build", ALL)
def test_in_a_console_it_says_that_it_is_parallel_and_on_what(build):
    parallel = parallel_of(build)
    assert repr(parallel) == f"<parallel {repr(parallel.template)[1:-1]}: {parallel.plan}>"
    assert repr(parallel.plan) == f"<Plan: {parallel.plan}>"


@pytest.mark.parametrize("verb", ["fit", "predict"])
def test_an_argument_that_a_verb_does_not_have_is_refused_with_its_name(verb):
    with pytest.raises(TypeError, match=rf"^{verb}\(\) got an unexpected keyword argument 'workers'$"):
        getattr(parallel_of(sequential), verb)(x=np.ones((4, 4)), workers=2)


def test_the_package_lists_its_public_names_alone():
    assert dir(multigpu) == sorted([*multigpu.__all__, "__version__"])


def test_its_summary_is_printed(capsys):
    parallel = parallel_of(sequential)
    parallel.summary()
    printed = capsys.readouterr().out
    assert "hidden" in printed
    assert printed.endswith(f" Parallel: {parallel.plan}\n")


@pytest.mark.parametrize("freeze_template", [False, True])
def test_freezing_either_model_freezes_both(freeze_template):
    parallel = parallel_of(functional)
    frozen, other = (parallel.template, parallel) if freeze_template else (parallel, parallel.template)
    frozen.trainable = False
    assert not other.trainable
    assert other.trainable_weights == []
    assert not any(layer.trainable for layer in other.layers if layer.weights)
    frozen.trainable = True
    assert len(other.trainable_weights) == 8


def test_freezing_a_layer_freezes_it_in_both():
    parallel = parallel_of(sequential)
    parallel.get_layer("hidden").trainable = False
    for model in (parallel, parallel.template):
        assert is_same_object(model.trainable_weights, parallel.get_layer("top").weights)


@pytest.mark.parametrize("build", ALL)
def test_a_symbolic_call_gives_the_templates_shapes(build):
    parallel = parallel_of(build)
    template = parallel.template
    symbolic = template.input if build in (functional, functional_on_dicts) else keras.Input((4,))
    shapes = [keras.tree.map_structure(lambda t: t.shape, model(symbolic)) for model in (parallel, template)]
    assert shapes[0] == shapes[1]


def test_losses_of_regularizers_and_of_the_last_call_are_those_of_the_template():
    class Noisy(layers.Layer):
        def call(self, x):
            self.add_loss(ops.mean(x**2))
            return x

    def build():
        return keras.Sequential([keras.Input((4,)), layers.Dense(3, kernel_regularizer="l2"), Noisy()])

    one, parallel = build(), parallel_of(build, gpus=3)
    parallel.set_weights(one.get_weights())
    assert_same(parallel.losses, one.losses)
    x = np.random.default_rng(0).normal(size=(7, 4)).astype("float32")
    one(x)
    parallel(x)
    assert_same(sorted(map(float, parallel.losses)), sorted(map(float, one.losses)))


def test_methods_and_attributes_of_the_templates_own_class_are_there():
    parallel = parallel_of(subclassed)
    x = np.ones((5, 4), "float32")
    assert parallel.units == 3
    assert parallel.hidden is parallel.template.hidden
    assert_same(parallel.encode(x), parallel.template.encode(x))


def test_what_the_template_does_not_have_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = parallel_of(sequential).nothing_of_the_kind


def test_it_says_what_it_was_compiled_with():
    parallel = parallel_of(sequential)
    parallel.compile("sgd", loss="mse", metrics=["mae"])
    for model in (parallel, parallel.template):
        assert model.compiled
        assert model.loss == "mse"
    parallel.train_on_batch(np.ones((3, 4)), np.ones((3, 2)))
    parallel.template.train_on_batch(np.ones((3, 4)), np.ones((3, 2)))
    assert parallel.metrics_names == parallel.template.metrics_names


def test_a_compiled_template_gives_a_compiled_parallel_model():
    template = sequential()
    template.compile("adam", loss="mse")
    parallel = multi_gpu_model(template, gpus=2)
    assert parallel.compiled
    assert parallel.optimizer is template.optimizer


@pytest.mark.filterwarnings("ignore:Layer InputLayer does not have")  # says Keras
def test_it_is_quantized_as_the_template_is():
    one, x = sequential(), np.random.default_rng(0).normal(size=(7, 4)).astype("float32")
    parallel = parallel_of(sequential, gpus=3)
    parallel.set_weights(one.get_weights())
    before = parallel.predict(x, verbose=0)
    for model in (one, parallel):
        model.quantize("int8")
    assert_same(parallel.predict(x, verbose=0), one.predict(x, verbose=0))
    assert not np.allclose(before, one.predict(x, verbose=0))


def test_a_stateless_call_takes_the_values_that_it_is_given():
    parallel = parallel_of(sequential)
    x, values = np.ones((5, 4), "float32"), [2 * weight.value for weight in parallel.trainable_variables]
    (found, _), (expected, _) = [m.stateless_call(values, [], x) for m in (parallel, parallel.template)]
    assert_same(found, expected)
    assert not np.allclose(found, parallel(x))


def test_a_layer_that_is_called_on_a_parallel_model_says_what_to_do():
    parallel = multi_gpu_model(keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]), gpus=["CPU:0", "CPU:1"])
    with pytest.raises(ValueError, match=r"Received: a parallel model\. Add layers to its template, and call"):
        keras.layers.Dense(1)(parallel)


def test_a_parallel_model_is_an_argument_of_a_function():
    parallel = multi_gpu_model(keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]), gpus=["CPU:0", "CPU:1"])
    x = np.ones((3, 4), "float32")
    called = tf.function(lambda model, x: model(x))
    assert_same(called(parallel, x), parallel(x))
