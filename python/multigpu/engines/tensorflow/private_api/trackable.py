"""Make TensorFlow save a parallel model as its template."""

from typing import Any

import keras

from multigpu.base.shared import Shared


class TrackedAsTemplate:
    """Answer as the template when `tf.train.Checkpoint` or `tf.saved_model.save()` asks for children."""

    template: keras.Model
    _trackable_children, _lookup_dependency, _default_save_signature = Shared(), Shared(), Shared()
    _deferred_dependencies = Shared()  # restored as soon as there is a child with the name

    def _track_trackable(self, *_: Any, **__: Any) -> None:  # the parallel model owns nothing
        self._maybe_initialize_trackable()  # type: ignore[attr-defined]  # of TensorFlow
