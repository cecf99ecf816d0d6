"""Callbacks on several workers: all begin and stop together, and only the chief writes files."""

from collections.abc import Iterable
from typing import Any

import keras

from multigpu.cluster.callbacks import StopTogether
from multigpu.cluster.config import Cluster
from multigpu.engines.tensorflow.cluster.messages import all_gather_numbers, broadcast_variables
from multigpu.engines.tensorflow.multi_worker.handshake import shared_variables
from multigpu.engines.tensorflow.multi_worker.step import StepConsensus
from multigpu.private_api.layers import epoch_of_backup, finish_state, set_epoch_of_backup


class WorkerSyncCallback(StopTogether):
    """A last callback that gives all workers the chief's restored values, and stops all when one stops."""

    def __init__(self, others: Iterable[keras.callbacks.Callback], cluster: Cluster, consensus: StepConsensus) -> None:
        super().__init__(others, lambda here: bool(all_gather_numbers([here], cluster).any()))
        self._cluster = cluster
        self._consensus = consensus

    def on_train_begin(self, logs: Any = None) -> None:
        """Give all workers the chief's values, and the epoch at which its backup ended."""
        model = self.model
        self._consensus.reset()
        broadcast_variables(shared_variables(model), self._cluster)
        finish_state(model)
        set_epoch_of_backup(model, int(all_gather_numbers([epoch_of_backup(model)], self._cluster)[0, 0]))
