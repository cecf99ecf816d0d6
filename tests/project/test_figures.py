"""The first table of the benchmarks is computed from measurements, and does not call reached what is not."""

import importlib
import json
import sys
from pathlib import Path

import pytest


@pytest.fixture
def figures(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "bench")
    yield importlib.import_module("figures")
    for name in (path.stem for path in (Path(__file__).parents[2] / "bench").glob("*.py")):
        sys.modules.pop(name, None)


def times(ours: float) -> dict:
    row = {"work": "conv net", "N": 8, "ms": {"one device": 100.0, "multigpu": ours, "MirroredStrategy": 200.0}}
    return {"step_time": [row]}


@pytest.mark.parametrize(
    ("ours", "cells"),
    [(101.0, "1.01 | yes, and the aim"), (104.0, "1.04 | yes"), (126.0, "1.26 | no, off by 20.00%")],
)
def test_a_figure_is_compared_with_its_targets(figures, ours, cells):
    table = figures.table(times(ours))
    assert f"| CPU s per step ÷ one device, conv net, N = 8 | ≤ 1.05 | 1.02 | {cells} |" in table
    assert ("Not reached, and why" in table) == (ours > 105)


def test_what_was_not_measured_is_not_called_reached(figures):
    rows = figures.table({}).splitlines()[2:]
    assert len(rows) == 14
    assert all(row.endswith("| not measured | – |") for row in rows)


def test_a_reason_waits_until_all_that_it_is_read_from_is_measured(figures):
    measured = {"embedding": [{"way": "multigpu", "ms": {"small": 1.0, "large": 1.5}}]}
    assert "| 1.5 | no, off by 25.00% |" in figures.table(measured)


def test_the_table_can_be_written_after_each_row_that_is_measured(figures):
    measured = json.loads((Path(figures.__file__).parent / "measured.json").read_text())["rows"]
    for benchmark, rows in measured.items():
        for count in range(len(rows)):
            table = figures.table({**measured, benchmark: rows[:count]})
            assert len(table.split("\n\n")[0].splitlines()) == 2 + len(figures.FIGURES)


def test_each_benchmark_has_a_table_after_each_row_that_is_measured(figures):
    measured = json.loads((Path(figures.__file__).parent / "measured.json").read_text())["rows"]
    for name, rows in measured.items():
        benchmark = importlib.import_module(name)
        for count in range(1, len(rows) + 1):
            assert benchmark.table(rows[:count]).startswith("| ")


def test_memory_is_estimated_and_measured(figures):
    measured = importlib.import_module("estimated_memory").measure("MLP 4×1024", 8)
    assert all(value > 0 for value in measured.values())


def test_a_speed_up_has_to_be_at_least_its_target(figures):
    def measured(two: float) -> dict:
        return {"speedup": [{"load": 0.1, "cores": 2, "ms": {"one device": 100.0, "multigpu": two}}]}

    assert "| 2 | yes, and the aim |" in figures.table(measured(50.0))
    assert "| 1.25 | no, off by 30.56% |" in figures.table(measured(80.0))


def test_the_section_of_the_soak_counts_answers_and_tells_failures(figures):
    section = importlib.import_module("soak.section")
    trained = [{"number": 0, "answer": "same", "kinds": ["gru"]}, {"number": 1, "answer": "off", "why": "0.1 for 0.2"}]
    point = {"done": 10, "KB": 1024, "objects": 7, "descriptors": 6, "threads": 8}
    grown = {"number": 0, "answer": "measured", "work": "steps", "way": "3 devices", "points": [point]}
    grown["points"] = [point, {**point, "done": 20, "KB": 2048}]
    rows = {"trainings": trained, "memory": [grown], "kills": [{"number": 0, "answer": "whole", "in a save": 1}]}
    soak = {
        "seed": 3,
        "without": [],
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


def test_a_model_of_the_soak_is_the_same_each_time(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "bench" / "soak")
    draw = importlib.import_module("draw")
    made = [draw.Draw(3, number) for number in (17, 17, 18)]
    first, again, other = ([draw.number(0, 10**9) for _ in range(5)] for draw in made)
    assert first == again != other
    without = draw.Draw(3, 17, without=["b"])
    assert {without.kind({"a": 1, "b": 2}) for _ in range(20)} == {1}
    assert not any(without.chance(1, "b") for _ in range(5))
    sys.modules.pop("draw")
