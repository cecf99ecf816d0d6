"""The tasks of keras-hub around tiny backbones: how they are made, what they learn, what they make of a prompt."""

import inspect
from collections.abc import Callable
from typing import Any

import keras
import keras_hub
import numpy as np

from bench.hub.backbones import Case

models = keras_hub.models
SETTINGS = {
    **{"num_classes": 3, "dropout": 0.0, "drop_rate": 0.0, "bounding_box_format": "yxyx"},
    "depth_estimation_type": "relative",
    **{
        "backbone_hidden_size": 8,
        "num_centroids": 2,
        "centroid_intermediate_top_k": 1,
        "use_ordered_embeddings": False,
    },
}
OF_LOGITS = (models.CausalLM, models.MaskedLM, models.TextClassifier, models.ImageClassifier)


def of_backbone(name: str) -> list[type[keras.Model]]:
    """The tasks of a backbone of the table, each once."""
    backbone = getattr(models, name.split(",")[0], None)
    classes = [getattr(models, each) for each in dir(models) if each != "Task"]
    tasks = {id(each): each for each in classes if inspect.isclass(each) and issubclass(each, models.Task)}
    return [each for each in tasks.values() if backbone and each.backbone_cls is backbone]


def make_task(task: type[keras.Model], case: Case) -> keras.Model:
    """The task around its backbone, without a preprocessor."""
    takes = inspect.signature(task.__init__).parameters
    settings = {name: value for name, value in SETTINGS.items() if name in takes}
    if task is models.RetinaNetObjectDetector:
        settings |= _anchors()
    if task is models.DFineObjectDetector:
        settings["num_classes"] = 4
    return task(backbone=case.make(), **{"preprocessor": None, **settings})


def _anchors() -> dict[str, Any]:
    from keras_hub.src.models.retinanet.retinanet_label_encoder import RetinaNetLabelEncoder

    anchors = keras_hub.layers.AnchorGenerator(
        bounding_box_format="yxyx", min_level=3, max_level=4, num_scales=3, aspect_ratios=[0.5, 1.0, 2.0], anchor_size=4
    )
    encoder = RetinaNetLabelEncoder(bounding_box_format="yxyx", anchor_generator=anchors)
    return {"anchor_generator": anchors, "label_encoder": encoder}


def learns(task: type[keras.Model], classifies: Callable, regresses: Callable) -> Callable[[Any], dict[str, Any]]:
    """Targets and settings of `compile()` for outputs."""
    if issubclass(task, models.ObjectDetector):
        return _detects
    if issubclass(task, OF_LOGITS):
        return classifies(**({"sampler": "greedy"} if issubclass(task, models.CausalLM) else {}))
    return regresses()


def _detects(outputs: Any) -> dict[str, Any]:
    rows = len(keras.tree.flatten(outputs)[0])
    boxes = np.tile(np.array([[[4.0, 4.0, 16.0, 20.0], [8.0, 2.0, 30.0, 12.0]]], "float32"), (rows, 1, 1))
    y = {"boxes": boxes + np.arange(rows, dtype="float32")[:, None, None] / 4, "labels": np.tile([[0, 2]], (rows, 1))}
    return {"y": y, "compile": lambda: {"optimizer": keras.optimizers.SGD(0.01)}}


def prompt(task: type[keras.Model], x: Any) -> dict[str, np.ndarray]:
    """The start of a text, for tasks that go on with it."""
    if not issubclass(task, models.CausalLM):
        return {}
    mask = "decoder_padding_mask" if "decoder_padding_mask" in x else "padding_mask"
    places = np.arange(x[mask].shape[1])
    return {**x, mask: np.broadcast_to(places < 2, x[mask].shape)}
