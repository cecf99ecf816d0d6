"""Callbacks on several workers: all begin and stop together, and only the chief writes files."""

from typing import Any

import keras

from multigpu.cluster.config import Cluster
from multigpu.engines.tensorflow.cluster.messages import all_gather_numbers, broadcast_variables
from multigpu.engines.tensorflow.multi_worker.step import StepConsensus
from multigpu.private_api.layers import epoch_of_backup, finish_state, set_epoch_of_backup, variables_of


class WorkerSyncCallback(keras.callbacks.Callback):
    """A last callback that gives all workers the chief's restored values, and stops all when one stops."""

    def __init__(self, cluster: Cluster, consensus: StepConsensus) -> None:
        super().__init__()
        self._cluster = cluster
        self._consensus = consensus

    def on_train_begin(self, logs: Any = None) -> None:
        """Give all workers the chief's values, and the epoch at which its backup ended."""
        model = self.model
        self._consensus.reset()
        broadcast_variables(variables_of(model), self._cluster)
        finish_state(model)
        set_epoch_of_backup(model, int(all_gather_numbers([epoch_of_backup(model)], self._cluster)[0, 0]))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Delay a request to stop until all workers know it, one step later."""
        if self._consensus.any_requests_stop():
            self.model.stop_training = True
        elif self.model.stop_training:
            self.model.stop_training = False
            self._consensus.request_stop()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Stop if any worker requests it."""
        stop = float(self.model.stop_training or self._consensus.requests_stop())
        self.model.stop_training = bool(all_gather_numbers([stop], self._cluster).sum())
