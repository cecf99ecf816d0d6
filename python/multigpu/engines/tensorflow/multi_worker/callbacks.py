"""Callbacks on several workers: all begin and stop together, and the chief alone writes files."""

from typing import Any

import keras

from multigpu.cluster.callbacks import allowed
from multigpu.cluster.config import Cluster
from multigpu.engines.tensorflow.cluster.messages import all_gather_numbers, broadcast_variables
from multigpu.engines.tensorflow.multi_worker.step import StepConsensus
from multigpu.private_api.layers import epoch_of_backup, set_epoch_of_backup


def callbacks_of(callbacks: Any, cluster: Cluster, consensus: StepConsensus) -> Any:
    """The callbacks of one worker: those that write files for the chief alone, and last one that keeps all together."""
    together = WorkerSyncCallback(cluster, consensus)
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.append(together)
        return callbacks
    listed = callbacks if isinstance(callbacks, list | tuple) else [callbacks] if callbacks else []
    return [*allowed(listed, cluster.is_chief), together]


class WorkerSyncCallback(keras.callbacks.Callback):
    """Has the last word after all other callbacks: what the chief has restored, all have; when one stops, all stop."""

    def __init__(self, cluster: Cluster, consensus: StepConsensus) -> None:
        super().__init__()
        self._cluster = cluster
        self._consensus = consensus

    def on_train_begin(self, logs: Any = None) -> None:
        """Gives all workers the chief's values, and the epoch in which a backup of it ended."""
        model = self.model
        self._consensus.reset()
        slots = model.optimizer.variables if model.optimizer is not None else []
        broadcast_variables([*model.variables, *slots], self._cluster)
        set_epoch_of_backup(model, int(all_gather_numbers([epoch_of_backup(model)], self._cluster)[0, 0]))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Holds a wish to stop back until all have heard of it, one step later."""
        if self._consensus.any_requests_stop():
            self.model.stop_training = True
        elif self.model.stop_training:
            self.model.stop_training = False
            self._consensus.request_stop()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Stops if any worker wishes to."""
        stop = float(self.model.stop_training or self._consensus.requests_stop())
        self.model.stop_training = bool(all_gather_numbers([stop], self._cluster).sum())
