"""Random small models, compiled: inputs, pieces, outputs, losses, optimizers."""

from typing import Any

import keras
import numpy as np
from keras import layers

from bench.soak.blocks import PIECES, TO_FEATURES, Piece, embed
from bench.soak.draw import Draw
from bench.soak.own_layers import LOSSES, Writes

INPUTS: dict[str, tuple[tuple[int, ...], str]] = {
    "features": ((4,), "float32"),
    "series": ((4, 3), "float32"),
    "images": ((4, 3, 2), "float32"),
    "ids": ((5,), "int32"),
}
# epsilons are large: where a gradient is next to nothing, its rounding must not become a step of full size
OPTIMIZERS = {
    "sgd": lambda **k: keras.optimizers.SGD(0.1, momentum=0.9, **k),
    "sgd with schedule": lambda **k: keras.optimizers.SGD(
        keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.8), **k
    ),
    "nesterov": lambda **k: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True, **k),
    "rmsprop": lambda **k: keras.optimizers.RMSprop(0.01, epsilon=1e-3, momentum=0.5, centered=True, **k),
    "adam": lambda **k: keras.optimizers.Adam(0.01, epsilon=1e-2, **k),
    "amsgrad": lambda **k: keras.optimizers.Adam(0.01, epsilon=1e-2, amsgrad=True, **k),
    "adamw": lambda **k: keras.optimizers.AdamW(0.01, epsilon=1e-2, weight_decay=0.1, **k),
    "adagrad": lambda **k: keras.optimizers.Adagrad(0.1, **k),
    "adadelta": lambda **k: keras.optimizers.Adadelta(1.0, epsilon=1e-3, **k),
    "adamax": lambda **k: keras.optimizers.Adamax(0.01, epsilon=1e-2, **k),
    "nadam": lambda **k: keras.optimizers.Nadam(0.01, epsilon=1e-2, **k),
    "ftrl": lambda **k: keras.optimizers.Ftrl(0.1, **k),
    "lamb": lambda **k: keras.optimizers.Lamb(0.01, epsilon=1e-2, **k),
}
CLIPPING: dict[str, dict[str, float]] = {
    "no clipping": {},
    "clipnorm": {"clipnorm": 0.1},
    "clipvalue": {"clipvalue": 0.02},
    "global_clipnorm": {"global_clipnorm": 0.2},
}


def build(draw: Draw) -> keras.Model:
    """A model that is not compiled."""
    inputs = [_input(draw) for _ in range(draw.one_of([1, 1, 1, 1, 1, 2, 2, 3]))]
    x = _merged(draw, [_features(draw, tensor) for tensor in inputs])
    outputs = [_output(draw, x) for _ in range(draw.one_of([1, 1, 1, 1, 1, 2, 2, 3]))]
    model = keras.Model(inputs if len(inputs) > 1 else inputs[0], outputs if len(outputs) > 1 else outputs[0])
    if draw.chance(0.15, "its own call"):
        shown = Writes(model, draw.kind({f"own call {name}": loss for name, loss in LOSSES.items()}))
        shown([_zeros(tensor) for tensor in inputs] if len(inputs) > 1 else _zeros(inputs[0]))
        return shown
    return model


def _zeros(tensor: Any) -> np.ndarray:
    return np.zeros((2, *tensor.shape[1:]), tensor.dtype)


def _input(draw: Draw) -> Any:
    shape, dtype = draw.kind(INPUTS)
    return keras.Input(shape, dtype=dtype)


def _features(draw: Draw, x: Any) -> Any:
    """From an input to one vector per row, by up to three pieces."""
    if x.dtype == "int32":
        with draw.part():
            x = embed(draw, x)
    for _ in range(draw.one_of([0, 1, 1, 2])):
        x = _piece(draw, x, PIECES)
    x = _piece(draw, x, TO_FEATURES)
    return _piece(draw, x, PIECES) if draw.chance(0.3) else x


def _piece(draw: Draw, x: Any, table: dict[int, dict[str, Piece]]) -> Any:
    """What a piece of the table makes of `x`, in one of the parts, if there are any."""
    with draw.part():
        return draw.kind(table[len(x.shape)])(draw, x)


def _merged(draw: Draw, tensors: list[Any]) -> Any:
    if len(tensors) == 1:
        return tensors[0]
    if draw.chance(0.3, "dot"):
        first, second = (layers.Dense(3, "tanh")(tensor) for tensor in tensors[:2])
        tensors = [layers.Dot(1)([first, second]), *tensors]
    return layers.concatenate(tensors)


def _output(draw: Draw, x: Any) -> Any:
    kinds = {
        "numbers": lambda: layers.Dense(2),
        "classes": lambda: layers.Dense(3, "softmax"),
        "binary": lambda: layers.Dense(1, "sigmoid"),
    }
    with draw.part():
        return draw.kind(kinds)()(x)


def activations(model: keras.Model) -> list[str]:
    """The activation of each output's last layer, which says what it is for."""
    inner = model.inner if isinstance(model, Writes) else model
    return [tensor._keras_history.operation.activation.__name__ for tensor in inner.outputs]


def compilation(draw: Draw, kinds: list[str]) -> dict[str, Any]:
    """Arguments of `compile` for outputs of some kinds."""
    options: dict[str, Any] = dict(draw.kind(CLIPPING))
    if draw.chance(0.15, "ema"):
        options.update(use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=draw.one_of([None, 2]))
    if draw.chance(0.15, "accumulation"):
        options["gradient_accumulation_steps"] = 2
    regression = draw.one_of(["mse", "huber", "log_cosh", "mae"])
    losses = {"linear": regression, "softmax": "sparse_categorical_crossentropy", "sigmoid": "binary_crossentropy"}
    metrics = {"linear": ["mae"], "softmax": ["accuracy"], "sigmoid": ["mse"]}
    several = len(kinds) > 1
    arguments: dict[str, Any] = {
        "optimizer": draw.kind(OPTIMIZERS)(**options),
        "loss": [losses[kind] for kind in kinds] if several else losses[kinds[0]],
        "metrics": [metrics[kind] for kind in kinds] if several else metrics[kinds[0]],
        "steps_per_execution": draw.one_of([1] * 6 + [2, 3]),
    }
    if several and draw.chance(0.5, "loss weights"):
        arguments["loss_weights"] = [0.5 + number for number in range(len(kinds))]
    if draw.chance(0.3, "weighted metrics"):
        arguments["weighted_metrics"] = [["mse"] for _ in kinds] if several else ["mse"]
    return arguments
