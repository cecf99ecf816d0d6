"""What R in this process needs and is not there is named, with its cure. R is not started here."""

import contextlib
import importlib
import importlib.metadata
import sys

import pytest

import multigpu
from multigpu.embedded_r import RError, run
from multigpu.r.embedded import requirements, session


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with an R of one's choice, or none."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("R_HOME", raising=False)

    def install_r(version):
        (tmp_path / "R").write_text(f"#!/bin/sh\necho 'R version {version} (2022-10-31)'\n")
        (tmp_path / "R").chmod(0o755)

    return install_r


def test_no_r(machine):
    with pytest.raises(ImportError) as refused:
        run("1")
    assert str(refused.value) == (
        "Expected R 4.1 or later, on PATH or at R_HOME. Received: none. Install R from https://cran.r-project.org, on "
        "Debian or Ubuntu with `apt-get install r-base-core`."
    )


@pytest.mark.parametrize(
    ("r", "cure"),
    [
        ("4.2.2", "rpy2>=3.5.17,<3.6"),
        ("4.4.3", "rpy2>=3.5.17,<3.6"),
        ("4.5.0", "rpy2>=3.6.9,<3.7"),
        ("5.0.0", "rpy2>=3.6.9,<3.7"),
    ],
)
def test_no_rpy2(machine, monkeypatch, r, cure):
    def not_found(name):
        raise importlib.metadata.PackageNotFoundError(name)

    machine(r)
    monkeypatch.setattr(importlib.metadata, "version", not_found)
    with pytest.raises(ImportError) as refused:
        run("1")
    assert str(refused.value) == (
        "Expected the package rpy2, which hosts R in Python. Received: none. "
        f"Run `{sys.executable} -m pip install '{cure}'` and restart Python."
    )


def test_an_rpy2_that_does_not_fit_r(machine, monkeypatch):
    def does_not_load(name):
        raise OSError("libR.so: undefined symbol: R_ParentEnv")

    machine("4.2.2")
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "3.6.9")
    monkeypatch.setattr(importlib, "import_module", does_not_load)
    with pytest.raises(ImportError) as refused:
        run("1")
    assert str(refused.value) == (
        "Expected an rpy2 that fits R 4.2.2. Received: rpy2 3.6.9, which does not load: libR.so: undefined symbol: "
        f"R_ParentEnv. Run `{sys.executable} -m pip install 'rpy2>=3.5.17,<3.6'` and restart Python."
    )


@pytest.mark.quick
@pytest.mark.parametrize(
    ("reticulate", "multigpu", "message"),
    [
        ("", "", "Expected the R package reticulate 1.28 or later. Received: none, in /r. In R, run "),
        ("1.27", "0.1.0", "Expected the R package reticulate 1.28 or later. Received: 1.27, in /r. In R, run "),
        ("1.28", "", "Expected the R package multigpu 0.1.0. Received: none, in /r. In a clone of this repository"),
        ("1.41.0", "0.0.9", "Expected the R package multigpu 0.1.0. Received: 0.0.9, in /r. In a clone of this"),
    ],
)
def test_packages_of_r(reticulate, multigpu, message):
    with pytest.raises(ImportError) as refused:
        requirements.check_packages(reticulate, multigpu, "0.1.0", "/r")
    assert str(refused.value).startswith(message)


def test_packages_of_r_that_will_do():
    for reticulate in ("1.28", "1.41.0", "1.46.0.9000", "2.0"):
        requirements.check_packages(reticulate, "0.1.0", "0.1.0", "/r")


class StandIn:
    """An R that gives these replies in turn."""

    def __init__(self, *replies):
        self._replies = iter(replies)
        self.interrupts = self

    def evaluate(self, code):
        return next(self._replies)

    def shared_with_r(self):
        return contextlib.nullcontext()


def test_an_r_package_that_does_not_load(monkeypatch):
    versions = f"1.41\n{multigpu.__version__}\n/library"
    monkeypatch.setattr(requirements, "check_r_and_rpy2", lambda: None)
    monkeypatch.setattr(session, "_bare_r", lambda: StandIn(versions, None))
    with pytest.raises(RError, match=r"^The R package multigpu does not load\. The text that R printed gives"):
        session.started_r.__wrapped__()


def test_an_r_that_cannot_answer(monkeypatch):
    monkeypatch.setattr(session, "started_r", lambda: StandIn(None))
    with pytest.raises(RError, match=r"^R could not answer\. The text that R printed gives the reason\.$"):
        run("1")
