"""Keep strategies of `tf.distribute`, which would replicate a model again, and graphs of TensorFlow 1 apart."""

import keras
import tensorflow as tf

from multigpu.base.refusal import refuse
from multigpu.engines.tensorflow.private_api.variables import backing_variable

INSTEAD = (
    "Leave the strategy and its scope out: build the model, make `parallel = multi_gpu_model(model, gpus)`, then "
    "compile and fit `parallel`; docs/migrate-from-mirrored-strategy.md has it line by line."
)

CALLED, USED = "`multi_gpu_model()` to be called", "a parallel model to be used"


def check_no_strategy(what: str) -> None:
    """Raise a ValueError inside of `strategy.scope()`.

    Args:
        what: the action, in words.

    Raises:
        ValueError: a strategy is active.
    """
    if tf.distribute.has_strategy():
        raise refuse(
            f"{what} outside of any `strategy.scope()`: multigpu spreads the work by itself",
            f"the scope of {type(tf.distribute.get_strategy()).__name__}",
            INSTEAD,
        )


def check_eager(what: str) -> None:
    """Raise a ValueError inside of a graph, in which Keras 3 itself cannot train.

    Args:
        what: the action, in words.

    Raises:
        ValueError: TensorFlow adds ops to a graph, rather than run them.
    """
    if not tf.executing_eagerly():
        raise refuse(
            f"{what} where TensorFlow runs eagerly",
            "a call in a graph: of `tf.Graph.as_default()`, of a `tf.function`, or after "
            "`tf.compat.v1.disable_eager_execution()`",
            "Leave the graph out: Keras 3 makes graphs of its steps by itself.",
        )


def check_made_without(model: keras.Model) -> None:
    """Raise a ValueError for a template from the scope of a strategy, whose weights are several copies.

    Raises:
        ValueError: the template was made there.
    """
    copied = [v for v in model.variables if isinstance(backing_variable(v), tf.distribute.DistributedValues)]
    if copied:
        strategy = backing_variable(copied[0]).distribute_strategy
        raise refuse(
            "a template made outside of any `strategy.scope()`",
            f"{model.name!r}, whose weight {copied[0].path!r} was made in the scope of {type(strategy).__name__}, "
            "once per device",
            INSTEAD,
        )
