"""TF_CONFIG is read once, and what is not understood in it is refused."""

import json

import pytest
from cluster_variables import TWO_WORKERS, tf_config

from multigpu.cluster.config import described, jobs_of


@pytest.mark.quick
@pytest.mark.parametrize(
    ("environ", "tasks", "number"),
    [
        (tf_config(), ["/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1"], 0),
        (tf_config(index=1), ["/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1"], 1),
        (
            tf_config({"worker": ["b:2"], "chief": ["a:1"]}, "worker", 0),
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
        tf_config({"worker": ["a:1"]}),
        tf_config({"chief": ["a:1"], "worker": []}, "chief"),
        tf_config({**TWO_WORKERS, "evaluator": ["c:3"]}, "evaluator"),
    ],
)
def test_without_other_workers_there_is_no_cluster(environ):
    assert described(environ) is None


NO_TABLES = [
    ("{", "which is not JSON"),
    ("worker", "which is not JSON"),
    ("[" * 100_000, "which is nested too deeply"),
    *[
        ("[" * depth + "]" * depth, "which is (nested too deeply|.*, rather than a JSON object)")
        for depth in range(700, 1001, 5)
    ],
    ("9" * 5_000, "which is not JSON"),
    *[(text, "which is .*, rather than a JSON object") for text in ("[]", "3", "null", '"a:1"', "true", "NaN")],
    ('{"cluster": ["a:1", "b:2"]}', r"whose `cluster` is \[.*\], rather than a JSON object"),
    ('{"cluster": null}', "whose `cluster` is null, rather than a JSON object"),
    ('{"cluster": {"worker": ["a:1", "b:2"]}, "task": 0}', "whose `task` is 0, rather than a JSON object"),
    ('{"cluster": {"worker": ["a:1", "b:2"]}}', "where `index` of the task is missing"),
    ('{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker"}}', "where `index` of the task is missing"),
    ('{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"index": 0}}', "where the task None 0 is not in the cluster"),
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
    "jobs": [(tf_config({**TWO_WORKERS, **jobs}), what) for jobs, what in WRONG_JOBS],
    "addresses": [
        (tf_config({"worker": ["b:2", each]}), "with the address .*, rather than host:port, with")
        for each in NO_ADDRESSES
    ],
    "indices": [
        (tf_config(index=each), "where `index` of the task is .*, rather than a whole number") for each in NO_INDICES
    ],
    "tasks": [
        (
            tf_config(kind=kind, index=index),
            "where the task .* is not in the cluster. Correct it, or unset TF_CONFIG",
        )
        for kind, index in NO_TASKS
    ],
    "seconds": [
        (tf_config(MULTIGPU_ANSWER_SECONDS=each), "Expected MULTIGPU_ANSWER_SECONDS to be a number .* Received: ")
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
        described(tf_config({"worker": ["a:1"] * 1_000}))
    assert len(str(error.value)) < 1_000


def test_addresses_that_tensorflow_takes_are_taken():
    for address in ("a:1", "a:65535", "n-1.my_net.org:2222", "10.0.0.1:22", "[::1]:2222", "[fe80::1%eth0]:1"):
        assert described(tf_config({"worker": ["b:2", address]}, index="1")).addresses[1] == address
