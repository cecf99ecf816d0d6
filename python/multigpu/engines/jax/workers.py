"""Several processes that train together: JAX joins them, and each passes the same arrays to the same step."""

import os
import zlib
from collections.abc import Callable
from typing import Any

import jax
import keras
import numpy as np
from jax.experimental.multihost_utils import broadcast_one_to_all, process_allgather

from multigpu.base.arguments import by_name, shown
from multigpu.base.refusal import refuse
from multigpu.cluster.callbacks import allowed
from multigpu.cluster.config import Cluster, described
from multigpu.cluster.schedulers import check_no_task_is_left_out, config_of_tasks, say_that_tasks_train_apart
from multigpu.engines.jax.layout import put
from multigpu.engines.jax.placement import layout_of, on_one_device, variables_of
from multigpu.engines.jax.refused import TENSORFLOW
from multigpu.engines.jax.training import Training
from multigpu.plan.plan import Plan

DATA = ("x", "y", "sample_weight", "validation_data")


def join() -> None:
    """Join the workers that TF_CONFIG describes, if any, and wait for them. JAX needs this before it starts."""
    try:
        cluster = described(os.environ)
    except ValueError:  # `joined_cluster()` raises the error when a model is made: all else works without a cluster
        return
    if cluster is not None and not jax.distributed.is_initialized():
        _join(cluster)


def join_cluster(resolver: Any = None) -> None:
    """Join the tasks that `srun` or `mpirun` has started, to train one model together.

    Raises:
        ValueError: the argument is a resolver of TensorFlow, or a scheduler's variables do not tell where the tasks
            are.
    """
    if resolver is not None:
        raise refuse(
            "`resolver` to be None on JAX, for TF_CONFIG, SLURM or MPI",
            f"resolver={shown(resolver)}",
            f"Leave it out, or {TENSORFLOW}.",
        )
    cluster = _described()
    if cluster is None:
        check_no_task_is_left_out(os.environ)
    elif not jax.distributed.is_initialized():
        _join(cluster)


def _described() -> Cluster | None:
    """Return the cluster in TF_CONFIG, which has priority, or the cluster of a scheduler's tasks."""
    if "TF_CONFIG" in os.environ:
        return described(os.environ)
    config = config_of_tasks(os.environ)
    return None if config is None else described({**os.environ, "TF_CONFIG": config}, "the variables of SLURM or MPI")


def _join(cluster: Cluster) -> None:
    jax.distributed.initialize(
        cluster.addresses[0], cluster.size, cluster.number, initialization_timeout=int(cluster.arrive_seconds)
    )


def joined_cluster() -> Cluster | None:
    """Return the cluster that this process has joined, or None if it trains alone.

    Raises:
        ValueError: TF_CONFIG was not understood, or was read too late.
    """
    if jax.distributed.is_initialized():
        return _described()
    cluster = described(os.environ)
    if cluster is not None:
        raise refuse(
            f"to join before JAX uses a device, since TF_CONFIG describes {cluster.size} workers",
            f"JAX started first, on {cluster}",
            "Import multigpu, with TF_CONFIG set, at the top of the script.",
        )
    say_that_tasks_train_apart(os.environ)
    return None


def synchronize_workers(model: keras.Model, plan: Plan) -> None:
    """Raise an error if workers differ, and give all of them the chief's values.

    Raises:
        ValueError: a worker has another model or other devices. All workers raise it.
    """
    variables = variables_of(model)
    shapes = [f"{tuple(v.shape)} {v.dtype}" for v in variables]
    _check_alike([keras.__version__, jax.__version__, *plan.devices, *shapes], "model, devices or versions", plan)
    _follow_chief(variables, plan)


def _check_alike(told: list[Any], what: str, plan: Plan) -> None:
    sums = np.ravel(process_allgather(np.uint32(zlib.crc32(repr(told).encode()))))
    for number in np.flatnonzero(sums != sums[0]):
        name = plan.cluster.name(number) if plan.cluster else f"worker {number}"
        raise refuse(
            "the same program on all workers",
            f"other {what} on {name} than on the chief",
            "Install the same versions everywhere, build the same model with as many devices on each, and call it "
            "alike.",
        )


def _follow_chief(variables: list[keras.Variable], plan: Plan) -> None:
    layout = layout_of(plan)
    values = broadcast_one_to_all([np.asarray(variable.value) for variable in variables])
    for variable, value in zip(variables, values, strict=True):
        variable.assign(put(np.asarray(value), layout.at_rest(value)))


class MultiWorkerTraining(Training):
    """The methods of one of several workers. All pass the same arrays, with the chief's shuffling and weights.

    On GPUs the processes exchange numbers by NCCL, on CPUs by gloo.
    """

    def fit(self, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        """Run Keras' `fit` on all workers at once."""
        arguments = self._same_arrays(by_name(super().fit, args, kwargs))
        given = arguments.get("callbacks")
        listed = list(given) if isinstance(given, list | tuple) else [given] if given else []
        chief = jax.process_index() == 0
        arguments["callbacks"] = allowed(listed, chief)
        _, keys, *position = np.random.get_state()
        keys, position = broadcast_one_to_all((keys, np.array(position)))
        np.random.set_state(("MT19937", np.asarray(keys), int(position[0]), int(position[1]), float(position[2])))
        _follow_chief(variables_of(self.template), self.plan)
        return super().fit(**arguments)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Run Keras' `evaluate` on all workers at once."""
        return super().evaluate(**self._same_arrays(by_name(super().evaluate, args, kwargs)))

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Run Keras' `predict` on only this worker."""
        return self._alone(keras.Model.predict, *args, **kwargs)

    def predict_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Run Keras' `predict_on_batch` on only this worker."""
        return self._alone(keras.Model.predict_on_batch, *args, **kwargs)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the template on only this worker."""
        return self._alone(type(self.template).__call__, *args, **kwargs)

    _call_for_template = call

    def _alone(self, verb: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with on_one_device(self.template, self.plan):
            return verb(self.template, *args, **kwargs)

    def _same_arrays(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Raise an error for data that may give workers different batches: they would wait for each other."""
        told = []
        for name, value in arguments.items():
            leaves = keras.tree.flatten(value) if name in DATA else []
            if not all(leaf is None or hasattr(leaf, "__array__") for leaf in leaves):
                raise refuse(
                    f"`{name}` to be arrays, the same on all workers",
                    f"{shown(value)} on JAX",
                    f"Pass arrays, or {TENSORFLOW}, where each worker may have a dataset of its own.",
                )
            told.append((name, [np.shape(leaf) for leaf in leaves] if name in DATA else str(value)))
        _check_alike([each for each in told if each[0] not in ("callbacks", "verbose")], "arguments", self.plan)
        return arguments
