"""What the ways to train on several devices are compared on: data, models of Keras, and how far weights differ."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

DEVICES, BATCH, EPOCHS, RATE, CLIP, STEPS = 4, 16, 3, 0.1, 0.05, 6


@dataclass(frozen=True)
class Case:
    """Rows of the data, and what the model or the optimizer has beside dense layers."""

    rows: int = 64
    clips: bool = False
    masks: bool = False
    normalizes: bool = False


CASES = {
    "even batches": Case(),
    "a last batch of 6 rows": Case(rows=54),
    "a last batch of 1 row": Case(rows=49),
    "gradients clipped by norm": Case(clips=True),
    "masks of different lengths": Case(masks=True),
    "synchronized BatchNormalization": Case(normalizes=True),
}


def data(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Inputs of three features, for `masks` in sequences whose ends are zeros, and one target for each."""
    rng = np.random.default_rng(0)
    shape = (case.rows, STEPS) if case.masks else (case.rows,)
    x = rng.normal(size=(*shape, 3)).astype("float32")
    y = np.tanh(x @ [[1.0], [-2.0], [0.5]]).astype("float32")
    if case.masks:  # the first rows of a batch are the shortest ones: devices count differently many steps
        lengths = 1 + np.arange(case.rows) % BATCH * STEPS // BATCH
        x[np.arange(STEPS) >= lengths[:, None]] = 0
    return x, y


def weights() -> list[np.ndarray]:
    """Kernels and biases of the two dense layers before training."""
    rng = np.random.default_rng(1)
    shapes = [(3, 8), (8,), (8, 1), (1,)]
    return [rng.normal(scale=0.5, size=shape).astype("float32") for shape in shapes]


def moved(before: list[np.ndarray], one: list[np.ndarray], several: list[np.ndarray]) -> float:
    """How far weights are off those of one device, as a share of the way that they went in the training."""
    off = max(np.abs(a - b).max() for a, b in zip(one, several, strict=True))
    return float(off / max(np.abs(a - b).max() for a, b in zip(one, before, strict=True)))


def trained(case: Case, spread: Callable | None = None) -> list[np.ndarray]:
    """Weights of the two dense layers of a Keras model after training.

    Args:
        case: what the model has.
        spread: makes the model that trains, from a function that makes the plain one; None trains the plain one.
    """
    import keras

    in_parts = keras.backend.backend() == "tensorflow"  # JAX sees the whole batch, and needs nothing to be synchronized

    def build() -> keras.Model:
        layers = [keras.layers.Masking()] if case.masks else []
        layers += [keras.layers.Dense(8, activation="tanh")]
        layers += [keras.layers.BatchNormalization(synchronized=in_parts)] if case.normalizes else []
        x, _ = data(case)
        model = keras.Sequential([keras.Input(x.shape[1:]), *layers, keras.layers.Dense(1)])
        for layer, values in zip((layers[1 if case.masks else 0], model.layers[-1]), (0, 2), strict=True):
            layer.set_weights(weights()[values : values + 2])
        return model

    def train(model: keras.Model) -> None:
        clipnorm = CLIP if case.clips else None
        model.compile(optimizer=keras.optimizers.SGD(RATE, clipnorm=clipnorm), loss="mse")
        model.fit(*data(case), batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0)

    template = (spread or _alone)(build, train)
    return [w for layer in template.layers if isinstance(layer, keras.layers.Dense) for w in layer.get_weights()]


def _alone(build: Callable, train: Callable) -> object:
    model = build()
    train(model)
    return model
