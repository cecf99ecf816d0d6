"""Make TensorFlow save a parallel model as its template."""

from typing import Any

import keras


class TrackedAsTemplate:
    """Answer as the template when `tf.train.Checkpoint` or `tf.saved_model.save()` asks for children."""

    template: keras.Model

    def _trackable_children(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return self.template._trackable_children(*args, **kwargs)

    def _track_trackable(self, *_: Any, **__: Any) -> None:  # the parallel model owns nothing
        self._maybe_initialize_trackable()  # type: ignore[attr-defined]  # of TensorFlow

    def _lookup_dependency(self, *args: Any, **kwargs: Any) -> Any:
        return self.template._lookup_dependency(*args, **kwargs)

    @property
    def _deferred_dependencies(self) -> dict[str, list]:  # restored as soon as there is a child with the name
        return self.template._deferred_dependencies

    @property
    def _default_save_signature(self) -> Any:
        return self.template._default_save_signature
