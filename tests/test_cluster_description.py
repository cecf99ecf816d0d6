"""TF_CONFIG is read once, and what is not understood in it is refused; the launcher writes what is read."""

import json
import os
import re

import pytest
import tensorflow as tf
from equality import dense_model

import multigpu
from multigpu.cli import launch
from multigpu.cli.main import main
from multigpu.cluster import join as start
from multigpu.cluster import schedulers
from multigpu.cluster.config import described, jobs_of

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
    "environ",
    [
        {},
        {"TF_CONFIG": ""},
        {"TF_CONFIG": "{}"},
        {"TF_CONFIG": '{"cluster": {}, "task": {}, "environment": "cloud", "job": {}}'},
        config({"worker": ["a:1"]}),
        config({"chief": ["a:1"], "worker": []}, "chief"),
        config({**TWO, "evaluator": ["c:3"]}, "evaluator"),
    ],
)
def test_without_other_workers_there_is_no_cluster(environ):
    assert described(environ) is None


NO_TABLES = [
    ("{", "which is no JSON"),
    ("worker", "which is no JSON"),
    ("[" * 100_000, "which is nested too deeply"),
    *[
        ("[" * depth + "]" * depth, "which is (nested too deeply|.*, rather than a table)")
        for depth in range(700, 1001, 5)
    ],
    ("9" * 5_000, "which is no JSON"),
    *[(text, "which is .*, rather than a table in braces") for text in ("[]", "3", "null", '"a:1"', "true", "NaN")],
    ('{"cluster": ["a:1", "b:2"]}', r"whose `cluster` is \[.*\], rather than a table"),
    ('{"cluster": null}', "whose `cluster` is null, rather than a table"),
    ('{"cluster": {"worker": ["a:1", "b:2"]}, "task": 0}', "whose `task` is 0, rather than a table"),
    ('{"cluster": {"worker": ["a:1", "b:2"]}}', "where `index` of the task is missing"),
    ('{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker"}}', "where `index` of the task is missing"),
    ('{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"index": 0}}', "where the task None 0 is none"),
    ('{"task": {"type": "worker", "index": 0}}', "without workers in `cluster`"),
    ('{"clusters": {"worker": ["a:1", "b:2"]}}', "without workers in `cluster`"),
]
WRONG_JOBS = [
    ({"worker": "a:1,b:2"}, r"whose `worker` is \"a:1,b:2\", rather than a list of addresses"),
    ({"worker": {"0": "a:1"}}, r"whose `worker` is {.*}, rather than a list"),
    ({"worker": None}, "whose `worker` is null, rather than a list"),
    ({"worker": ["a:1", "a:1"]}, "with an address twice, a:1"),
    ({"chief": ["a:1"]}, "with an address twice, a:1"),
    ({"chief": ["c:1", "d:1"]}, "with 2 chiefs, rather than one"),
    ({"ps": ["c:3"]}, "with parameter servers"),
    ({"wroker": ["c:3"]}, r'with "wroker" in `cluster`, rather than chief, worker or evaluator'),
]
NO_ADDRESSES = [
    "a",
    "a:",
    ":1",
    "",
    " a:1",
    "a:1 ",
    "a:0",
    "a:65536",
    "a:99999",
    "a:-1",
    "a:1.5",
    "a:abc",
    "a:²",
    "a:1:2",
]
NO_ADDRESSES += [
    "::1:2222",
    "[::1]",
    "[::1:2222",
    "grpc://a:1",
    "a/b:1",
    "user@a:1",
    "a,b:1",
    "a\n:1",
    2222,
    None,
    ["a:1"],
]
NO_INDICES = [None, True, 0.0, 1.5, -0.5, "one", "-1", "", "²", [0], {}]
NO_TASKS = [
    ("worker", 2),
    ("worker", -1),
    ("worker", 10**30),
    ("chief", 0),
    ("master", 0),
    (None, 0),
    ("", 0),
    (0, 0),
    (["worker"], 0),
]
NO_SECONDS = ["no", "0", "-1", "nan", "inf", "1e400", "1e7"]


REFUSED = {
    "TF_CONFIG": [
        ({"TF_CONFIG": text}, rf"Expected TF_CONFIG to name .*, {what}.*\. Correct") for text, what in NO_TABLES
    ],
    "jobs": [(config({**TWO, **jobs}), what) for jobs, what in WRONG_JOBS],
    "addresses": [
        (config({"worker": ["b:2", each]}), "with the address .*, rather than host:port, with") for each in NO_ADDRESSES
    ],
    "indices": [
        (config(index=each), "where `index` of the task is .*, rather than a whole number") for each in NO_INDICES
    ],
    "tasks": [
        (config(kind=kind, index=index), "where the task .* is none of the cluster's. Correct it, or unset TF_CONFIG")
        for kind, index in NO_TASKS
    ],
    "seconds": [
        (config(MULTIGPU_ANSWER_SECONDS=each), "Expected MULTIGPU_ANSWER_SECONDS to be a number .* Received: ")
        for each in NO_SECONDS
    ],
}


@pytest.mark.parametrize("cases", REFUSED.values(), ids=REFUSED)
def test_what_is_not_understood_is_refused(cases):
    for environ, message in cases:
        with pytest.raises(ValueError, match=message):
            described(environ)


def test_a_message_cuts_what_is_long():
    with pytest.raises(ValueError, match="with an address twice") as error:
        described(config({"worker": ["a:1"] * 1_000}))
    assert len(str(error.value)) < 1_000


def test_addresses_that_tensorflow_takes_are_taken():
    for address in ("a:1", "a:65535", "n-1.my_net.org:2222", "10.0.0.1:22", "[::1]:2222", "[fe80::1%eth0]:1"):
        assert described(config({"worker": ["b:2", address]}, index="1")).addresses[1] == address


def test_a_description_that_is_not_understood_is_refused_when_a_model_is_made_not_before(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "{")
    start.join()  # as the import does
    assert len(multigpu.available_gpus()) == 8
    with pytest.raises(ValueError, match=r"Received: TF_CONFIG='{', which is no JSON"):
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
        (
            resolver({**TWO, "ps": ["c:3"]}),
            r"Expected the resolver to name .* Received: {.*}, with parameter servers \(`ps`\)\. Correct it\.$",
        ),
        (resolver({"worker": {0: "a:1", 2: "c:3"}}), r"with the address null, rather than host:port"),
        *[
            (each, r"Expected `resolver` to be one of .* Received: resolver=.*\. Call")
            for each in (1, "slurm", TWO, [], object())
        ],
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
        ({}, ["a", "a:2222", "a"], 0, 0, ("a:2223", "a:2222", "a:2224")),
        ({}, ["[::1]", "[::1]:7"], 0, 0, ("[::1]:2222", "[::1]:7")),
        ({"OMPI_COMM_WORLD_RANK": "1"}, ["a", "b"], None, 1, ("a:2222", "b:2222")),
        ({"PMI_RANK": "0"}, ["a", "b"], None, 0, ("a:2222", "b:2222")),
    ],
)
def test_hosts_and_ranks_make_a_cluster(environ, hosts, rank, number, addresses):
    cluster = described({"TF_CONFIG": schedulers.config_of(environ, hosts, rank)})
    assert (cluster.number, cluster.addresses) == (number, addresses)


OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "3"}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "3", "MPI_LOCALNRANKS": "3"}
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


NOT_OF_THE_STEP = [("PROCID", value) for value in ("4", "-1", "x")]
NOT_OF_THE_STEP += [("STEP_NUM_TASKS", "5"), ("STEP_NUM_TASKS", "x"), ("STEP_NODELIST", "n[9"), ("JOB_ID", "x")]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("SLURMD_NODENAME", "n9", r"Expected .* Received: task 2 on n9 rather than on n10\. Use `srun --dist"),
        *[
            (name, value, r"Expected variables of a SLURM step that agree\. Received: .*or set TF_CONFIG")
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


def set_all(monkeypatch, environ):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)


IN_STEP = {f"SLURM_{name}": value for name, value in STEP.items()}
BY_JOINING = r"call `join_cluster\(\)` at the top of the script"
BY_LAUNCH = r"start them with `mpirun \.\.\. python -m multigpu launch --hosts a,b train.py`"
TASKS = {
    "a step of SLURM": (IN_STEP, "4 tasks (SLURM_STEP_NUM_TASKS)", BY_JOINING),
    "variables that do not agree": ({**IN_STEP, "SLURM_PROCID": "7"}, "4 tasks (SLURM_STEP_NUM_TASKS)", BY_JOINING),
    "mpirun on one host": (OPEN_MPI, "3 tasks (OMPI_COMM_WORLD_SIZE)", BY_JOINING),
    "mpirun of MPICH on one host": (MPICH, "3 tasks (PMI_SIZE)", BY_JOINING),
    "mpirun on several hosts": ({"PMI_RANK": "0", "PMI_SIZE": "4"}, "4 tasks (PMI_SIZE)", BY_LAUNCH),
    "mpirun on several hosts, within a step of SLURM": (
        {**IN_STEP, **OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
        "3 tasks (OMPI_COMM_WORLD_SIZE)",
        BY_LAUNCH,
    ),
    "a rank that mpirun has not given": (
        {**OPEN_MPI, "OMPI_COMM_WORLD_RANK": "3"},
        "3 tasks (OMPI_COMM_WORLD_SIZE)",
        BY_LAUNCH,
    ),
    "a shell in a step of SLURM": (
        {**IN_STEP, "SLURM_PTY_PORT": "40000"},
        "4 tasks (SLURM_STEP_NUM_TASKS)",
        "start them with `srun python train.py` rather than in a shell",
    ),
}


@pytest.mark.parametrize(("environ", "tasks", "cure"), TASKS.values(), ids=TASKS)
def test_tasks_of_a_scheduler_that_did_not_join_train_apart_and_say_so_once(
    monkeypatch, capsys, said, environ, tasks, cure
):
    set_all(monkeypatch, environ)
    start.join()  # as the import does
    assert start.joined() is None
    for _ in range(2):
        multigpu.multi_gpu_model(dense_model(), gpus=2)
    line = (
        rf"multigpu: this is one of {re.escape(tasks)}, and trains a model of its own\. To train one model together, "
    )
    assert re.fullmatch(rf"{line}{cure}; TF_CONFIG='{{}}' silences this line\.\n", capsys.readouterr().err)


@pytest.mark.parametrize(
    "environ", [{**IN_STEP, "TF_CONFIG": "{}"}, {"PMI_SIZE": "1"}, {"PMI_SIZE": "many"}, {"PMI_SIZE": "9" * 5_000}]
)
def test_nothing_is_said_of_tasks_where_it_is_wanted_or_there_are_none(monkeypatch, capsys, said, environ):
    set_all(monkeypatch, environ)
    multigpu.multi_gpu_model(dense_model(), gpus=2)
    assert capsys.readouterr().err == ""
    multigpu.join_cluster()  # which changes nothing
    assert start.joined() is None


@pytest.mark.parametrize("case", [case for case, (_, _, cure) in TASKS.items() if cure != BY_JOINING])
def test_who_joins_without_a_word_of_where_the_others_are_is_refused(monkeypatch, case):
    environ, tasks, cure = TASKS[case]
    set_all(monkeypatch, environ)
    cure = cure.replace("start", "Start")
    message = rf"Expected variables that say where .* Received: this is one of {re.escape(tasks)}, .* {cure}; or set"
    with pytest.raises(ValueError, match=message):
        multigpu.join_cluster()


@pytest.mark.parametrize(("environ", "number"), [(IN_STEP, 2), (OPEN_MPI, 1), (MPICH, 1), (config(index=1), 1)])
def test_join_cluster_asks_tf_config_slurm_or_mpi(monkeypatch, environ, number):
    listening = []
    set_all(monkeypatch, environ)
    monkeypatch.setattr(start, "_started", lambda: False)
    monkeypatch.setattr(start, "_listen", listening.append)
    multigpu.join_cluster()
    assert [cluster.number for cluster in listening] == [number]


def test_a_step_of_slurm_that_joins_too_late_is_refused(step):
    multigpu.available_gpus()
    with pytest.raises(
        ValueError,
        match=r"variables of SLURM or MPI describe 4 workers.* on worker 2 of 4\. Call `multigpu.join_cluster",
    ):
        multigpu.join_cluster()


def test_hosts_without_a_rank_are_refused():
    with pytest.raises(ValueError, match=r"Expected `--processes N` .* Received: hosts=\['a', 'b'\], rank=None\."):
        schedulers.config_of({}, ["a", "b"], None)


def test_hosts_that_are_not_understood_are_refused():
    for hosts in ("", "a,", ",a", "a,,b", "a, b", "a:0,b", "a:65536,b", "a:x,b", "::1,b", "http://a,b", "a:1,a:1"):
        with pytest.raises(ValueError, match=r"Expected (hosts as host or host:port|each address once).* Received: "):
            schedulers.config_of({}, hosts.split(","), 0)


def run(script, *words):
    return main(["launch", *words, str(script)])


def test_every_process_gets_its_own_description_and_a_line_says_who_can_reach_it(tmp_path, capfd):
    script = tmp_path / "script.py"
    script.write_text(
        "import json, os, pathlib\n"
        "index = json.loads(os.environ['TF_CONFIG'])['task']['index']\n"
        f"pathlib.Path({str(tmp_path)!r}, f'was-{{index}}').touch()\n"
    )
    assert run(script, "--processes", "2") == 0
    assert re.fullmatch(r"multigpu: each worker listens on all network interfaces, .*\n", capfd.readouterr().err)
    assert sorted(path.name for path in tmp_path.glob("was-*")) == ["was-0", "was-1"]


def test_nothing_is_said_of_a_worker_that_is_alone_and_does_not_listen(tmp_path, capfd):
    script = tmp_path / "script.py"
    script.touch()
    assert run(script, "--processes", "1") == run(script, "--hosts", "a", "--rank", "0") == 0
    assert capfd.readouterr().err == ""


def test_the_status_is_that_of_the_worker_that_failed_and_nobody_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "LEFT_SECONDS", 0.1)
    script = tmp_path / "script.py"
    script.write_text(
        "import json, os, sys, time\n"
        "time.sleep(600) if json.loads(os.environ['TF_CONFIG'])['task']['index'] else sys.exit(7)\n"
    )
    assert run(script, "--processes", "2") == 7
