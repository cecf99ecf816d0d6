"""Iterate over one dataset on several devices. Elements go to the devices in turn, copied ahead of time.

TensorFlow's own class for `tf.distribute` has no public name, and it traces its functions again for each epoch and
device (0.3 s for 8 devices). This module traces them once for each type of element. The multi-device iterator itself,
the copies and the thread that makes them are TensorFlow's.
"""

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

CPU_OF_HOST = "/job:localhost/replica:0/task:0/device:CPU:0"
Types = tuple[tf.TensorSpec, ...]


def iterators_on(
    devices: Sequence[str], elements: tf.data.Dataset, sent: Sequence[tuple[int, ...]], types: Sequence[Types]
) -> list[tf.data.Iterator]:
    """Return an iterator for each device, which gives the device's elements and copies one of them ahead of time.

    Args:
        devices: the names of the devices.
        elements: flat tuples of tensors: one for each device, again one for each, and so on.
        sent: for each device, the positions of the tensors that it receives.
        types: for each device, the types of these tensors.
    """
    components = elements.element_spec
    with tf.device(CPU_OF_HOST):
        shared = tf.raw_ops.AnonymousMultiDeviceIteratorV3(devices=list(devices), **_layout(components))
        begun = tf.raw_ops.MultiDeviceIteratorInit(
            dataset=tf.data.experimental.to_variant(elements), multi_device_iterator=shared, max_buffer_size=1
        )
        handle = tf.raw_ops.MultiDeviceIteratorToStringHandle(multi_device_iterator=shared)
        # as text, which stays on the host: integers would be copied to the device and back for each element
        asks = [tf.stack([handle, str(turn), tf.strings.as_string(begun)]) for turn in range(len(devices))]
    return [
        _iterator(device, _functions(components, positions), ask, shared, of_device)
        for device, positions, ask, of_device in zip(devices, sent, asks, types, strict=True)
    ]


def _iterator(
    device: str, functions: dict[str, Any], ask: tf.Tensor, shared: tf.Tensor, types: Types
) -> tf.data.Iterator:
    with tf.device(device):
        given = tf.raw_ops.GeneratorDataset(
            init_func_other_args=[ask],
            next_func_other_args=[shared],  # keeps the dataset alive
            finalize_func_other_args=[],
            **functions,
            **_layout(types),
        )
        return iter(tf.data.experimental.from_variant(given, types).prefetch(1).with_options(_as_it_is()))


@functools.lru_cache
def _functions(components: Types, sent: tuple[int, ...]) -> dict[str, Any]:
    """Return a device's functions for the start, for each element, and for the end. Elements come from the CPU."""
    ask = tf.TensorSpec([3], tf.string)

    @tf.function(input_signature=[ask], autograph=False)
    def on_host(ask: tf.Tensor) -> list[tf.Tensor]:
        handle, turn, begun = tf.unstack(ask)
        element = tf.raw_ops.MultiDeviceIteratorGetNextFromShard(
            multi_device_iterator=tf.raw_ops.MultiDeviceIteratorFromStringHandle(
                string_handle=handle, **_layout(components)
            ),
            shard_num=tf.strings.to_number(turn, tf.int32),
            incarnation_id=tf.strings.to_number(begun, tf.int64),
            **_layout(components),
        )
        return [element[position] for position in sent]

    asked = on_host.get_concrete_function()

    @tf.function(input_signature=[ask, tf.TensorSpec([], tf.resource)], autograph=False)
    def following(ask: tf.Tensor, shared: tf.Tensor) -> list[tf.Tensor]:
        types = [components[position].dtype for position in sent]
        return tf.raw_ops.RemoteCall(target=CPU_OF_HOST, args=[ask], Tout=types, f=asked)

    as_given = tf.function(tf.identity, input_signature=[ask], autograph=False).get_concrete_function()
    return {"init_func": as_given, "next_func": following.get_concrete_function(), "finalize_func": as_given}


def _as_it_is() -> tf.data.Options:
    """Return options without optimization, which would take longer than all other work."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.inject_prefetch = False
    return options


def _layout(types: Types) -> dict[str, list]:
    return {"output_types": [spec.dtype for spec in types], "output_shapes": [spec.shape for spec in types]}
