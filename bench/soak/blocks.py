"""What random models are made of: pieces for features, series and images, and the ways from those to features."""

from collections.abc import Callable
from typing import Any

import keras
from keras import layers

from bench.soak.draw import Draw
from bench.soak.own_layers import LOSSES, STATES, Adds, Keeps, Measures

SMOOTH = ["tanh", "gelu", "silu", "softplus", "sigmoid"]  # a kink would make one rounding two different numbers
REGULARIZERS = [None, "l1", "l2"]
Piece = Callable[[Draw, Any], Any]


def dense(draw: Draw, x: Any) -> Any:
    return layers.Dense(draw.number(1, 6), draw.one_of(SMOOTH), use_bias=draw.chance(0.8))(x)


def regularized(draw: Draw, x: Any) -> Any:
    kernel, activity = draw.one_of(REGULARIZERS), draw.one_of(REGULARIZERS)
    return layers.Dense(draw.number(1, 6), "tanh", kernel_regularizer=kernel, activity_regularizer=activity)(x)


def shared(draw: Draw, x: Any) -> Any:
    layer = layers.Dense(x.shape[-1], "tanh")
    return layers.add([layer(layer(x)), x])


def constrained(draw: Draw, x: Any) -> Any:
    return layers.Dense(draw.number(1, 5), "tanh", kernel_constraint=draw.one_of(["max_norm", "unit_norm"]))(x)


def joined(draw: Draw, x: Any) -> Any:
    way = draw.one_of([layers.multiply, layers.average, layers.subtract, layers.concatenate])
    return way([x, layers.Dense(x.shape[-1], "tanh")(x)])


def nested(draw: Draw, x: Any) -> Any:
    inputs = keras.Input(x.shape[1:])
    inner = keras.Model(inputs, layers.Dense(draw.number(1, 5), "tanh")(layers.Dropout(0.3, seed=1)(inputs)))
    return inner(inner(x)) if inner.output_shape == inner.input_shape else inner(x)


def synchronized(draw: Draw, x: Any) -> Any:
    return layers.BatchNormalization(momentum=0.9, epsilon=0.1, synchronized=True)(x)


def frozen(draw: Draw, x: Any) -> Any:
    return layers.BatchNormalization(trainable=False)(x)


def embed(draw: Draw, x: Any) -> Any:
    options = {"mask_zero": draw.chance(0.5, "mask"), "embeddings_regularizer": draw.one_of(REGULARIZERS)}
    return layers.Embedding(7, draw.number(2, 5), **options)(x)


def attend(draw: Draw, x: Any) -> Any:
    return layers.MultiHeadAttention(2, 2, use_bias=draw.chance(0.5))(x, x, use_causal_mask=draw.chance(0.3))


EVERYWHERE: dict[str, Piece] = {
    "dense": dense,
    "regularized": regularized,
    "shared layer": shared,
    "constraint": constrained,
    "joined": joined,
    "layer normalization": lambda draw, x: layers.LayerNormalization(epsilon=0.1)(x),
    "rms normalization": lambda draw, x: layers.RMSNormalization(epsilon=0.1)(x),
    "unit normalization": lambda draw, x: layers.UnitNormalization()(x),
    "group normalization": lambda draw, x: layers.GroupNormalization(-1, epsilon=0.1)(x),
    "synchronized batch normalization": synchronized,
    "frozen batch normalization": frozen,
    "spectral normalization": lambda draw, x: layers.SpectralNormalization(layers.Dense(3))(x),
    "dropout": lambda draw, x: layers.Dropout(0.3, seed=1)(x),
    "activity regularization": lambda draw, x: layers.ActivityRegularization(l2=0.01)(x),
    "adds": lambda draw, x: Adds(draw.kind(LOSSES))(x),
    "keeps": lambda draw, x: Keeps(draw.kind(STATES))(x),
    "measures": lambda draw, x: Measures()(x),
}
PIECES: dict[int, dict[str, Piece]] = {  # by the number of axes
    2: {**EVERYWHERE, "nested model": nested, "prelu": lambda draw, x: layers.PReLU(alpha_initializer="ones")(x)},
    3: {
        **EVERYWHERE,
        "masking": lambda draw, x: layers.Masking()(x),
        "lstm": lambda draw, x: layers.LSTM(draw.number(1, 4), return_sequences=True)(x),
        "gru": lambda draw, x: layers.GRU(draw.number(1, 4), return_sequences=True)(x),
        "bidirectional": lambda draw, x: layers.Bidirectional(layers.GRU(2, return_sequences=True))(x),
        "time distributed": lambda draw, x: layers.TimeDistributed(layers.Dense(3, "tanh"))(x),
        "conv1d": lambda draw, x: layers.Conv1D(draw.number(1, 4), 2, padding="same", activation="tanh")(x),
        "multi-head attention": attend,
        "group query attention": lambda draw, x: layers.GroupQueryAttention(2, 2, 1)(x, x),
        "attention": lambda draw, x: layers.Attention(use_scale=True)([x, x]),
        "additive attention": lambda draw, x: layers.AdditiveAttention()([x, x]),
    },
    4: {
        **EVERYWHERE,
        "conv2d": lambda draw, x: layers.Conv2D(draw.number(1, 4), 2, padding="same", activation="tanh")(x),
        "depthwise conv2d": lambda draw, x: layers.DepthwiseConv2D(2, padding="same", activation="tanh")(x),
        "separable conv2d": lambda draw, x: layers.SeparableConv2D(3, 2, padding="same", activation="tanh")(x),
        "transposed conv2d": lambda draw, x: layers.Conv2DTranspose(2, 2, padding="same", activation="tanh")(x),
        "max pooling": lambda draw, x: layers.MaxPooling2D(2, padding="same")(x),
        "average pooling": lambda draw, x: layers.AveragePooling2D(2, padding="same")(x),
    },
}
TO_FEATURES: dict[int, dict[str, Piece]] = {
    2: {"as it is": lambda draw, x: layers.Activation("linear")(x)},
    3: {
        "masked average": lambda draw, x: layers.GlobalAveragePooling1D()(x),
        "global maximum": lambda draw, x: layers.GlobalMaxPooling1D()(x),
        "last of rnn": lambda draw, x: draw.one_of([layers.LSTM, layers.GRU, layers.SimpleRNN])(3)(x),
        "flatten": lambda draw, x: layers.Flatten()(x),
    },
    4: {
        "global average": lambda draw, x: layers.GlobalAveragePooling2D()(x),
        "flatten": lambda draw, x: layers.Flatten()(x),
    },
}
