"""Models of keras-hub and of keras.applications, one after the other: a line for each. The list of them with `--list`.

python bench/hub/worker.py BertBackbone BertBackbone/LoRA BertBackbone/BertMaskedLM keras.applications/MobileNet
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # the repository, for `bench.*`

import inspect
import json
import warnings
from collections.abc import Callable
from typing import Any

import keras
import keras_hub
import numpy as np

import multigpu
from bench.hub.backbones import BACKBONES, Case
from bench.hub.rows import classes_for, inputs_of, targets_for
from bench.hub.tasks import learns, make_task, of_backbone, prompt
from bench.hub.twins import Use, compared, told
from multigpu.private_api.layers import sublayers

ROWS = 7  # which no three devices have evenly
CHANGES = {"LoRA": lambda model, x: model.enable_lora(2), "int8": lambda model, x: quantize(model, x)}


def main() -> None:
    warnings.simplefilter("ignore")
    if sys.argv[1:] == ["--list"]:
        print("LIST", json.dumps(all_models()))
        return
    multigpu.simulate_gpus(3)
    for name in sys.argv[1:]:
        print("BEGIN", json.dumps(name), flush=True)
        keras.utils.clear_session()
        try:
            found = verdict(name)
        except Exception as error:
            found = {"verdict": "not tried", "why": told(error)}
        print("FOUND", json.dumps({"model": name, **found}), flush=True)


def all_models() -> list[str]:
    """Backbones first, then what is made of them."""
    changes = [f"{name}/{change}" for change in CHANGES for name in BACKBONES]
    tasks = [f"{name}/{task.__name__}" for name in BACKBONES for task in of_backbone(name)]
    classes = [name for name in dir(keras.applications) if inspect.isfunction(getattr(keras.applications, name))]
    return [*BACKBONES, *tasks, *(f"keras.applications/{name}" for name in classes), *changes]


def verdict(name: str) -> dict[str, Any]:
    """What becomes of a model."""
    family, _, kind = name.partition("/")
    if family == "keras.applications":
        return application(kind)
    if kind in CHANGES or not kind:
        return backbone(BACKBONES[family], CHANGES.get(kind, lambda model, x: None))
    return task(BACKBONES[family], getattr(keras_hub.models, kind))


def application(name: str) -> dict[str, Any]:
    side = {"InceptionV3": 75, "InceptionResNetV2": 75, "Xception": 71}.get(name, 32)
    arguments = {"weights": None, "classes": 5, "classifier_activation": None, "input_shape": (side, side, 3)}
    model = fresh(lambda: getattr(keras.applications, name)(**arguments))
    x = np.random.default_rng(0).uniform(0, 255, (ROWS, side, side, 3)).astype("float32")
    return compared(model, trains_and_predicts(x, classifies(), {}), ROWS)


def backbone(case: Case, change: Callable[[keras.Model, Any], None]) -> dict[str, Any]:
    model = fresh(case.make)
    x = inputs(model, case)
    change(model, x)
    return compared(model, trains_and_predicts(x, regresses(), {}), ROWS)


def quantize(model: keras.Model, x: Any) -> None:
    """Quantize a model whose layers are built, as Keras asks for it."""
    model(x)
    model.quantize("int8")


def task(case: Case, task: type[keras.Model]) -> dict[str, Any]:
    model = fresh(lambda: make_task(task, case))
    x = inputs(model, case)
    return compared(model, trains_and_predicts(x, learns(task, classifies, regresses), prompt(task, x)), ROWS)


def fresh(make: Callable[[], keras.Model]) -> keras.Model:
    """A model that draws no noise, since it belongs to places in the batch; with the whole batch's statistics."""
    keras.utils.set_random_seed(0)
    model = make()
    for layer in sublayers(model):
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.synchronized = keras.backend.backend() == "tensorflow"  # on JAX they are so by themselves
        if isinstance(getattr(layer, "rate", None), float):
            layer.rate = 0.0
    return model


def inputs(model: keras.Model, case: Case) -> Any:
    return inputs_of(model, ROWS, case.length, case.side, case.below, case.given)


def trains_and_predicts(x: Any, learn: Callable[[Any], dict[str, Any]], start: dict[str, np.ndarray]) -> Use:
    """A prediction, a step of training, a prediction, and what is made of the start of a text."""

    def use(model: keras.Model, order: np.ndarray, eagerly: bool) -> list[np.ndarray]:
        rows = _in(order, x)
        model.compile(optimizer="sgd", run_eagerly=eagerly)
        outputs = _in(np.argsort(order), model.predict(rows, verbose=0))
        numbers = keras.tree.flatten(outputs)
        learned = learn(outputs)
        y, weights = (_in(order, learned.get(name)) for name in ("y", "sample_weight"))
        if model.trainable_variables:
            model.compile(**learned["compile"](), run_eagerly=eagerly)
            settings = {"batch_size": len(order), "shuffle": False, "verbose": 0}
            logs = model.fit(rows, y, sample_weight=weights, **settings).history
            numbers += [np.array(logs[name]) for name in sorted(logs)]
        if start:
            model.compile(**learned["compile"](), run_eagerly=False)
            made = model.generate(_in(order, start), stop_token_ids=None)
            numbers += keras.tree.flatten(_in(np.argsort(order), made))
        return numbers

    return use


def _in(order: np.ndarray, structure: Any) -> Any:
    """The same arrays with their rows in another order; one that has not as many stays as it is."""
    rows = lambda a: np.array(a)[order] if np.shape(a)[:1] == order.shape else a  # noqa: E731
    return keras.tree.map_structure(lambda a: None if a is None else rows(a), structure)


def regresses() -> Callable[[Any], dict[str, Any]]:
    """Squared errors of all outputs that are numbers."""

    def learn(outputs: Any) -> dict[str, Any]:
        y = targets_for(outputs)
        losses = keras.tree.map_structure(lambda a: "mse" if a.dtype.kind == "f" else None, outputs)
        return {"y": y, "compile": lambda: {"optimizer": keras.optimizers.SGD(0.5), "loss": losses}}

    return learn


def classifies(**compiled: Any) -> Callable[[Any], dict[str, Any]]:
    """The crossentropy of logits, with weights of rows or of places in them."""

    def learn(outputs: np.ndarray) -> dict[str, Any]:
        y = classes_for(outputs)
        weights = np.random.default_rng(2).integers(1, 4, y.shape).astype("float32")
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        compile = lambda: {"optimizer": keras.optimizers.SGD(0.5), "loss": loss, **compiled}  # noqa: E731
        return {"y": y, "sample_weight": weights, "compile": compile}

    return learn


if __name__ == "__main__":
    main()
