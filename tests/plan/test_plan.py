"""What `gpus` means: one table of arguments and machines, and the full text of every refusal."""

import numpy as np
import pytest
from endless import Endless
from tensorflow.config import LogicalDevice, PhysicalDevice

from multigpu.cluster.config import Cluster
from multigpu.plan.plan import Plan, TooFewGPUsError, make_plan

CPU_ONLY = {"gpus": [], "others": ["CPU:0"]}
ONE_GPU = {"gpus": ["GPU:0"], "others": ["GPU:0", "CPU:0"]}
FOUR_GPUS = {"gpus": ["GPU:0", "GPU:1", "GPU:2", "GPU:3"], "others": ["GPU:0", "GPU:1", "GPU:2", "GPU:3", "CPU:0"]}
SIMULATED = {"gpus": ["CPU:0", "CPU:1", "CPU:2"], "others": ["CPU:0", "CPU:1", "CPU:2"]}

ALL_FOUR = ("GPU:0", "GPU:1", "GPU:2", "GPU:3")
FIRST_TWO = ("GPU:0", "GPU:1")
FULL_NAME = "/job:localhost/replica:0/task:0/device:GPU:"

PHYSICAL = PhysicalDevice("/physical_device:GPU:0", "GPU")
USE = "Use `gpus=2`, `gpus=[0, 1]` or `gpus=['GPU:0', 'GPU:1']`."
ALL = " Use `gpus=None` for all GPUs."
WITH_ONE = (
    " With one GPU, train the model itself; a script that also runs with several can catch `multigpu.TooFewGPUsError`."
)
SIMULATE = (
    " This machine has no GPU that Keras can use; to try a script without GPUs, call `multigpu.simulate_gpus(2)` first."
)


def plan(gpus, visible=FOUR_GPUS, cpu_merge=True, cpu_relocation=False):
    return make_plan(gpus, cpu_merge, cpu_relocation, visible)


def refusal(gpus, visible=FOUR_GPUS, kind=ValueError):
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the caller compares the whole text
        plan(gpus, visible)
    assert error.type is kind
    return str(error.value)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("gpus", "devices"),
    [
        (None, ALL_FOUR),
        (2, FIRST_TWO),
        (4, ALL_FOUR),
        (np.int32(2), FIRST_TWO),
        ([0, 1], FIRST_TWO),
        ((0, 1), FIRST_TWO),
        (range(2), FIRST_TWO),
        ([np.int64(0), np.int32(1)], FIRST_TWO),
        ([3, 1], ("GPU:3", "GPU:1")),
        (["GPU:0", "GPU:1"], FIRST_TWO),
        (("gpu:0", "gpu:1"), FIRST_TWO),
        (["/GPU:0", "/gpu:1"], FIRST_TWO),
        (["/device:GPU:0", "device:GPU:1"], FIRST_TWO),
        ([FULL_NAME + "0", FULL_NAME + "1"], FIRST_TWO),
        (["GPU:0", 1], FIRST_TWO),
        (["CPU:0", "GPU:2"], ("CPU:0", "GPU:2")),
        (["/cpu:0", "/device:GPU:0"], ("CPU:0", "GPU:0")),
        ([LogicalDevice("/device:GPU:3", "GPU"), LogicalDevice("/device:GPU:1", "GPU")], ("GPU:3", "GPU:1")),
        ([LogicalDevice(FULL_NAME + "0", "GPU"), 1], FIRST_TWO),
    ],
)
def test_gpus_names_these_devices(gpus, devices):
    assert plan(gpus).devices == devices


@pytest.mark.parametrize(
    ("gpus", "devices"),
    [
        (None, ("CPU:0", "CPU:1", "CPU:2")),
        (2, ("CPU:0", "CPU:1")),
        ([2, 0], ("CPU:2", "CPU:0")),
        (["CPU:1", "/device:CPU:2"], ("CPU:1", "CPU:2")),
        ([0, "CPU:1"], ("CPU:0", "CPU:1")),
        (["GPU:0", "/gpu:2"], ("CPU:0", "CPU:2")),
    ],
)
def test_ids_and_names_of_gpus_mean_simulated_devices_where_there_are_no_gpus(gpus, devices):
    assert plan(gpus, SIMULATED).devices == devices


def test_outputs_are_merged_on_the_cpu_or_on_the_first_wanted_device():
    assert plan([2, 1], cpu_merge=True).merge_device == "CPU:0"
    assert plan([2, 1], cpu_merge=False).merge_device == "GPU:2"
    assert plan(["CPU:0", "GPU:1"], cpu_merge=False).merge_device == "CPU:0"


def test_plan_is_a_frozen_value():
    assert plan(2) == plan([0, 1]) == plan(["/gpu:0", FULL_NAME + "1"])
    assert hash(plan(2)) == hash(plan([0, 1]))
    with pytest.raises(AttributeError):
        plan(2).merge_device = "GPU:0"


def test_making_a_plan_leaves_the_list_of_visible_devices_alone():
    plan(None)
    assert FOUR_GPUS["gpus"] == list(ALL_FOUR)


@pytest.mark.parametrize(
    ("gpus", "visible", "text"),
    [
        (1, FOUR_GPUS, "`gpus >= 2`. Received: gpus=1." + WITH_ONE),
        ([0], FOUR_GPUS, "`len(gpus) >= 2`. Received: gpus=[0]." + WITH_ONE),
        ((3,), FOUR_GPUS, "`len(gpus) >= 2`. Received: gpus=(3,)." + WITH_ONE),
        (["GPU:0"], FOUR_GPUS, "`len(gpus) >= 2`. Received: gpus=['GPU:0']." + WITH_ONE),
        ([7], FOUR_GPUS, "`len(gpus) >= 2`. Received: gpus=[7]." + WITH_ONE),
        (None, ONE_GPU, "`gpus >= 2`. Received: gpus=None, and 1 found." + WITH_ONE),
        (0, ONE_GPU, "`gpus >= 2`. Received: gpus=0." + ALL),
        (0, FOUR_GPUS, "`gpus >= 2`. Received: gpus=0." + ALL),
        ([], FOUR_GPUS, "`len(gpus) >= 2`. Received: gpus=[]." + ALL),
        ((), FOUR_GPUS, "`len(gpus) >= 2`. Received: gpus=()." + ALL),
        ([], CPU_ONLY, "`len(gpus) >= 2`. Received: gpus=[]." + ALL + SIMULATE),
        (1, CPU_ONLY, "`gpus >= 2`. Received: gpus=1." + WITH_ONE + SIMULATE),
        ([0], CPU_ONLY, "`len(gpus) >= 2`. Received: gpus=[0]." + WITH_ONE + SIMULATE),
        (None, CPU_ONLY, "`gpus >= 2`. Received: gpus=None, and 0 found." + WITH_ONE + SIMULATE),
    ],
)
def test_fewer_than_two_devices_are_refused_as_the_old_function_did(gpus, visible, text):
    assert (
        refusal(gpus, visible, TooFewGPUsError)
        == "For multi-gpu usage to be effective, call `multi_gpu_model` with " + text
    )


def test_an_explicit_numpy_one_is_not_described_as_counted():
    one = np.int64(1)
    assert refusal(one, kind=TooFewGPUsError) == (
        "For multi-gpu usage to be effective, call `multi_gpu_model` with `gpus >= 2`. "
        f"Received: gpus={one!r}.{WITH_ONE}"
    )


@pytest.mark.parametrize(
    ("gpus", "visible", "wanted", "present", "hint"),
    [
        (3, ONE_GPU, ["GPU:0", "GPU:1", "GPU:2"], ["GPU:0", "CPU:0"], ""),
        ([0, 5], FOUR_GPUS, ["GPU:0", "GPU:5"], [*ALL_FOUR, "CPU:0"], ""),
        (["CPU:0", "CPU:1"], FOUR_GPUS, ["CPU:0", "CPU:1"], [*ALL_FOUR, "CPU:0"], ""),
        (4, SIMULATED, ["CPU:0", "CPU:1", "CPU:2", "CPU:3"], ["CPU:0", "CPU:1", "CPU:2"], ""),
        (["GPU:2", "GPU:3"], SIMULATED, ["CPU:2", "GPU:3"], ["CPU:0", "CPU:1", "CPU:2"], ""),
        (["GPU:0", "GPU:1"], CPU_ONLY, ["GPU:0", "GPU:1"], ["CPU:0"], SIMULATE),
        (["TPU:0", "GPU:0"], FOUR_GPUS, ["TPU:0", "GPU:0"], [*ALL_FOUR, "CPU:0"], ""),
        (2, CPU_ONLY, ["GPU:0", "GPU:1"], ["CPU:0"], SIMULATE),
        ([0, 1], CPU_ONLY, ["GPU:0", "GPU:1"], ["CPU:0"], SIMULATE),
    ],
)
def test_a_missing_device_is_refused_with_what_there_is(gpus, visible, wanted, present, hint):
    is_reduced = len(wanted) > len(visible["gpus"])
    use = "Try reducing `gpus`." if is_reduced else "Name some of these; ids count from 0."
    assert refusal(gpus, visible, TooFewGPUsError) == (
        "To call `multi_gpu_model` with these `gpus`, we expect the following devices to be available: "
        f"{wanted}. However this machine only has: {present}. {use}{hint}"
    )


@pytest.mark.parametrize(
    ("gpus", "twice"),
    [
        ([0, 0], "GPU:0"),
        ([0, 1, 1, 0], "GPU:0, GPU:1"),
        ([0, "GPU:0"], "GPU:0"),
        (["/gpu:2", "/device:GPU:2"], "GPU:2"),
        ([7, 7], "GPU:7"),
    ],
)
def test_duplicates_are_refused_however_they_are_spelled(gpus, twice):
    assert refusal(gpus) == (
        f"Expected each device once in `gpus`. Received: gpus={gpus!r}, with {twice} more than once. "
        "Name each GPU once: a second replica on one GPU would only slow it down."
    )


@pytest.mark.parametrize(("gpus", "negative"), [(-1, -1), ([-1, 0], -1), ((0, -2), -2), (-(2**31), -(2**31))])
def test_negative_numbers_are_refused(gpus, negative):
    assert refusal(gpus) == (
        f"Expected GPU numbers of 0 or more in `gpus`. Received: {negative} in gpus={gpus!r}. "
        "Ids count from 0, as in `gpus=[0, 1]`."
    )


@pytest.mark.quick
@pytest.mark.parametrize(
    ("gpus", "entry", "kind"),
    [
        (True, True, "bool"),
        (False, False, "bool"),
        ([True, 0], True, "bool"),
        (2.0, 2.0, "float"),
        ([0.0, 1.0], 0.0, "float"),
        (float("nan"), float("nan"), "float"),
        ("2", "2", "str"),
        ("GPU:0", "GPU:0", "str"),
        ("", "", "str"),
        (b"", b"", "bytes"),
        (b"\0\1", b"\0\1", "bytes"),
        (bytearray(2), bytearray(2), "bytearray"),
        ([0, None], None, "NoneType"),
        ({0, 1}, {0, 1}, "set"),
        (["banana", 0], "banana", "str"),
        (["banana:0", "GPU:0"], "banana:0", "str"),
        (["GPU:x", 0], "GPU:x", "str"),
        (["XLA_GPU:0", "XLA_GPU:1"], "XLA_GPU:0", "str"),
        ([PHYSICAL, PHYSICAL], PHYSICAL, "PhysicalDevice"),
        (LogicalDevice("/device:GPU:0", "GPU"), LogicalDevice("/device:GPU:0", "GPU"), "LogicalDevice"),
    ],
)
def test_anything_else_is_refused_naming_the_entry(gpus, entry, kind):
    assert refusal(gpus) == (
        "Expected `gpus` to be None, a whole number of GPUs, or a list of GPU ids or device names. "
        f"Received: {entry!r} of type {kind} in gpus={gpus!r}. {USE}"
    )


@pytest.mark.parametrize("name", ["", "/job:worker/task:1/device:GPU:0", "GPU:*"])
def test_a_name_that_means_no_one_device_of_this_machine_is_refused_naming_it(name):
    assert repr(name) in refusal([name, "GPU:1"])


def test_a_huge_number_is_refused_at_once():
    for number in (1025, 2**70, range(10**9)):
        assert refusal(number) == (
            f"Expected `gpus` to be at most 1,024 devices. Received: gpus={number!r}. Use `gpus=None` for all GPUs of "
            "this machine."
        )


def test_a_list_that_does_not_end_is_refused():
    assert refusal(Endless()).startswith("Expected `gpus` to be at most 1,024 devices.")


def test_where_workers_train_together_one_device_is_asked_for():
    cluster = Cluster(("a", "b"), ("a:1", "b:1"), 0)
    assert make_plan(1, True, False, FOUR_GPUS, cluster).devices == ("GPU:0",)
    with pytest.raises(ValueError, match=r"call `multi_gpu_model` with `gpus >= 1`\. Received: gpus=0\."):
        make_plan(0, True, False, FOUR_GPUS, cluster)


@pytest.mark.parametrize(
    ("batch_size", "devices", "rows"),
    [
        (8, 4, (2, 2, 2, 2)),
        (10, 4, (3, 3, 2, 2)),
        (64, 2, (32, 32)),
        (3, 4, (1, 1, 1, 0)),
        (1, 4, (1, 0, 0, 0)),
        (0, 2, (0, 0)),
    ],
)
def test_rows_are_dealt_in_order_and_differ_by_at_most_one(batch_size, devices, rows):
    assert plan(devices).rows(batch_size) == rows


@pytest.mark.parametrize("devices", [2, 3, 4])
def test_rows_add_up_to_the_batch(devices):
    for batch_size in range(30):
        rows = plan(devices).rows(batch_size)
        assert sum(rows) == batch_size
        assert max(rows) - min(rows) <= 1


def test_a_plan_reads_as_one_line():
    assert str(plan([0, 2])) == ("2 replicas on GPU:0, GPU:2; outputs merged on CPU:0; weights spread over the devices")
    assert str(plan(2, cpu_merge=False, cpu_relocation=True)) == (
        "2 replicas on GPU:0, GPU:1; outputs merged on GPU:0; weights on CPU:0"
    )
    assert repr(Plan(("CPU:0", "CPU:1"), "CPU:0")).startswith("<Plan: 2 replicas on CPU:0, CPU:1; outputs merged on")
