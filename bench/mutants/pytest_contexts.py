"""A plugin of pytest: tells coverage which test runs, and writes down how long each one takes."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from coverage import Coverage

FOLDER = Path(os.environ["COVERAGE_FOLDER"])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test, with what it needs, is one context."""
    measuring = Coverage.current()
    if measuring is not None:
        measuring.switch_context(item.nodeid)
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Seconds of a test itself; the first one of a module would also get what all share."""
    if report.when == "call" and "PYTEST_XDIST_WORKER" in os.environ:
        with (FOLDER / f"seconds-{os.getpid()}").open("a") as file:
            file.write(json.dumps([report.nodeid, report.duration]) + "\n")
