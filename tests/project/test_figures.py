"""The table of targets is computed from measurements, and does not call reached what is not."""

import importlib
import json

import pytest


@pytest.fixture
def root(pytestconfig, monkeypatch):
    """The repository, where the package `bench` is."""
    monkeypatch.syspath_prepend(pytestconfig.rootpath)
    return pytestconfig.rootpath


@pytest.fixture
def targets(root):
    return importlib.import_module("bench.lib.targets")


@pytest.fixture
def measured(root):
    return json.loads((root / "bench" / "results" / "measured.json").read_text())["rows"]


def times(ours: float) -> dict:
    row = {"workload": "conv net", "N": 8, "ms": {"one device": 100.0, "multigpu": ours, "MirroredStrategy": 200.0}}
    return {"step_time": [row]}


@pytest.mark.parametrize(
    ("ours", "cells"),
    [(101.0, "1.01 | yes, and the aim"), (104.0, "1.04 | yes"), (126.0, "1.26 | no, off by 20.00%")],
)
def test_a_measurement_is_compared_with_its_target(targets, ours, cells):
    table = targets.table(times(ours))
    assert f"| CPU s per step ÷ one device, conv net, N = 8 | ≤ 1.05 | 1.02 | {cells} |" in table
    assert ("Not reached, and why" in table) == (ours > 105)


def test_what_was_not_measured_is_not_called_reached(targets):
    rows = targets.table({}).splitlines()[2:]
    assert len(rows) == 14
    assert all(row.endswith("| not measured | – |") for row in rows)


def test_a_reason_waits_until_all_that_it_is_read_from_is_measured(targets):
    measured = {"embedding": [{"strategy": "multigpu", "ms": {"small": 1.0, "large": 1.5}}]}
    assert "| 1.50 | no, off by 25.00% |" in targets.table(measured)


def test_the_table_can_be_written_after_each_row_that_is_measured(targets, measured):
    for benchmark, rows in measured.items():
        for count in range(len(rows)):
            table = targets.table({**measured, benchmark: rows[:count]})
            assert len(table.split("\n\n")[0].splitlines()) == 2 + len(targets.TARGETS)


def test_each_benchmark_has_a_table_after_each_row_that_is_measured(measured):
    report = importlib.import_module("bench.lib.report")
    for name, rows in measured.items():
        benchmark = report.benchmark_of(name)
        for count in range(1, len(rows) + 1):
            assert benchmark.table(rows[:count]).startswith("| ")


def test_every_measurement_is_of_a_benchmark_on_the_page(root, measured):
    assert set(measured) <= set(importlib.import_module("bench.lib.report").NAMES)


def test_memory_is_estimated_and_measured(root):
    measured = importlib.import_module("bench.memory.estimate_error").measure("MLP 4×1024", 8)
    assert all(value > 0 for value in measured.values())


def test_a_speed_up_has_to_be_at_least_its_target(targets):
    def measured(two: float) -> dict:
        return {"speedup": [{"load": 0.1, "cores": 2, "ms": {"one device": 100.0, "multigpu": two}}]}

    assert "| 2.00 | yes, and the aim |" in targets.table(measured(50.0))
    assert "| 1.25 | no, off by 30.56% |" in targets.table(measured(80.0))


def test_the_section_of_the_soak_counts_answers_and_tells_failures(root):
    section = importlib.import_module("bench.soak.section")
    trained = [{"number": 0, "answer": "same", "kinds": ["gru"]}, {"number": 1, "answer": "off", "why": "0.1 for 0.2"}]
    point = {"done": 10, "KB": 1024, "objects": 7, "descriptors": 6, "threads": 8}
    grown = {"number": 0, "answer": "measured", "work": "steps", "way": "3 devices", "points": [point]}
    grown["points"] = [point, {**point, "done": 20, "KB": 2048}]
    rows = {"trainings": trained, "memory": [grown], "kills": [{"number": 0, "answer": "whole", "in a save": 1}]}
    soak = {
        "seed": 3,
        "without": [],
        "resumed": False,
        "seconds": 60,
        "environment": {"date": "", "machine": "", "versions": ""},
        "campaigns": {name: section.summary(name, of_name) for name, of_name in rows.items()},
    }
    text = section.section(json.loads(json.dumps(soak)))
    assert "| off 1, same 1 | 1 |" in text
    assert "| whole 1; 1 in a save | 0 |" in text
    assert "gru 1" in text
    assert "| steps | 3 devices | 20 | 1 | 2 | 102.4 | 7 → 7 | 6 → 6 | 8 → 8 |" in text
    assert "- trainings 1: off, 0.1 for 0.2" in text


def test_a_model_of_the_soak_is_the_same_each_time(root):
    draw = importlib.import_module("bench.soak.draw")
    made = [draw.Draw(3, number) for number in (17, 17, 18)]
    first, again, other = ([draw.number(0, 10**9) for _ in range(5)] for draw in made)
    assert first == again != other
    without = draw.Draw(3, 17, without=["b"])
    assert {without.kind({"a": 1, "b": 2}) for _ in range(20)} == {1}
    assert not any(without.chance(1, "b") for _ in range(5))


def test_xla_compiled_no_more_programs_than_devices_and_sizes_of_slices_need(root, measured):
    benchmark = importlib.import_module("bench.speed.xla_programs")
    cases = {(row["N"], row["rows"], row["batch"]): row["programs"] for row in measured["xla_programs"] if row["N"] > 1}
    assert cases == {case: benchmark.most_programs(*case) for case in cases}
    assert cases.keys() == {case for case in benchmark.CASES if case[0] > 1}


def test_the_page_of_models_is_that_of_what_was_found(root):
    page = importlib.import_module("bench.hub.page")
    results = root / "bench" / "results"
    found = json.loads((results / "models.json").read_text())
    assert (results / "MODELS.md").read_text() == page.page(found)
    rows = [{"model": "A", "verdict": "equal"}, {"model": "A/B", "verdict": "DIFFERS", "off": 7.0, "permuted": 0.1}]
    on_jax = [{"model": "A", "verdict": "not run"}, {"model": "A/int8", "verdict": "equal"}]
    engines = {"tensorflow": {"versions": "keras 3", "models": rows}, "jax": {"versions": "jax 0", "models": on_jax}}
    text = page.page(engines)
    assert "TensorFlow: keras 3. Of 2 models: 1 equal, 1 DIFFERS." in text
    assert "JAX: jax 0. Of 2 models: 1 not run, 1 equal." in text
    assert "| A | equal | not run |  |  |  | equal |" in text
    assert "| A: B | DIFFERS | 7.0 tolerances off; in another order or with other last digits, one device 0.1 |" in text
