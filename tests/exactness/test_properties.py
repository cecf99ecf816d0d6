"""Random small models, batches, devices and optimizers: three steps in parallel are three steps on one device."""

import keras
import numpy as np
from equality import assert_same, assert_same_weights, make_twins
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from keras import layers

OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "rmsprop": lambda: keras.optimizers.RMSprop(0.01, epsilon=1e-3),
    "adam": lambda: keras.optimizers.Adam(0.01, epsilon=1e-3),
    "adamw": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1, epsilon=1e-3),
    "clipped": lambda: keras.optimizers.SGD(0.1, global_clipnorm=0.1),
}

REGULARIZERS = st.sampled_from([None, "l1", "l2"])
WIDTHS = st.integers(1, 9)


@st.composite
def dense_stacks(draw):
    """Input shape and a function that makes the layers."""
    widths = draw(st.lists(WIDTHS, min_size=1, max_size=3))
    regularizers = {"kernel_regularizer": draw(REGULARIZERS), "activity_regularizer": draw(REGULARIZERS)}
    return ((4,), "float32"), lambda: [layers.Dense(width, activation="tanh", **regularizers) for width in widths]


@st.composite
def conv_stacks(draw):
    filters, options = draw(WIDTHS), {"padding": "same", "kernel_regularizer": draw(REGULARIZERS)}
    pool = draw(st.sampled_from([layers.GlobalAveragePooling2D, layers.Flatten]))
    return ((5, 4, 2), "float32"), lambda: [layers.Conv2D(filters, 3, activation="tanh", **options), pool()]


@st.composite
def embedding_stacks(draw):
    width, mask_zero = draw(WIDTHS), draw(st.booleans())
    regularizer = draw(REGULARIZERS)
    pool = draw(st.sampled_from([layers.GlobalAveragePooling1D, lambda: layers.SimpleRNN(3)]))
    embedding = {"mask_zero": mask_zero, "embeddings_regularizer": regularizer}
    return ((6,), "int32"), lambda: [layers.Embedding(5, width, **embedding), pool()]


@st.composite
def builders(draw):
    """A function that builds and compiles a model, and whether the model has two outputs."""
    (shape, dtype), stack = draw(st.one_of(dense_stacks(), conv_stacks(), embedding_stacks()))
    dropout, two, optimizer = draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from(sorted(OPTIMIZERS)))

    def build():
        x = hidden = keras.Input(shape, dtype=dtype)
        for layer in stack() + [layers.Dropout(0.5, seed=1)] * dropout:
            hidden = layer(hidden)
        outputs = [layers.Dense(2, name="a")(hidden)] + [layers.Dense(1, name="b")(hidden)] * two
        model = keras.Model(x, outputs if two else outputs[0])
        model.compile(OPTIMIZERS[optimizer](), "mse", metrics=[["mae"], ["mse"]] if two else ["mae"])
        return model

    return build


def random_batch(model, num_rows, seed):
    """Inputs and targets for one step."""
    random = np.random.default_rng(seed)
    whole = model.inputs[0].dtype == "int32"
    shape = (num_rows, *model.inputs[0].shape[1:])
    x = random.integers(0, 5, shape, "int32") if whole else random.normal(size=shape).astype("float32")
    targets = [random.normal(size=(num_rows, *output.shape[1:])).astype("float32") for output in model.outputs]
    return x, targets if len(targets) > 1 else targets[0]


# an example trains two models, which is slow, and the fixture that seeds each test suits all of its examples
EXPECTED = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
AS_FOUND = [Phase.generate]  # the models are small, and making a failing one smaller takes minutes


# `make soak` has thousands of random models
@settings(max_examples=3, deadline=None, derandomize=True, suppress_health_check=EXPECTED, phases=AS_FOUND)
@given(build=builders(), num_rows=st.tuples(*[st.integers(1, 20)] * 3), gpus=st.integers(2, 8))
def test_three_steps_in_parallel_are_three_steps_on_one_device(build, num_rows, gpus):
    one, parallel = make_twins(build, gpus)
    for step, rows in enumerate(num_rows):
        x, y = random_batch(one, rows, seed=step)
        assert_same(*(model.train_on_batch(x, y, return_dict=True) for model in (parallel, one)))
    assert_same_weights(parallel, one)
    assert_same(parallel.predict_on_batch(x), one.predict_on_batch(x))
