"""The names of this engine: see `multigpu.engines`."""

from multigpu.engines.tensorflow.batches.fit_arguments import arguments_with_batches, fit_arguments
from multigpu.engines.tensorflow.batches.without_lookahead import batches_without_lookahead
from multigpu.engines.tensorflow.cluster.join import join, join_cluster
from multigpu.engines.tensorflow.devices.gpu_table import device_table, hide_gpus
from multigpu.engines.tensorflow.devices.logical import present_device, simulate, visible_devices
from multigpu.engines.tensorflow.multi_worker.handshake import synchronize_workers
from multigpu.engines.tensorflow.multi_worker.training import MultiWorkerTraining
from multigpu.engines.tensorflow.parallel.joined_cluster import joined_cluster
from multigpu.engines.tensorflow.parallel.on_device import on_device
from multigpu.engines.tensorflow.parallel.row_checks import check_rows
from multigpu.engines.tensorflow.parallel.training import Training
from multigpu.engines.tensorflow.profiling.device_estimates import estimate_devices
from multigpu.engines.tensorflow.profiling.layer_estimates import estimate_layers
from multigpu.engines.tensorflow.profiling.one_device import on_one_device
from multigpu.engines.tensorflow.weights.home_parts import part_devices
from multigpu.engines.tensorflow.weights.limits import OUT_OF_MEMORY, start_with_one_thread
from multigpu.engines.tensorflow.weights.move import holders, move
from multigpu.engines.tensorflow.weights.owners import place_weights
