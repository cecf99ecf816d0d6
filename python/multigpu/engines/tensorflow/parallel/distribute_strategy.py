"""tf.distribute has strategies of its own, which would replicate what is replicated already: they are kept apart."""

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
    """Refuses to work inside of `strategy.scope()`.

    Args:
        what: what is being done.

    Raises:
        ValueError: there is a strategy.
    """
    if tf.distribute.has_strategy():
        raise refuse(
            f"{what} outside of any `strategy.scope()`: multigpu spreads the work by itself",
            f"the scope of {type(tf.distribute.get_strategy()).__name__}",
            INSTEAD,
        )


def check_made_without(model: keras.Model) -> None:
    """Refuses a template that was made in the scope of a strategy, whose weights are several copies.

    Raises:
        ValueError: it was.
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
