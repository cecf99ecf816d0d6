"""Two and three processes train as one does, on the same arrays or on rows of their own; none waits for a lost one."""

import operator
import os
import re
import signal
import sys

import keras
import numpy as np
import pytest
from jax.experimental import sparse
from started_workers import ended, one, started, values

from multigpu.engines.jax.global_batches import _joint
from multigpu.engines.jax.join import _leave_after_an_error
from multigpu.engines.jax.placement import layout_of
from multigpu.plan.plan import Plan


@pytest.mark.parametrize(
    ("how", "number", "data"),
    [("launch", 2, "arrays"), ("TF_CONFIG", 3, "dataset"), ("srun", 2, "generator"), ("mpirun", 2, "dataset")],
)
def test_workers_train_as_one_process_does_however_they_are_started(how, number, data, tmp_path):
    """Rows of their own are any number, and end at any time. Other seeds, and so other first weights and another order
    of rows, have all but the chief.
    """
    for code, printed in ended([one(tmp_path, data, number), *started(how, tmp_path, data, number)]):
        assert code == 0, printed
        assert "TensorFlow" not in printed
    for worker in range(number):
        for actual, expected in zip(values(tmp_path, worker), values(tmp_path, "one"), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
        for written in ("csv", "weights.h5"):
            assert (tmp_path / f"{worker}.{written}").exists() == (worker == 0)
        loaded = keras.saving.load_model(tmp_path / f"{worker}.keras")
        np.testing.assert_array_equal(loaded.get_weights()[0], values(tmp_path, worker)[0])
        held, total = np.load(tmp_path / f"{worker}.held.npy")
        assert held / total == pytest.approx(1 / 2, abs=0.1)  # the two devices of a worker divide the weights


@pytest.mark.parametrize("given", ["OWN_STEP", "LENGTHS"])
def test_datasets_of_workers_train_as_in_one_process(given, tmp_path):
    """With a step of one's own, whose gradients include those of weights that it uses as passed; and with sequences of
    another length in each step, which the worker whose data end first follows.
    """
    environment = {given: "1", "DROPOUT": "0"}
    for code, printed in ended(
        [one(tmp_path, "dataset", 2, **environment), *started("TF_CONFIG", tmp_path, "dataset", 2, **environment)]
    ):
        assert code == 0, printed
    for worker in range(2):
        for actual, expected in zip(values(tmp_path, worker), values(tmp_path, "one"), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_an_error_in_the_first_step_is_that_of_the_user(tmp_path):
    for code, printed in ended(started("TF_CONFIG", tmp_path, "arrays", 2, OWN_STEP="1", FAILS="1")):
        assert code != 0
        assert "ArithmeticError: an error in the step" in printed


def test_workers_with_other_models_are_refused_by_all(tmp_path):
    for code, printed in ended(started("TF_CONFIG", tmp_path, "arrays", 2, WIDTH="3,4")):
        assert code != 0
        assert "Expected the same program on all workers" in printed
        assert "Received: worker 1 at 127.0.0.1:" in printed


def test_workers_with_other_optimizers_are_refused_by_all(tmp_path):
    for code, printed in ended(started("TF_CONFIG", tmp_path, "arrays", 2, MOMENTUM="0.9,0.5")):
        assert code != 0
        assert re.search(r"Received: worker 1 at \S+ with another layer, optimizer or argument of `compile", printed)


def test_steps_that_are_not_compiled_are_refused_by_all(tmp_path):
    for code, printed in ended(started("TF_CONFIG", tmp_path, "arrays", 2, EAGERLY="1")):
        assert code != 0
        assert "Expected a compiled step, the same program on all workers." in printed
        assert "Received: run_eagerly=True" in printed


def test_a_killed_worker_is_named_nobody_waits_for_ever_and_all_resume_from_the_backup(tmp_path):
    given = {"BACKUP": "1", "EPOCHS": "3", "DROPOUT": "0"}  # of whose noise Keras' backup has no state
    soon = {"MULTIGPU_ANSWER_SECONDS": "10", "ENDS": ",kill,"}
    found = ended(started("TF_CONFIG", tmp_path, "dataset", 3, **soon, **given), timeout=300)
    assert found[1][0] == -signal.SIGKILL
    for code, printed in (found[0], found[2]):
        assert code != 0
        assert "WorkerLostError: Expected all 3 workers to train together." in printed
        assert "Received: no answer from worker 1 at 127.0.0.1:" in printed
    not_killed = one(tmp_path, "dataset", 3, EPOCHS="3", DROPOUT="0")
    for code, printed in ended([not_killed, *started("TF_CONFIG", tmp_path, "dataset", 3, **given)]):
        assert code == 0, printed
    assert [line.split(",")[0] for line in (tmp_path / "0.csv").read_text().splitlines()[1:]] == ["1", "2"]
    expected = keras.saving.load_model(tmp_path / "one.keras")
    for worker in range(3):
        resumed = keras.saving.load_model(tmp_path / f"{worker}.keras")
        for variables in ("variables", "optimizer.variables"):
            for pair in zip(*(operator.attrgetter(variables)(model) for model in (resumed, expected)), strict=True):
                np.testing.assert_allclose(*map(np.asarray, pair), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("number", [0, 1])
def test_nobody_waits_for_a_worker_that_raised_an_error(number, tmp_path):
    """If it is the chief, JAX ends the others, with its own message."""
    ends = ",".join("raise" if worker == number else "" for worker in range(3))
    found = ended(started("TF_CONFIG", tmp_path, "arrays", 3, ENDS=ends, MULTIGPU_ARRIVE_SECONDS="300"), timeout=150)
    assert all(code != 0 for code, _ in found)
    assert found[number][0] == 1
    assert "OSError: no space left" in found[number][1]
    for _, printed in found[1:] if number == 0 else [found[0], found[2]]:
        named = "JAX distributed service detected fatal errors", "Received: no answer from worker 1 at 127.0.0.1:"
        assert named[number] in printed


def test_a_session_goes_on_after_an_error(monkeypatch):
    monkeypatch.setattr(sys, "last_value", OSError(), raising=False)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    monkeypatch.setattr(os, "_exit", lambda code: pytest.fail("ended"))
    _leave_after_an_error()


@pytest.mark.parametrize("how", ["stop", "function"])
def test_all_stop_where_a_callback_of_one_does(how, tmp_path):
    found = ended(started("TF_CONFIG", tmp_path, "arrays", 2, ENDS=f",{how}", VERBOSE="2"))
    for worker, (code, printed) in enumerate(found):
        assert code == 0, printed
        assert ("loss: " in printed) == (worker == 0)  # only the chief prints
    for actual, expected in zip(values(tmp_path, 0), values(tmp_path, 1), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_sparse_rows_of_a_workers_own_are_refused():
    x = sparse.BCOO.fromdense(np.eye(4, dtype="float32"))
    with pytest.raises(ValueError, match=r"Expected dense arrays in a worker's own rows.* Received: a sparse array"):
        _joint((x, np.ones(4)), (4, 4), layout_of(Plan(("CPU:0",), "CPU:0")))
