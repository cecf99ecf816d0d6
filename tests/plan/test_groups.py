"""What groups of devices mean for a template with parts, and the full text of every refusal."""

import numpy as np
import pytest

from multigpu.plan.plan import TooFewGPUsError, make_plan

FOUR = [f"GPU:{number}" for number in range(4)]
FOUR_GPUS = {"gpus": FOUR, "others": [*FOUR, "CPU:0"]}
SIMULATED = {"gpus": ["CPU:0", "CPU:1", "CPU:2"], "others": ["CPU:0", "CPU:1", "CPU:2"]}
TWO_PARTS = ("GPU:0", "GPU:1")


def plan(gpus, parts=TWO_PARTS, visible=FOUR_GPUS, **flags):
    return make_plan(gpus, flags.get("cpu_merge", True), False, visible, parts=parts)


def refusal(gpus, parts=TWO_PARTS):
    with pytest.raises(ValueError) as error:  # noqa: PT011  # the caller compares the whole text
        plan(gpus, parts)
    return str(error.value)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("gpus", "groups"),
    [
        ([["GPU:0", "GPU:1"], ["GPU:2", "GPU:3"]], (("GPU:0", "GPU:1"), ("GPU:2", "GPU:3"))),
        ([[0, 1], [2, 3]], (("GPU:0", "GPU:1"), ("GPU:2", "GPU:3"))),
        (((3, np.int64(2)), range(2)), (("GPU:3", "GPU:2"), ("GPU:0", "GPU:1"))),
        ([["/gpu:0", "GPU:1"]] * 3, (("GPU:0", "GPU:1"),) * 3),
        ([["GPU:1", "CPU:0"]], (("GPU:1", "CPU:0"),)),
    ],
)
def test_groups_are_read_like_lists_of_devices(gpus, groups):
    made = plan(gpus)
    assert made.groups == made.replicas == groups
    assert made.devices == tuple(dict.fromkeys(device for group in groups for device in group))
    assert made.parts == TWO_PARTS


def test_simulated_devices_answer_to_the_names_of_gpus():
    assert plan([["GPU:2", "GPU:1"]], visible=SIMULATED).groups == (("CPU:2", "CPU:1"),)


def test_what_is_on_the_host_stays_there_where_a_group_has_no_device_for_it():
    parts = ("GPU:0", "CPU:0", "GPU:1")
    assert plan([[2, 3]], parts).parts == ("GPU:0", "GPU:1")
    assert plan([[2, "CPU:0", 3]], parts).parts == parts


def test_rows_are_dealt_to_groups():
    assert plan([[0, 1]] * 4).rows(10) == (3, 3, 2, 2)


def test_the_first_gpu_is_that_of_the_first_part():
    assert plan([[2, 3], [0, 1]], cpu_merge=False).merge_device == "GPU:2"


def test_a_plan_with_groups_reads_as_one_line():
    assert str(plan([[0, 1], [2, 3]])) == (
        "2 replicas on GPU:0 + GPU:1, GPU:2 + GPU:3; outputs merged on CPU:0; weights spread over the devices"
    )
    assert str(plan([[0, 1]])).startswith("1 replica on GPU:0 + GPU:1; outputs")
    assert str(plan([[0, 1]] * 4)).startswith("4 replicas on GPU:0 + GPU:1 (4 times); outputs")


def test_a_template_without_parts_is_refused():
    assert refusal([[0, 1], [2, 3]], ()) == (
        "Expected a template with parts on devices, because `gpus` lists groups of devices. Received: "
        "gpus=[[0, 1], [2, 3]], and a template without parts. Call its layers in a scope of "
        "`multigpu.on_device(device)`, or list single devices, as in `gpus=['GPU:0', 'GPU:1']`."
    )


@pytest.mark.parametrize("gpus", [[[0, 1], 2], [[0, 1], "GPU:2"], [[0, 1], None]])
def test_groups_beside_single_devices_are_refused(gpus):
    assert refusal(gpus) == (
        "Expected `gpus` to list groups only, or single devices only. "
        f"Received: {gpus[1]!r} of type {type(gpus[1]).__name__} in gpus={gpus!r}. "
        "Use `gpus=[['GPU:0', 'GPU:1'], ['GPU:2', 'GPU:3']]`."
    )


def test_groups_of_another_length_than_the_template_has_devices_are_refused():
    assert refusal([[0, 1], [2, 3, 1]]) == (
        "Expected 2 devices in each group, since the template has parts on GPU:0, GPU:1. Received: 3 in the group "
        "['GPU:2', 'GPU:3', 'GPU:1'] of gpus=[[0, 1], [2, 3, 1]]."
    )
    assert refusal([[0]], ("GPU:0", "CPU:0", "GPU:1")) == (
        "Expected 3 devices in each group, since the template has parts on GPU:0, CPU:0, GPU:1, or one less, "
        "without the host. Received: 1 in the group ['GPU:0'] of gpus=[[0]]."
    )
    assert "Received: 0 in the group [] of" in refusal([[0, 1], []])
    assert "Received: 0 in the group [] of" in refusal([[]], ("CPU:0",))


def test_groups_that_overlap_in_part_are_refused():
    assert refusal([[0, 1], [1, 2]]) == (
        "Expected two groups to be the same, one slice behind the other, or to have no device in common. "
        "Received: ['GPU:0', 'GPU:1'] and ['GPU:1', 'GPU:2'] in gpus=[[0, 1], [1, 2]]. A device holds one part of the "
        "template."
    )
    assert "or to have no device in common" in refusal([[0, 1], [1, 0]])


def test_a_device_twice_in_a_group_is_refused():
    assert refusal([[0, 0]]) == (
        "Expected each device once in a group. Received: ['GPU:0', 'GPU:0'] in gpus=[[0, 0]]. Put both parts on one "
        "device in the template."
    )


def test_devices_that_are_not_there_are_refused():
    with pytest.raises(TooFewGPUsError, match="However this machine only has"):
        plan([[0, 1], [6, 7]])


def test_too_many_groups_are_refused():
    refused = refusal([[0, 1]] * 1025)
    assert refused.startswith("Expected at most 1,024 groups in `gpus`. Received: gpus=[[0, 1], ")
    assert refused.endswith("List a group once for each slice that it processes, 4 to 8 times for two parts.")
