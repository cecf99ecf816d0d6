"""Call a layer on one device, in place of the layer in functional models."""

import contextvars
import itertools
import weakref
from typing import Any

import keras
import tensorflow as tf

from multigpu.base.replaced import set_to
from multigpu.engines.tensorflow.cluster.collective import outermost_graph
from multigpu.engines.tensorflow.parallel.call import DataParallelCall
from multigpu.engines.tensorflow.parallel.step_scope import update_beside_weights
from multigpu.engines.tensorflow.private_api.variables import backing_variable
from multigpu.engines.tensorflow.replicas.parts import part_scope
from multigpu.engines.tensorflow.replicas.scope import in_replica
from multigpu.engines.tensorflow.weights.home_parts import Placement
from multigpu.engines.tensorflow.weights.move import models_with, move
from multigpu.engines.tensorflow.weights.place_locate import outside_of_functions, place, stored_dtype
from multigpu.plan.plan import Plan
from multigpu.private_api.layers import optimizers_of

_inside: contextvars.ContextVar[bool] = contextvars.ContextVar("inside a placed call of a part", default=False)
_placements = itertools.count()  # so that the calls of a model have an order


class PlacedCall:
    """Runs a layer on a device, forward and backward, as a replica of a plan with only this device."""

    def __init__(self, operation: keras.Operation, device: str) -> None:
        operation.supports_jit = False  # XLA would compile the step to one program, on one device
        self.placement = Placement(next(_placements), device)
        self._operation = operation
        self._layer = operation if isinstance(operation, keras.Layer) else _OperationAsLayer(operation)
        self._spread = DataParallelCall(self._layer, Plan((device,), device))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs of the layer, with their masks."""
        if in_replica():
            return self._call_in_replica(args, kwargs)
        if not tf.executing_eagerly():
            self._prepare_update()
        merged = self._spread(args, kwargs)
        for loss in merged.losses:
            keras.Layer.add_loss(self._layer, loss)  # which a functional model refuses
        return merged.outputs

    def _call_in_replica(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Run the layer in its part. Inside of another placed call, which has a part, run it directly."""
        scope = None if _inside.get() else part_scope(self.placement.device)
        if scope is None:
            return self._operation(*args, **kwargs)
        with set_to(_inside, True), scope:
            return self._operation(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute that Keras reads before the call, such as the arguments that the layer takes."""
        if "_operation" not in self.__dict__:  # for a copy that is being made
            raise AttributeError(name)
        return getattr(self._operation, name)

    def _prepare_update(self) -> None:
        """Make the updates of weights run on the weights' devices, before the step with the updates is traced.

        The model whose step it is has all parts, so this is done once for each trace.
        """
        wanted, graph = set(map(id, self._layer.trainable_variables)), outermost_graph()
        if wanted <= _prepared.get(graph, set()):
            return
        prepared = _prepared.setdefault(graph, set())
        prepared.update(wanted)
        for model in models_with(self._layer.trainable_variables):
            prepared.update(map(id, model.variables))
            for optimizer in optimizers_of(model):
                update_beside_weights(optimizer)


_prepared: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # the step being traced → weights of prepared models


class _OperationAsLayer(keras.Layer):
    """An operation of `keras.ops` in a functional model, with the attributes of a layer."""

    def __init__(self, operation: keras.Operation) -> None:
        super().__init__(name=operation.name)
        self._called = operation

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the operation's result, without Keras' additions around a layer."""
        return self._called(*args, **kwargs)


def keep_weights(layer: keras.Layer, device: str, new: bool = False) -> None:
    """Make a device store a layer's weights, if the layer is placed for the first time.

    Args:
        layer: the layer.
        device: the name of the device.
        new: whether the weights were just made, so that no model knows them yet.
    """
    if "kept_by" in layer.__dict__ or any(backing_variable(variable) is None for variable in layer.variables):
        return  # without values yet: in subclassed models, Keras computes shapes before it makes weights
    layer.__dict__["kept_by"] = Placement(next(_placements), device)  # Keras does not track it here
    weights = [(variable, device) for variable in layer.variables if stored_dtype(variable).is_floating]
    if new:
        place(weights)
    elif tf.executing_eagerly():
        move(weights)
    else:  # the traced step is the first that reads them
        outside_of_functions(place, weights)
