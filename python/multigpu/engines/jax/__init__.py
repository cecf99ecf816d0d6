"""The engine on JAX: a step is one program with global meaning, which XLA divides among the devices."""

from multigpu.engines.jax.jax_names import JAX

JAX.check()

MODULES = {  # names of an engine → the modules that contain them
    "MultiWorkerTraining": "multi_worker",
    "OUT_OF_MEMORY": "limits",
    "Training": "training",
    "batches": "feeding",
    "batches_without_lookahead": "feeding",
    "fit_arguments": "feeding",
    "arguments_with_batches": "feeding",
    "check_rows": "refused",
    "device_table": "device_table",
    "estimate_devices": "estimates",
    "estimate_layers": "refused",
    "hide_gpus": "devices",
    "holders": "placement",
    "join": "join",
    "join_cluster": "join",
    "joined_cluster": "join",
    "move": "placement",
    "on_device": "refused",
    "on_one_device": "placement",
    "part_devices": "refused",
    "place_weights": "placement",
    "present_device": "devices",
    "simulate": "devices",
    "start_with_one_thread": "limits",
    "synchronize_workers": "workers",
    "variables_of_at_most": "limits",
    "visible_devices": "devices",
}
