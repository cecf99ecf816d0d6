"""Each layer of Keras that draws draws on several devices what it draws on one."""

import inspect
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import soak
from equality import ONE_CALL, assert_same_training
from keras import layers

import multigpu

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.uniform(0, 255, (11, 8, 8, 3)).astype("float32")
SEQUENCES = RANDOM.uniform(0.1, 1, (11, 4, 6)).astype("float32")
FILMS = {sides: RANDOM.uniform(0, 1, (11, 3, *[4] * sides, 2)).astype("float32") for sides in (1, 2, 3)}

# Bit for bit: what these layers give is made of a row number by number -----------------------------------------------

OF_IMAGES = {
    "RandomBrightness": [0.5],
    "RandomColorDegeneration": [0.5],
    "RandomColorJitter": [(0, 255), 0.5, 0.5, 0.5, 0.5],
    "RandomContrast": [0.5],
    "RandomCrop": [4, 4],
    "RandomErasing": [1.0],
    "RandomFlip": [],
    "RandomGaussianBlur": [1.0],
    "RandomGrayscale": [0.5],
    "RandomHue": [0.5],
    "RandomInvert": [0.5],
    "RandomPerspective": [1.0],
    "RandomPosterization": [4],
    "RandomSaturation": [0.5],
    "RandomSharpness": [0.5],
    "RandomShear": [0.5, 0.5],
    "RandomTranslation": [0.5, 0.5],
    "RandomZoom": [0.5],
    "Solarization": [0.5, 0.5],
    "SpatialDropout2D": [0.5],
}
OF_SEQUENCES = {
    "AlphaDropout": [0.5],
    "Dropout": [0.5, (None, 1, 6)],
    "GaussianDropout": [0.5],
    "GaussianNoise": [0.5],
    "SpatialDropout1D": [0.5],
}
# Up to the rounding of sums, which another number of rows may bring into another order -------------------------------

RECURRENT = ["GRU", "LSTM", "SimpleRNN"]
CELLS = ["GRUCell", "LSTMCell", "SimpleRNNCell"]
CONVOLUTIONAL = {"ConvLSTM1D": 1, "ConvLSTM2D": 2, "ConvLSTM3D": 3}
ATTENTION = ["AdditiveAttention", "Attention", "GroupQueryAttention", "MultiHeadAttention"]
ROTATION = {"RandomRotation": [0.5]}
# They mix rows: Equalization counts the colours of all of them -------------------------------------------------------

REFUSED = {
    "AugMix": {},
    "CutMix": {},
    "MixUp": {},
    "RandAugment": {},
    "RandomElasticTransform": {"factor": 1.0},  # in a graph, all rows get the first one
}
ELSEWHERE = {"SpatialDropout3D", "JaxLayer"}  # beside ConvLSTM; of another backend


def test_a_layer_of_keras_that_draws_is_in_one_of_these_tables():
    here = {*OF_IMAGES, *OF_SEQUENCES, *RECURRENT, *CELLS, *CONVOLUTIONAL, *ATTENTION, *ROTATION, *REFUSED, *ELSEWHERE}
    assert {name for name, kind in vars(layers).items() if inspect.isclass(kind) and draws(kind)} == here


def draws(kind):
    """Whether a class takes a seed or a rate, or the file that has it knows seeds."""
    if not issubclass(kind, keras.Layer):
        return False
    takes = inspect.signature(kind.__init__).parameters
    has_seeds = "SeedGenerator" in vars(sys.modules[kind.__module__])
    return has_seeds or bool({"seed", "dropout", "rate", "recurrent_dropout"} & takes.keys())


def seeded(names):
    return [getattr(layers, name)(*arguments, seed=number) for number, (name, arguments) in enumerate(names.items())]


class AttendsToItself(layers.Layer):
    def __init__(self, name):
        super().__init__()
        sizes = {"MultiHeadAttention": [2, 3], "GroupQueryAttention": [3, 2, 1]}.get(name, [])
        self.takes_a_list = not sizes
        self.attention = getattr(layers, name)(*sizes, dropout=0.5)

    def call(self, x, training=None):
        return self.attention(*([[x, x]] if self.takes_a_list else [x, x]), training=training)


def recurrent(names):
    rates = {"dropout": 0.4, "recurrent_dropout": 0.4}
    made = [getattr(layers, name)(3, **rates, seed=number) for number, name in enumerate(names)]
    return [layer if isinstance(layer, layers.RNN) else layers.RNN(layer) for layer in made]


def convolutional():
    rates = {"dropout": 0.4, "recurrent_dropout": 0.4, "seed": 1}
    return [getattr(layers, name)(2, 2, **rates) for name in CONVOLUTIONAL]


def compilable():
    return [layer for layer in seeded(OF_IMAGES) if layer.supports_jit]


def branches(make, *inputs):
    """A model with an output for each layer; all of them take the one input, or each its own."""
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(7)
    takes, made = [keras.Input(x.shape[1:]) for x in inputs], make()
    each = takes * len(made) if len(takes) == 1 else takes
    return keras.Model(takes, [layer(x) for layer, x in zip(made, each, strict=True)])


CASES = {
    "images": (lambda: seeded(OF_IMAGES), [IMAGES], {"rtol": 0, "atol": 0}),
    "sequences": (lambda: seeded(OF_SEQUENCES), [SEQUENCES], {"rtol": 0, "atol": 0}),
    "wrapped": (lambda: [layers.TimeDistributed(layers.Dropout(0.5))], [SEQUENCES], {"rtol": 0, "atol": 0}),
    "films": (lambda: [layers.SpatialDropout3D(0.5)], [FILMS[2]], {"rtol": 0, "atol": 0}),
    "rotated images": (lambda: seeded(ROTATION), [IMAGES], {"rtol": 0, "atol": 1e-3}),  # of 255
    "images for XLA": (compilable, [IMAGES], {"rtol": 1e-6, "atol": 1e-3}),  # of 255; it computes in another order
    "attention": (lambda: [AttendsToItself(name) for name in ATTENTION], [SEQUENCES], ONE_CALL),
    "loops": (lambda: recurrent([*RECURRENT, *CELLS]), [SEQUENCES], ONE_CALL),
    "both ways": (lambda: [layers.Bidirectional(each) for each in recurrent(["LSTM"])], [SEQUENCES], ONE_CALL),
    "loops of convolutions": (convolutional, list(FILMS.values()), ONE_CALL),
}
# Keras compiles no model with another layer of images; the package no replica with a loop
COMPILED = ["sequences", "wrapped", "films", "attention", "images for XLA"]
WAYS = [
    *[soak(name, "traced") if name == "both ways" else (name, "traced") for name in CASES if name != "images for XLA"],
    *[(name, "eager") for name in ("sequences", "films")],
    *[soak(name, "eager") for name in CASES if name not in ("sequences", "films", "images for XLA")],
    *[soak(name, "compiled") for name in COMPILED],
]


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_layers_draw_what_they_draw_on_one_device(name, way):
    make, inputs, tolerance = CASES[name]
    (expected, seeds), (outputs, seeds_after) = (drawn(make, inputs, way, gpus) for gpus in (None, 3))
    untouched = branches(make, *inputs)([x[:11] for x in inputs], training=False)
    for number, output in enumerate(keras.tree.flatten(untouched)):
        assert not np.array_equal(output, keras.tree.flatten(expected[0])[number]), number  # they do draw
    for batch, of_one in zip(outputs, expected, strict=True):
        for number, pair in enumerate(zip(keras.tree.flatten(batch), keras.tree.flatten(of_one), strict=True)):
            np.testing.assert_allclose(*pair, **tolerance, err_msg=str(number))
    for pair in zip(seeds_after, seeds, strict=True):
        np.testing.assert_array_equal(*pair)


def drawn(make, inputs, way, gpus):
    """What the layers give in training for several numbers of rows, and all that they keep afterwards."""
    template = branches(make, *inputs)
    model = multigpu.multi_gpu_model(template, gpus=gpus) if gpus else template
    model.compile(jit_compile=way == "compiled", run_eagerly=way == "eager")
    call = lambda *x: model(list(x), training=True)  # noqa: E731
    if way != "eager":
        specs = [tf.TensorSpec((None, *x.shape[1:])) for x in inputs]
        compiled = True if way == "compiled" and not gpus else None
        call = tf.function(call, input_signature=specs, autograph=False, jit_compile=compiled)
    outputs = [call(*(x[:rows] for x in inputs)) for rows in (11, 2, 1, 7)]  # 11 has slices of 4 and of 3 rows
    return outputs, [variable.numpy() for variable in template.non_trainable_variables]


@pytest.mark.parametrize("name", ["attention", "loops"])
def test_what_they_are_part_of_trains_as_on_one_device(name):
    make, inputs, _ = CASES[name]

    def build():
        model = branches(make, *inputs)
        drawn = layers.concatenate([layers.Flatten()(x) for x in model.outputs])
        return keras.Model(model.inputs, layers.Dense(2)(drawn))

    y = RANDOM.uniform(size=(11, 2)).astype("float32")
    ways = {"compile": lambda: {"optimizer": "sgd", "loss": "mse"}, "batch_size": 4, "only_fit": True}
    assert_same_training(build, inputs[0], y, **ways)


@pytest.mark.parametrize("name", REFUSED)
def test_those_that_mix_rows_are_refused_by_name(name):
    layer = getattr(layers, name)(**REFUSED[name], seed=1, name="mixes")
    template = keras.Sequential([keras.Input(IMAGES.shape[1:]), layer, layers.Dense(3)])
    parallel = multigpu.multi_gpu_model(template, gpus=3)
    parallel.compile(optimizer="sgd", loss="mse")
    with pytest.raises(ValueError, match=r"Expected layers that take the rows .* Received: layer 'mixes'"):
        parallel.fit(IMAGES, IMAGES, verbose=0)
