"""Hosts and ranks, SLURM and MPI make the cluster that TF_CONFIG would; what their variables do not say is refused."""

import os
import re

import pytest
from cluster_variables import MPICH, OPEN_MPI, SLURM, set_variables
from equality import dense_model

import multigpu
from multigpu.cluster import schedulers
from multigpu.cluster.config import described
from multigpu.engines.tensorflow.cluster import join

# Hosts ----------------------------------------------------------------------------------------------------------------


@pytest.mark.quick
@pytest.mark.parametrize(
    ("environ", "hosts", "rank", "number", "addresses"),
    [
        ({}, ["a", "b"], 1, 1, ("a:2222", "b:2222")),
        ({}, ["a", "a", "b:7"], 2, 2, ("a:2222", "a:2223", "b:7")),
        ({}, ["a", "a:2222", "a"], 0, 0, ("a:2223", "a:2222", "a:2224")),
        ({}, ["[::1]", "[::1]:7"], 0, 0, ("[::1]:2222", "[::1]:7")),
        ({"OMPI_COMM_WORLD_RANK": "1"}, ["a", "b"], None, 1, ("a:2222", "b:2222")),
        ({"PMI_RANK": "0"}, ["a", "b"], None, 0, ("a:2222", "b:2222")),
    ],
)
def test_hosts_and_ranks_make_a_cluster(environ, hosts, rank, number, addresses):
    cluster = described({"TF_CONFIG": schedulers.config_of(environ, hosts, rank)})
    assert (cluster.number, cluster.addresses) == (number, addresses)


def test_hosts_without_a_rank_are_refused():
    with pytest.raises(ValueError, match=r"Expected `--processes N` .* Received: hosts=\['a', 'b'\], rank=None\."):
        schedulers.config_of({}, ["a", "b"], None)


def test_hosts_that_are_not_understood_are_refused():
    for hosts in ("", "a,", ",a", "a,,b", "a, b", "a:0,b", "a:65536,b", "a:x,b", "::1,b", "http://a,b", "a:1,a:1"):
        with pytest.raises(ValueError, match=r"Expected (hosts as host or host:port|each address once).* Received: "):
            schedulers.config_of({}, hosts.split(","), 0)


# SLURM and MPI --------------------------------------------------------------------------------------------------------


@pytest.fixture
def step(monkeypatch):
    """A step of SLURM on two nodes, of which this is the third task."""
    set_variables(monkeypatch, SLURM)


@pytest.mark.parametrize(
    ("more", "addresses"),
    [
        ({}, ("n9:15000", "n9:15001", "n10:15000", "n10:15001")),
        ({"SLURMD_NODENAME": "n10"}, ("n9:15000", "n9:15001", "n10:15000", "n10:15001")),
        (
            {"SLURMD_NODENAME": "n9", "SLURM_DISTRIBUTION": "cyclic:block"},
            ("n9:15000", "n10:15000", "n9:15001", "n10:15001"),
        ),
        ({"SLURM_STEP_RESV_PORTS": "12003-12005"}, ("n9:12003", "n9:12004", "n10:12003", "n10:12004")),
        ({"SLURM_STEP_RESV_PORTS": "12003,12007-12009"}, ("n9:12003", "n9:12007", "n10:12003", "n10:12007")),
    ],
)
def test_a_step_of_slurm_makes_a_cluster_in_the_order_of_its_tasks(step, monkeypatch, more, addresses):
    for name, value in more.items():
        monkeypatch.setenv(name, value)
    for config in (schedulers.config_of_tasks(os.environ), schedulers.config_of(os.environ, [], None)):
        cluster = described({"TF_CONFIG": config})
        assert (cluster.number, cluster.addresses) == (2, addresses)


NOT_OF_THE_STEP = [("PROCID", value) for value in ("4", "-1", "x")]
NOT_OF_THE_STEP += [("STEP_NUM_TASKS", "5"), ("STEP_NUM_TASKS", "x"), ("STEP_NODELIST", "n[9"), ("JOB_ID", "x")]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("SLURMD_NODENAME", "n9", r"Expected .* Received: task 2 on n9 rather than on n10\. Use `srun --dist"),
        *[
            (name, value, r"Expected SLURM's variables to agree with each other\. Received: .*or set TF_CONFIG")
            for name, value in NOT_OF_THE_STEP
        ],
    ],
)
def test_variables_of_slurm_that_do_not_agree_are_refused_by_whom_wants_to_join(
    step, monkeypatch, name, value, message
):
    monkeypatch.setenv(name if name.startswith("SLURMD") else f"SLURM_{name}", value)
    with pytest.raises(ValueError, match=message):
        multigpu.join_cluster()


@pytest.mark.parametrize("environ", [OPEN_MPI, MPICH], ids=["Open MPI", "MPICH"])
def test_variables_of_mpi_that_are_no_numbers_are_refused(environ):
    for name in environ:
        for value in ("x", "-1", "1.5", "", "²", "9" * 30):
            with pytest.raises(ValueError, match=rf"Expected {name} to be a whole .* Received: '{value}'\. Unset it"):
                schedulers.config_of_tasks({**environ, name: value})


def test_steps_at_the_same_time_listen_on_ports_of_their_own(step, monkeypatch):
    def ports(job, number):
        monkeypatch.setenv("SLURM_JOB_ID", str(job))
        monkeypatch.setenv("SLURM_STEP_ID", str(number))
        addresses = described({"TF_CONFIG": schedulers.config_of_tasks(os.environ)}).addresses
        return [int(address.split(":")[1]) for address in addresses if address.startswith("n9")]

    taken = [port for job in range(700_000, 700_020) for number in range(20) for port in ports(job, number)]
    assert len(set(taken)) == len(taken) == 2 * 400
    assert (min(taken) >= 15_000, max(taken) < 31_000) == (True, True)


@pytest.mark.parametrize("environ", [OPEN_MPI, MPICH, {**OPEN_MPI, "SLURM_STEP_NODELIST": "n9"}])
def test_tasks_of_mpirun_on_one_host_make_a_cluster(environ):
    cluster = described({"TF_CONFIG": schedulers.config_of_tasks(environ)})
    assert (cluster.number, cluster.addresses) == (1, ("127.0.0.1:15000", "127.0.0.1:15001", "127.0.0.1:15002"))


def test_two_mpiruns_on_a_host_listen_on_ports_of_their_own():
    one, two = (schedulers.config_of_tasks({**OPEN_MPI, "PMIX_NAMESPACE": name}) for name in ("21", "22"))
    assert not set(described({"TF_CONFIG": one}).addresses) & set(described({"TF_CONFIG": two}).addresses)


@pytest.fixture
def said():
    """Lets the one line on stderr be written once more."""
    schedulers._say_once.cache_clear()
    yield
    schedulers._say_once.cache_clear()


BY_JOINING = r"call `join_cluster\(\)` at the top of the script"
BY_LAUNCH = r"start them with `mpirun \.\.\. python -m multigpu launch --hosts a,b train.py`"
TASKS = {
    "a step of SLURM": (SLURM, "4 tasks (SLURM_STEP_NUM_TASKS)", BY_JOINING),
    "variables that do not agree": ({**SLURM, "SLURM_PROCID": "7"}, "4 tasks (SLURM_STEP_NUM_TASKS)", BY_JOINING),
    "mpirun on one host": (OPEN_MPI, "3 tasks (OMPI_COMM_WORLD_SIZE)", BY_JOINING),
    "mpirun of MPICH on one host": (MPICH, "3 tasks (PMI_SIZE)", BY_JOINING),
    "mpirun on several hosts": ({"PMI_RANK": "0", "PMI_SIZE": "4"}, "4 tasks (PMI_SIZE)", BY_LAUNCH),
    "mpirun on several hosts, within a step of SLURM": (
        {**SLURM, **OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
        "3 tasks (OMPI_COMM_WORLD_SIZE)",
        BY_LAUNCH,
    ),
    "a rank that mpirun has not given": (
        {**OPEN_MPI, "OMPI_COMM_WORLD_RANK": "3"},
        "3 tasks (OMPI_COMM_WORLD_SIZE)",
        BY_LAUNCH,
    ),
    "a shell in a step of SLURM": (
        {**SLURM, "SLURM_PTY_PORT": "40000"},
        "4 tasks (SLURM_STEP_NUM_TASKS)",
        "start them with `srun python train.py` rather than in a shell",
    ),
}


@pytest.mark.parametrize(("environ", "tasks", "cure"), TASKS.values(), ids=TASKS)
def test_tasks_of_a_scheduler_that_did_not_join_train_apart_and_say_so_once(
    monkeypatch, capsys, said, environ, tasks, cure
):
    set_variables(monkeypatch, environ)
    join.join()  # as the import does
    assert join.joined() is None
    for _ in range(2):
        multigpu.multi_gpu_model(dense_model(), gpus=2)
    line = (
        rf"multigpu: this is one of {re.escape(tasks)}, and trains a model of its own\. To train one model together, "
    )
    assert re.fullmatch(rf"{line}{cure}; TF_CONFIG='{{}}' silences this line\.\n", capsys.readouterr().err)


@pytest.mark.parametrize(
    "environ", [{**SLURM, "TF_CONFIG": "{}"}, {"PMI_SIZE": "1"}, {"PMI_SIZE": "many"}, {"PMI_SIZE": "9" * 5_000}]
)
def test_nothing_is_said_of_tasks_where_it_is_wanted_or_there_are_none(monkeypatch, capsys, said, environ):
    set_variables(monkeypatch, environ)
    multigpu.multi_gpu_model(dense_model(), gpus=2)
    assert capsys.readouterr().err == ""
    multigpu.join_cluster()  # which changes nothing
    assert join.joined() is None


@pytest.mark.parametrize("case", [case for case, (_, _, cure) in TASKS.items() if cure != BY_JOINING])
def test_who_joins_without_a_word_of_where_the_others_are_is_refused(monkeypatch, case):
    environ, tasks, cure = TASKS[case]
    set_variables(monkeypatch, environ)
    cure = cure.replace("start", "Start")
    message = rf"Expected environment variables .* Received: this is one of {re.escape(tasks)}, .* {cure}; or set"
    with pytest.raises(ValueError, match=message):
        multigpu.join_cluster()
