"""Lists of nodes and of tasks are read as SLURM writes them; TensorFlow, which reads some of them, agrees."""

import pytest
from tensorflow.python.distribute.cluster_resolver import slurm_cluster_resolver as tensorflow

from multigpu.cluster.slurm_nodes import nodes_of, tasks_of

NODES = {
    "n9": ["n9"],
    "n[9-10]": ["n9", "n10"],
    "n[1-2],m5,o[3-4,6,08-10]": ["n1", "n2", "m5", "o3", "o4", "o6", "o08", "o09", "o10"],
    "gpu-a[001-003]": ["gpu-a001", "gpu-a002", "gpu-a003"],
    "login.site.org,c1": ["login.site.org", "c1"],
}


@pytest.mark.quick
@pytest.mark.parametrize("text", NODES)
def test_nodes(text):
    assert nodes_of(text) == NODES[text] == tensorflow.expand_hostlist(text)


def test_nodes_with_several_numbers_or_an_ending():
    assert nodes_of("r[1-2]n[3-4]") == ["r1n3", "r1n4", "r2n3", "r2n4"]
    assert nodes_of("n[1,3]-ib") == ["n1-ib", "n3-ib"]


@pytest.mark.parametrize("text", ["2", "2,1", "2(x3),1", "16(x128)"])
def test_tasks(text):
    assert tasks_of(text) == tensorflow.expand_tasks_per_node(text)


@pytest.mark.parametrize("text", ["", "n[9", "n9]", "n[x]", "n[1-2-3]", "n[]", ",n1", "n1,", "n 1", "n[1-9999999]"])
def test_what_is_no_list_of_nodes_is_refused(text):
    with pytest.raises(ValueError, match=r"is not a (list|range) of nodes"):
        nodes_of(text)


@pytest.mark.parametrize("text", ["", "x", "2(3)", "2(x)", "2,,1", "-1"])
def test_what_are_no_tasks_is_refused(text):
    with pytest.raises(ValueError, match="does not give the number of tasks of each node"):
        tasks_of(text)
