"""The engine on JAX: a step is one program with global meaning, which XLA divides among the devices."""

from multigpu.engines.jax.jax_names import JAX

JAX.check()

MODULES = {  # names of an engine → the modules that contain them
    name: module
    for module, names in {
        "device_table": "device_table",
        "devices": "hide_gpus present_device simulate visible_devices",
        "estimates": "estimate_devices",
        "feeding": "arguments_with_batches batches_without_lookahead fit_arguments",
        "join": "join join_cluster joined_cluster",
        "limits": "OUT_OF_MEMORY start_with_one_thread",
        "multi_worker": "MultiWorkerTraining",
        "placement": "holders move on_one_device place_weights",
        "refused": "check_rows estimate_layers on_device part_devices",
        "training": "Training",
        "workers": "synchronize_workers",
    }.items()
    for name in names.split()
}
