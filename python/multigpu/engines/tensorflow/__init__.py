"""The engine on TensorFlow: replicas in one graph, with weights sent from their owners, and gradients reduced there."""

MODULES = {  # names of an engine → where they are
    "MultiWorkerTraining": "multi_worker.training",
    "Training": "parallel.training",
    "check_rows": "parallel.row_checks",
    "join": "cluster.join",
    "join_cluster": "cluster.join",
    "joined_cluster": "parallel.joined_cluster",
    "move": "weights.move",
    "on_device": "parallel.on_device",
    "part_devices": "weights.home_parts",
    "place_weights": "weights.owners",
    "present_device": "devices.logical",
    "simulate": "devices.logical",
    "synchronize_workers": "multi_worker.handshake",
    "visible_devices": "devices.logical",
}
