"""The handshake: workers compare versions, models and settings, and begin with the chief's values."""

import inspect
import json
import random
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from multigpu.base.refusal import refuse
from multigpu.base.version import __version__
from multigpu.cluster.config import Cluster
from multigpu.engines.tensorflow.cluster.failures import wait_for_all, watch
from multigpu.engines.tensorflow.cluster.messages import all_gather_numbers, all_gather_text, broadcast_variables
from multigpu.engines.tensorflow.weights.place_locate import stored_dtype
from multigpu.plan.plan import Plan
from multigpu.private_api.default_generator import made_default_generator
from multigpu.private_api.layers import finish_state, variables_of
from multigpu.private_api.model_settings import settings, settings_of

BUILD_ALIKE = "Install the same versions everywhere, and build the same model, with as many devices on each."
FIT_ALIKE = "Call `compile()` and `fit()` with the same arguments everywhere."
UNLIKE = ("self", "x", "y", "sample_weight", "validation_data", "callbacks", "verbose")  # may differ
UNSET_SEED = 87654321  # TensorFlow's seed if `tf.random.set_seed()` was never called


def synchronize_workers(model: keras.Model, plan: Plan) -> None:
    """Wait for all workers, raise an error if they differ, and give all the chief's weights and seed.

    Raises:
        ValueError: a worker has another version, model or number of devices. All workers raise it.
    """
    cluster = plan.cluster
    if cluster is None:
        return
    wait_for_all(cluster)
    watch(cluster)
    _check_alike(_answers(model, plan), cluster, BUILD_ALIKE)
    broadcast_variables(shared_variables(model), cluster)
    finish_state(model)
    broadcast_seed(cluster)


def shared_variables(model: keras.Model) -> list[keras.Variable]:
    """Return the variables with the chief's values: those of the model and optimizer, and Keras' default noise."""
    return [*variables_of(model), made_default_generator().state]


def _answers(model: keras.Model, plan: Plan) -> dict[str, str]:
    """Return the values that must be the same on all workers, the most important first."""
    return {
        "multigpu": __version__,
        "Keras": keras.__version__,
        "TensorFlow": tf.__version__,
        "devices": ", ".join(" + ".join(group) for group in plan.replicas),
        "cpu_relocation": str(plan.cpu_relocation),
        "number of weights": str(len(model.variables)),
        **{f"variable {number} of the model": _shown(variable) for number, variable in enumerate(model.variables)},
        "variables of the optimizer": str(len(variables_of(model)) - len(model.variables)),
    }


def _shown(variable: keras.Variable) -> str:
    kind = f"{stored_dtype(variable).name} trainable={variable.trainable}"
    return f"{variable.path} {tuple(variable.shape)} {kind}"


def check_fit_alike(model: keras.Model, arguments: Mapping[str, Any], cluster: Cluster) -> None:
    """Raise a ValueError if workers train differently: their weights would differ, or some would wait for ever.

    Raises:
        ValueError: a worker has another layer, optimizer, loss or argument of `fit`. All workers raise it.
    """
    parameters = inspect.signature(keras.Model.fit).parameters.values()
    given = {each.name: arguments.get(each.name, each.default) for each in parameters if each.name not in UNLIKE}
    answers = {
        **{name: json.dumps(each) for name, each in settings_of(model).items()},
        **{name: str(value) for name, value in given.items()},
        "batch_size": str(arguments.get("batch_size") or 32),  # Keras' default
        "validation": str(arguments.get("validation_data") is not None),
        "class_weight": json.dumps(settings(arguments.get("class_weight"))),
    }
    _check_alike(answers, cluster, FIT_ALIKE)


def _check_alike(answers: Mapping[str, str], cluster: Cluster, cure: str) -> None:
    told = [json.loads(text) for text in all_gather_text(json.dumps(answers), cluster)]
    for number, answer in enumerate(told):
        for question, expected in told[0].items():
            if answer.get(question) != expected:
                raise refuse(
                    "the same program on all workers",
                    f"{question}: {answer.get(question)} on {cluster.name(number)}, and {expected} on "
                    f"{cluster.name(0)}",
                    cure,
                )


def broadcast_seed(cluster: Cluster) -> None:
    """Give all workers the chief's seed, or a new one: all must assign the rows of arrays in the same way."""
    seed, _ = tf.compat.v1.get_seed(0)
    mine = -1 if seed == UNSET_SEED else seed
    drawn = random.getrandbits(31) if mine < 0 else 0  # a program that sets seeds keeps its own numbers
    set_, drawn = all_gather_numbers([mine, drawn], cluster)[0]
    chiefs = int(set_ if set_ >= 0 else drawn)
    if chiefs != mine:
        tf.random.set_seed(chiefs)
