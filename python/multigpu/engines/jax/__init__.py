"""The engine on JAX: a step is one program with global meaning, which XLA divides among the devices."""

MODULES = {  # names of an engine → where they are
    "MultiWorkerTraining": "workers",
    "Training": "training",
    "check_rows": "refused",
    "join": "workers",
    "join_cluster": "workers",
    "joined_cluster": "workers",
    "move": "placement",
    "on_device": "refused",
    "part_devices": "refused",
    "place_weights": "placement",
    "present_device": "devices",
    "simulate": "devices",
    "synchronize_workers": "workers",
    "visible_devices": "devices",
}
