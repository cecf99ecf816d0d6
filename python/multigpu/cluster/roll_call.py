"""The roll call: before a model is trained, all workers say what they have, and begin with the chief's values."""

import json
import random
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

import multigpu
from multigpu.cluster.description import Cluster
from multigpu.cluster.lost import wait_for_all, watch
from multigpu.cluster.messages import take_chiefs_values, tell_numbers, tell_text
from multigpu.cluster.settings import settings
from multigpu.place_locate import stored_dtype
from multigpu.plan import Plan
from multigpu.template import compile_arguments

BUILD_ALIKE = "Install the same versions everywhere, and build the same model, with as many devices on each."
FIT_ALIKE = "Call `compile()` and `fit()` with the same arguments everywhere."
UNSET_SEED = 87654321  # TensorFlow's answer where `tf.random.set_seed()` was never called


def begin_together(model: keras.Model, plan: Plan) -> None:
    """Waits for all workers, refuses those that differ, and gives all the chief's weights and seed.

    Raises:
        ValueError: a worker has another version, model or number of devices. All workers raise it.
    """
    cluster = plan.cluster
    if cluster is None:
        return
    wait_for_all(cluster)
    watch(cluster)
    _check_alike(_answers(model, plan), cluster, BUILD_ALIKE)
    optimizer = getattr(model, "optimizer", None)
    take_chiefs_values([*model.variables, *(optimizer.variables if optimizer is not None else [])], cluster)
    _take_chiefs_seed(cluster)


def _answers(model: keras.Model, plan: Plan) -> dict[str, str]:
    """What has to be the same everywhere, most telling first."""
    optimizer = getattr(model, "optimizer", None)
    slots = len(optimizer.variables) if optimizer is not None else 0
    return {
        "multigpu": multigpu.__version__,
        "Keras": keras.__version__,
        "TensorFlow": tf.__version__,
        "devices": ", ".join(plan.devices),
        "cpu_relocation": str(plan.cpu_relocation),
        "number of weights": str(len(model.variables)),
        **{f"variable {number} of the model": _shown(variable) for number, variable in enumerate(model.variables)},
        "variables of the optimizer": str(slots),
    }


def _shown(variable: keras.Variable) -> str:
    kind = f"{stored_dtype(variable).name} trainable={variable.trainable}"
    return f"{variable.path} {tuple(variable.shape)} {kind}"


def check_fit_alike(model: keras.Model, arguments: Mapping[str, Any], cluster: Cluster) -> None:
    """Refuses workers that train in other ways: their weights would part, or some would wait for the others.

    Raises:
        ValueError: a worker has another optimizer, loss or argument of `fit`. All workers raise it.
    """
    loss = compile_arguments(model)["loss"] if model.compiled else None
    validated = arguments.get("validation_data") is not None or bool(arguments.get("validation_split"))
    answers = {
        "optimizer": json.dumps(settings(getattr(model, "optimizer", None))),
        "loss": json.dumps(settings(loss)),
        "batch_size": str(arguments.get("batch_size") or 32),  # as Keras has it
        "epochs": str(arguments.get("epochs", 1)),
        "validation": str(validated),
    }
    _check_alike(answers, cluster, FIT_ALIKE)


def _check_alike(answers: Mapping[str, str], cluster: Cluster, cure: str) -> None:
    told = [json.loads(text) for text in tell_text(json.dumps(answers), cluster)]
    for number, answer in enumerate(told):
        for question, expected in told[0].items():
            if answer.get(question) != expected:
                raise ValueError(
                    "Expected the same program on all workers. "
                    f"Received: {question}: {answer.get(question)} on {cluster.name(number)}, and {expected} on "
                    f"{cluster.name(0)}. {cure}"
                )


def _take_chiefs_seed(cluster: Cluster) -> None:
    """Without a seed of the chief's, one is drawn: rows of arrays have to be dealt alike everywhere."""
    seed, _ = tf.compat.v1.get_seed(0)
    mine = -1 if seed == UNSET_SEED else seed
    chiefs = int(tell_numbers([mine], cluster)[0, 0])
    if chiefs < 0:
        chiefs = int(tell_numbers([random.getrandbits(31)], cluster)[0, 0])
    if chiefs != mine:
        tf.random.set_seed(chiefs)
