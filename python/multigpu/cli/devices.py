"""`devices`: which GPUs there are."""

import argparse

HELP = """\
Show the GPUs that `gpus` counts: id, name, hardware, memory that TensorFlow may use and what is free of it,
CUDA_VISIBLE_DEVICES as seen, and why there are none."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Takes none."""


def main(arguments: argparse.Namespace) -> int:
    """Prints the table, in this process of its own, where TensorFlow's devices may be started to ask for memory."""
    import tensorflow as tf  # only now: it takes seconds, which a usage error need not wait for

    from multigpu.devices.gpu_table import device_table, seen_devices

    tf.config.list_logical_devices()
    print(device_table())
    print(seen_devices())
    return 0
