"""Private methods of `keras.Model` that Keras calls on the parallel model."""

from collections.abc import Callable
from typing import Any

import keras

from multigpu.base.shared import Shared


class AnswersAsTemplate:
    """Methods with which Keras runs a model's graph, and describes a model that it saves: the template's."""

    template: keras.Model
    _obj_type, _run_through_graph = Shared(), Shared()


class AddsNoMask:
    """Keep the masks of the template on merged outputs. Keras would compute others, and has no option against it."""

    def _set_mask_metadata(self, *_: Any) -> None:
        pass


class AggregatesLogs:
    """Pass logs through `aggregated()` before any callback, and Keras' History, receives them."""

    aggregated: Callable[[Callable[[], Any]], Any]  # receives the function that computes the logs of this worker

    def _get_metrics_result_or_logs(self, logs: Any) -> Any:
        of_keras: Callable[[Any], Any] = super()._get_metrics_result_or_logs  # type: ignore[misc]  # of keras.Model
        return self.aggregated(lambda: of_keras(logs))
