"""The ways to train a Keras model on several devices. Each is given how to make the model, and how to train it."""

from collections.abc import Callable
from typing import Any

from bench.exactness.peer_cases import DEVICES

JAX = "keras.distribution on JAX"
Build = Callable[[], Any]
Train = Callable[[Any], None]


def simulate_devices(way: str) -> None:
    """Splits the CPU, before anything runs; JAX is told by its environment."""
    if way != JAX:
        import multigpu

        multigpu.simulate_gpus(DEVICES)


def with_multigpu(build: Build, train: Train) -> Any:
    import multigpu

    model = build()
    train(multigpu.multi_gpu_model(model))
    return model


def with_mirrored_strategy(build: Build, train: Train) -> Any:
    import multigpu
    from bench.lib.strategies import mirrored

    with mirrored(multigpu.available_gpus()).scope():
        model = build()
        train(model)
    return model


def with_keras2_algorithm(build: Build, train: Train) -> Any:
    import multigpu
    from bench.lib.keras2_algorithm import Keras2Algorithm

    model = build()
    train(Keras2Algorithm(model, multigpu.available_gpus()))
    return model


def with_keras_distribution(build: Build, train: Train) -> Any:
    import keras

    keras.distribution.set_distribution(keras.distribution.DataParallel())
    model = build()
    train(model)
    return model


WAYS = {
    "multigpu": with_multigpu,
    "MirroredStrategy": with_mirrored_strategy,
    "Keras 2 algorithm": with_keras2_algorithm,
    JAX: with_keras_distribution,
}
