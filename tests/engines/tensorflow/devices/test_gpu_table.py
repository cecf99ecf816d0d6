"""The table of GPUs tells what TensorFlow knows of each, or why there are none and what to do."""

import pytest
import tensorflow as tf

from multigpu.engines.tensorflow.devices import gpu_table
from multigpu.engines.tensorflow.devices.gpu_table import why_no_gpu
from multigpu.engines.tensorflow.private_api import runtime
from multigpu.plan.gpu_table import seen_devices


def test_memory_is_told_where_tensorflow_tells_it(monkeypatch):
    class Limited:
        name, memory_limit = "/device:GPU:0", 8e9

    class Physical:
        name = "/physical_device:GPU:0"

    monkeypatch.setattr(gpu_table, "available_gpus", lambda: ["GPU:0"])
    monkeypatch.setattr(gpu_table, "physical_of", lambda name: Physical)
    monkeypatch.setattr(runtime.device_lib, "list_local_devices", lambda: [Limited])
    experimental = tf.config.experimental
    monkeypatch.setattr(experimental, "get_device_details", lambda device: {"device_name": "NVIDIA Some"})
    monkeypatch.setattr(experimental, "get_memory_info", lambda name: {"current": 1e9})
    assert str(gpu_table.device_table()).splitlines()[1] == (" 0  GPU:0  GPU:0, NVIDIA Some   8,000.00 MB  7,000.00 MB")
    monkeypatch.setattr(gpu_table, "devices_are_fixed", lambda: False)
    assert gpu_table.device_table()[0].memory_total is None


@pytest.mark.parametrize(
    ("seen", "there", "cuda", "told"),
    [
        ("-1", [], True, "CUDA_VISIBLE_DEVICES='-1' hides all GPUs."),
        ("", [], True, "CUDA_VISIBLE_DEVICES='' hides all GPUs."),
        (None, ["a GPU"], True, "`tf.config.set_visible_devices()` hides them from this process."),
        (None, [], False, "this TensorFlow is built without CUDA. On Linux, run `pip install 'tensorflow[and-cuda]'`."),
        ("0", [], True, "this machine has no NVIDIA driver, or no GPU."),
    ],
)
def test_each_reason_for_no_gpu_comes_with_its_cure(seen, there, cuda, told, monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: there)
    monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: cuda)
    monkeypatch.setattr(gpu_table, "DRIVER", gpu_table.DRIVER.with_name("not there"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    if seen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    assert why_no_gpu().startswith(told)
    monkeypatch.setattr(gpu_table, "available_gpus", list)
    assert str(gpu_table.device_table()) == f"No GPU: {why_no_gpu()}"


def test_a_driver_without_libraries_is_told_apart(monkeypatch, tmp_path):
    driver = tmp_path / "version"
    driver.touch()
    monkeypatch.setattr(gpu_table, "DRIVER", driver)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: True)
    assert why_no_gpu().startswith("there is an NVIDIA driver, but TensorFlow cannot use it")
    assert seen_devices() == "CUDA_VISIBLE_DEVICES is not set: all GPUs are visible"
