"""The roll call: before a model is trained, all workers say what they have, and begin with the chief's values."""

import json
import random

import keras
import tensorflow as tf

import multigpu
from multigpu.cluster.absence import answer_on_port
from multigpu.cluster.description import Cluster
from multigpu.cluster.lost import ask_on, wait_for_all, watch
from multigpu.cluster.messages import take_chiefs_values, tell_numbers, tell_text
from multigpu.place_locate import stored_dtype
from multigpu.plan import Plan

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
    answers = [json.loads(text) for text in tell_text(json.dumps(_answers(model, plan)), cluster)]
    _check_alike(answers, cluster)
    ask_on(tell_numbers([answer_on_port()], cluster)[:, 0].astype(int).tolist())
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


def _check_alike(answers: list[dict[str, str]], cluster: Cluster) -> None:
    for number, answer in enumerate(answers):
        for question, expected in answers[0].items():
            if answer.get(question) != expected:
                raise ValueError(
                    "Expected the same program on all workers. "
                    f"Received: {question}: {answer.get(question)} on {cluster.name(number)}, and {expected} on "
                    f"{cluster.name(0)}. Install the same versions everywhere, and build the same model, with as many "
                    "devices on each."
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
