"""Private methods of `keras.Model` that Keras calls on a model, answered in the place of the parallel model."""

from collections.abc import Callable
from typing import Any

import keras


class AnswersAsTemplate:
    """How Keras runs a model's graph, and what Keras takes a model for when it saves it: its template."""

    template: keras.Model

    def _obj_type(self) -> str:
        return self.template._obj_type()

    def _run_through_graph(self, *args: Any, **kwargs: Any) -> Any:
        return self.template._run_through_graph(*args, **kwargs)


class AddsNoMask:
    """Merged outputs carry the masks of the template's. Keras, which would compute others, has no way to leave it."""

    def _set_mask_metadata(self, *_: Any) -> None:
        pass


class AggregatesLogs:
    """Logs pass through `aggregated()` before any callback sees them, the History of Keras included."""

    aggregated: Callable[[Callable[[], Any]], Any]  # is given what computes the logs of this worker

    def _get_metrics_result_or_logs(self, logs: Any) -> Any:
        of_keras: Callable[[Any], Any] = super()._get_metrics_result_or_logs  # type: ignore[misc]  # of keras.Model
        return self.aggregated(lambda: of_keras(logs))
