"""TF_CONFIG is read once, and what is not understood in it is refused; the launcher writes what is read."""

import json
import os

import pytest
import tensorflow as tf
from equality import dense_model

import multigpu
from multigpu.cluster import launch, schedulers, start
from multigpu.cluster.description import described, jobs_of

TWO = {"worker": ["a:1", "b:2"]}


def config(cluster=TWO, kind="worker", index=0, **environ):
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}}), **environ}


@pytest.mark.parametrize(
    ("environ", "tasks", "number"),
    [
        (config(), ["/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1"], 0),
        (config(index=1), ["/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1"], 1),
        (
            config({"worker": ["b:2"], "chief": ["a:1"]}, "worker", 0),
            ["/job:chief/replica:0/task:0", "/job:worker/replica:0/task:0"],
            1,
        ),
    ],
)
def test_workers_are_numbered_from_the_chief_on(environ, tasks, number):
    cluster = described(environ)
    assert (list(cluster.tasks), cluster.addresses, cluster.number) == (tasks, ("a:1", "b:2"), number)
    assert cluster.is_chief == (number == 0)
    assert jobs_of(cluster) == json.loads(environ["TF_CONFIG"])["cluster"]


@pytest.mark.parametrize(
    "environ", [{}, {"TF_CONFIG": ""}, config({"worker": ["a:1"]}), config({**TWO, "evaluator": ["c:3"]}, "evaluator")]
)
def test_without_other_workers_there_is_no_cluster(environ):
    assert described(environ) is None


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"TF_CONFIG": "{"}, r"Expected TF_CONFIG to name .* Received: TF_CONFIG='{', which is not understood"),
        (config(index=2), r"the task 'worker' 2 is none of the cluster's\. Correct it, or unset TF_CONFIG"),
        (config({**TWO, "ps": ["c:3"]}), r"with parameter servers"),
        (config({"worker": ["a:1", "a:1"]}), r"with an address twice"),
        (config(MULTIGPU_ANSWER_SECONDS="no"), r"Expected MULTIGPU_ANSWER_SECONDS to be a number .* Received: 'no'\."),
    ],
)
def test_what_is_not_understood_is_refused(environ, message):
    with pytest.raises(ValueError, match=message):
        described(environ)


def test_a_description_that_is_not_understood_is_refused_when_a_model_is_made_not_before(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "{")
    start.join()  # as the import does
    assert len(multigpu.available_gpus()) == 8
    with pytest.raises(ValueError, match=r"Received: TF_CONFIG='{', which is not understood"):
        multigpu.multi_gpu_model(dense_model(), gpus=2)


def test_a_cluster_described_after_tensorflow_has_started_is_refused(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", config()["TF_CONFIG"])
    multigpu.available_gpus()
    start.join()  # as the import does: too late, and silent until a model is made
    with pytest.raises(
        ValueError, match=r"Expected to join before TensorFlow .* TF_CONFIG describes 2 .* Received: TensorFlow started"
    ):
        start.check_joined()


def resolver(jobs=TWO, kind="worker", index=1):
    spec = tf.train.ClusterSpec(jobs)
    return tf.distribute.cluster_resolver.SimpleClusterResolver(spec, task_type=kind, task_id=index)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (
            resolver(),
            r"since the resolver finds 2 workers: .* Received: TensorFlow started first, on worker 1 of 2\. Call",
        ),
        (
            resolver(kind="", index=None),
            r"knows which task .* SimpleClusterResolver with task_type='' and task_id=None\.",
        ),
        (resolver({**TWO, "ps": ["c:3"]}), r"with parameter servers"),
    ],
)
def test_what_a_resolver_finds_is_refused_where_it_cannot_be_joined(found, message):
    multigpu.available_gpus()
    with pytest.raises(ValueError, match=message):
        multigpu.join_cluster(found)


def test_a_resolver_that_finds_one_worker_changes_nothing():
    multigpu.join_cluster(resolver({"worker": ["a:1"]}, index=0))
    assert start.joined() is None


def test_a_cluster_that_was_joined_is_joined_once_more(monkeypatch):
    monkeypatch.setattr(start, "joined", lambda: described(config(index=1)))
    multigpu.join_cluster(resolver())


def test_another_cluster_than_the_one_that_was_joined_is_refused(monkeypatch):
    monkeypatch.setattr(start, "joined", lambda: described(config({"worker": ["c:3", "d:4"]})))
    with pytest.raises(ValueError, match=r"Expected one cluster\. Received: worker 1 of 2, with a:1, b:2, and before"):
        multigpu.join_cluster(resolver())


def test_this_process_has_joined_no_cluster():
    assert start.joined() is None


# The launcher ---------------------------------------------------------------------------------------------------------


def test_the_launcher_describes_what_is_read():
    clusters = [described({"TF_CONFIG": text}) for text in launch.local_configs(3)]
    assert [cluster.number for cluster in clusters] == [0, 1, 2]
    assert len({cluster.addresses for cluster in clusters}) == 1


@pytest.mark.parametrize(
    ("environ", "hosts", "rank", "number", "addresses"),
    [
        ({}, ["a", "b"], 1, 1, ("a:2222", "b:2222")),
        ({}, ["a", "a", "b:7"], 2, 2, ("a:2222", "a:2223", "b:7")),
        ({"OMPI_COMM_WORLD_RANK": "1"}, ["a", "b"], None, 1, ("a:2222", "b:2222")),
        ({"PMI_RANK": "0"}, ["a", "b"], None, 0, ("a:2222", "b:2222")),
    ],
)
def test_hosts_and_ranks_make_a_cluster(environ, hosts, rank, number, addresses):
    cluster = described({"TF_CONFIG": schedulers.config_of(environ, hosts, rank)})
    assert (cluster.number, cluster.addresses) == (number, addresses)


STEP = {"STEP_NODELIST": "n[9-10]", "STEP_TASKS_PER_NODE": "2(x2)", "STEP_NUM_TASKS": "4", "PROCID": "2"}


@pytest.fixture
def step(monkeypatch):
    """A step of SLURM on two nodes, of which this is the third task."""
    for name, value in STEP.items():
        monkeypatch.setenv(f"SLURM_{name}", value)


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
    ],
)
def test_a_step_of_slurm_makes_a_cluster_in_the_order_of_its_tasks(step, monkeypatch, more, addresses):
    for name, value in more.items():
        monkeypatch.setenv(name, value)
    for config in (schedulers.config_of_tasks(os.environ), schedulers.config_of(os.environ, [], None)):
        cluster = described({"TF_CONFIG": config})
        assert (cluster.number, cluster.addresses) == (2, addresses)


def test_tasks_that_slurm_has_put_elsewhere_are_refused(step, monkeypatch):
    monkeypatch.setenv("SLURMD_NODENAME", "n9")
    with pytest.raises(ValueError, match=r"Expected .* Received: task 2 on n9 rather than on n10\. Use `srun --dist"):
        multigpu.multi_gpu_model(dense_model(), gpus=2)


@pytest.mark.parametrize(
    ("name", "value"), [("SLURM_PROCID", "4"), ("SLURM_STEP_NUM_TASKS", "5"), ("SLURM_STEP_NODELIST", "n[9")]
)
def test_variables_of_slurm_that_do_not_agree_are_refused_when_a_model_is_made_not_before(
    step, monkeypatch, name, value
):
    monkeypatch.setenv(name, value)
    start.join()  # as the import does
    with pytest.raises(
        ValueError, match=r"Expected variables of a SLURM step that agree\. Received: .*or set TF_CONFIG"
    ):
        multigpu.multi_gpu_model(dense_model(), gpus=2)


def test_steps_at_the_same_time_listen_on_ports_of_their_own(step, monkeypatch):
    def ports(job, number):
        monkeypatch.setenv("SLURM_JOB_ID", str(job))
        monkeypatch.setenv("SLURM_STEP_ID", str(number))
        addresses = described({"TF_CONFIG": schedulers.config_of_tasks(os.environ)}).addresses
        return [int(address.split(":")[1]) for address in addresses if address.startswith("n9")]

    taken = [port for job in range(700_000, 700_020) for number in range(20) for port in ports(job, number)]
    assert len(set(taken)) == len(taken) == 2 * 400
    assert (min(taken) >= 15_000, max(taken) < 31_000) == (True, True)


OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "3"}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "3", "MPI_LOCALNRANKS": "3"}


@pytest.mark.parametrize("environ", [OPEN_MPI, MPICH, {**OPEN_MPI, "SLURM_STEP_NODELIST": "n9"}])
def test_tasks_of_mpirun_on_one_host_make_a_cluster(environ):
    cluster = described({"TF_CONFIG": schedulers.config_of_tasks(environ)})
    assert (cluster.number, cluster.addresses) == (1, ("127.0.0.1:15000", "127.0.0.1:15001", "127.0.0.1:15002"))


def test_two_mpiruns_on_a_host_listen_on_ports_of_their_own():
    one, two = (schedulers.config_of_tasks({**OPEN_MPI, "PMIX_NAMESPACE": name}) for name in ("21", "22"))
    assert not set(described({"TF_CONFIG": one}).addresses) & set(described({"TF_CONFIG": two}).addresses)


APART = {
    "no scheduler": {},
    "mpirun on several hosts, within a step of SLURM": {**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
    "a rank that mpirun has not given": {**OPEN_MPI, "OMPI_COMM_WORLD_RANK": "3"},
    "one task of mpirun": {"PMI_RANK": "0", "PMI_SIZE": "1", "MPI_LOCALNRANKS": "1"},
    "a shell in a step of SLURM": {"SLURM_PTY_PORT": "40000"},
    "TF_CONFIG, which has the last word": {"TF_CONFIG": "{}"},
}


@pytest.mark.parametrize("environ", APART.values(), ids=APART)
def test_without_a_word_of_where_the_others_are_there_is_no_cluster(request, monkeypatch, environ):
    if environ:
        request.getfixturevalue("step")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert start.described_here() is None


def test_a_step_of_slurm_that_comes_too_late_is_refused(step):
    multigpu.available_gpus()
    with pytest.raises(
        ValueError, match=r"variables of SLURM or MPI describe 4 workers.* on worker 2 of 4\. Set TF_CONFIG"
    ):
        start.check_joined()


@pytest.mark.parametrize(("number", "said"), [(0, True), (1, False)])
def test_the_chief_says_that_tasks_of_a_scheduler_train_together(step, monkeypatch, capsys, number, said):
    monkeypatch.setenv("SLURM_PROCID", str(number))
    monkeypatch.setattr(start, "joined", start.described_here)
    start.check_joined()
    expected = "multigpu: 4 tasks train one model together, from n9:15000 to n10:15001. Set TF_CONFIG='{}' for each"
    assert (expected in capsys.readouterr().err) == said


def test_a_resolver_has_the_last_word_over_the_variables_of_a_scheduler(step, monkeypatch):
    listening = []
    monkeypatch.setattr(start, "joined", start.described_here)
    monkeypatch.setattr(start, "_started", lambda: False)
    monkeypatch.setattr(start, "_listen", listening.append)
    multigpu.join_cluster(resolver())
    assert [cluster.addresses for cluster in listening] == [("a:1", "b:2")]


@pytest.mark.parametrize("variable", ["SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"])
def test_tasks_of_a_scheduler_that_train_apart_are_told_so(monkeypatch, variable):
    monkeypatch.setenv(variable, "4")
    with pytest.warns(
        UserWarning, match=rf"one of 4 tasks \({variable}\), which train apart.* start them with `(srun|mpirun) "
    ) as told:
        multigpu.multi_gpu_model(dense_model(), gpus=2)
    assert told[0].filename == __file__


@pytest.mark.parametrize("environ", [{"TF_CONFIG": "{}"}, {"PMI_SIZE": "1"}, {"PMI_SIZE": "many"}])
def test_nothing_is_said_of_tasks_where_it_is_wanted_or_there_are_none(monkeypatch, environ):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4" if "TF_CONFIG" in environ else "1")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    multigpu.multi_gpu_model(dense_model(), gpus=2)  # a warning is an error


def test_hosts_without_a_rank_are_refused():
    with pytest.raises(ValueError, match=r"Expected `--processes N` .* Received: hosts=\['a', 'b'\], rank=None\."):
        schedulers.config_of({}, ["a", "b"], None)


def run(script, *words):
    parser = launch.argparse.ArgumentParser()
    launch.add_arguments(parser)
    return launch.main(parser.parse_args([*words, str(script)]))


def test_every_process_gets_its_own_description(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import json, os, pathlib\n"
        "index = json.loads(os.environ['TF_CONFIG'])['task']['index']\n"
        f"pathlib.Path({str(tmp_path)!r}, f'was-{{index}}').touch()\n"
    )
    assert run(script, "--processes", "2") == 0
    assert sorted(path.name for path in tmp_path.glob("was-*")) == ["was-0", "was-1"]


def test_the_status_is_that_of_the_worker_that_failed_and_nobody_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "LEFT_SECONDS", 0.1)
    script = tmp_path / "script.py"
    script.write_text(
        "import json, os, sys, time\n"
        "time.sleep(600) if json.loads(os.environ['TF_CONFIG'])['task']['index'] else sys.exit(7)\n"
    )
    assert run(script, "--processes", "2") == 7
