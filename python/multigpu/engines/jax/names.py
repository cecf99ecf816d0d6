"""The names of this engine: see `multigpu.engines`."""

from multigpu.engines.jax.device_table import device_table
from multigpu.engines.jax.devices import hide_gpus, present_device, simulate, visible_devices
from multigpu.engines.jax.estimates import estimate_devices
from multigpu.engines.jax.feeding import arguments_with_batches, batches_without_lookahead, fit_arguments
from multigpu.engines.jax.join import join, join_cluster, joined_cluster
from multigpu.engines.jax.limits import OUT_OF_MEMORY, start_with_one_thread
from multigpu.engines.jax.multi_worker import MultiWorkerTraining
from multigpu.engines.jax.placement import holders, move, on_one_device, place_weights
from multigpu.engines.jax.refused import check_rows, estimate_layers, on_device, part_devices
from multigpu.engines.jax.training import Training
from multigpu.engines.jax.workers import synchronize_workers
