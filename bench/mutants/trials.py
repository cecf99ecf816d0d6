"""Which test runs which line, and what the tests say to a copy of the repository in which one file has a defect."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from coverage import CoverageData

from bench.mutants.kinds import Mutant

ROOT = Path(__file__).parents[2]
DATA = ROOT / ".venv" / "coverage"
SECONDS = 1800  # after which a run hangs: that is noticed, too
AT_FIRST, AT_MOST = 45.0, 240.0  # seconds of tests that run the line: tried first, and in all
SETTINGS = """
[run]
source_pkgs = multigpu
context = ${PYTEST_CURRENT_TEST}
parallel = true
data_file = ${COVERAGE_FOLDER}/data
"""


def measure_coverage() -> None:
    """Runs all tests once, and writes down which test runs which line, also in the processes that it starts."""
    shutil.rmtree(DATA, ignore_errors=True)
    DATA.mkdir(parents=True)
    settings = DATA / "settings"
    settings.write_text(SETTINGS)
    environ = {**os.environ, "COVERAGE_FOLDER": str(DATA), "PYTHONPATH": str(ROOT)}
    environ["COVERAGE_PROCESS_START"] = str(settings)  # read anew by each process, for the test that starts it
    environ["FORKED_PYTHON"] = "no"  # a process that is forked would run the lines of the test that forked the first
    coverage, rc = [sys.executable, "-m", "coverage"], f"--rcfile={settings}"
    tests = ["pytest", "-n", "3", "--dist", "loadfile", "--no-loadscope-reorder", "-m", "not soak"]
    tests += ["-p", "bench.mutants.pytest_contexts"]
    subprocess.run([*coverage, "run", rc, "-m", *tests], cwd=ROOT, env=environ, check=True)
    subprocess.run([*coverage, "combine", "-q", rc], cwd=DATA, env=environ, check=True)


def collected() -> set[str]:
    """The tests of `make test`, as they are now."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-n", "0", "-m", "not soak and not pages"]
    return set(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines())


class Coverage:
    """The tests that run a line, and how long each of them takes."""

    def __init__(self) -> None:
        self._data = CoverageData(str(DATA / "data"))
        self._data.read()
        lines = "".join(file.read_text() for file in DATA.glob("seconds-*")).splitlines()
        there = collected()  # some may be gone, or have moved to `make soak`, since the lines were written down
        self._seconds = {test: seconds for test, seconds in map(json.loads, lines) if test in there}
        if not self._seconds:
            raise FileNotFoundError(f"Expected tests and their lines in {DATA}, as `--coverage` leaves them.")

    def has(self, test: str) -> bool:
        """Whether a test is among them."""
        return test in self._seconds

    def tests(self, path: Path, line: int) -> tuple[list[str], list[str]]:
        """The tests that run a line of the package: those tried first, and the others.

        First come those of the line's room, the fastest ones first. What tests of a file share is run by the first of
        them: so the others of its file come last.
        """
        copies = [name for name in self._data.measured_files() if name.endswith(f"multigpu/{path}")]  # one is R's copy
        contexts = [context for name in copies for context in self._data.contexts_by_lineno(name).get(line, [])]
        tests = {context.split("|")[-1].rsplit(" (", 1)[0] for context in contexts} & self._seconds.keys()
        files = {test.split("::")[0] for test in tests}
        beside = {test for test in self._seconds if test.split("::")[0] in files} - tests
        first, others, seconds = [], [], 0.0

        def turn(test: str) -> tuple[bool, float]:
            return not test.startswith(f"tests/{path.parts[0]}/"), self._seconds[test]

        for test in [*sorted(tests, key=turn), *sorted(beside, key=turn)]:
            seconds += self._seconds[test]
            if seconds <= AT_FIRST or not first:
                first.append(test)
            elif seconds <= AT_MOST:
                others.append(test)
        return first, others


class Trials:
    """A copy of the repository, for one defect after the other."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._folder = tempfile.TemporaryDirectory()
        self._root = Path(self._folder.name) / "multigpu"
        tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in tracked.rstrip("\0").split("\0"):
            (self._root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, self._root / name, follow_symlinks=False)
        (self._root / ".venv").symlink_to(ROOT / ".venv")
        for command in (["git", "init", "-q"], ["git", "add", "--all"]):  # some tests ask what is tracked
            subprocess.run(command, cwd=self._root, check=True)

    def answer(self, path: Path, mutant: Mutant, before: str = "") -> dict[str, Any]:
        """What the tests say to a defect, and which of them it was that failed; tries first the one of `before`."""
        file = self._root / "python" / "multigpu" / path
        source = file.read_bytes()
        first, others = self._coverage.tests(path, mutant.line)
        room = f"tests/{path.parts[0]}" if len(path.parts) > 1 else "tests/project"
        file.write_bytes(mutant.of(source))
        try:
            for chosen in ([before] if self._coverage.has(before) else [], first or [room], others):
                failed = chosen and self._failed(chosen)
                if failed:
                    return {"answer": "killed", "test": failed}
            if not first and not self._passes_in_r():
                return {"answer": "killed", "test": "in R"}
        finally:
            file.write_bytes(source)
        return {"answer": "survived", "ran": len(first) + len(others)}

    def _passes_in_r(self) -> bool:
        """Whether the tests in R pass, with the package of the copy."""
        library = self._root.parent / "r"
        library.mkdir(exist_ok=True)
        environ = {**os.environ, "R_LIBS": str(library), "RETICULATE_PYTHON": sys.executable, "NOT_CRAN": "true"}
        tests = "testthat::test_dir('tests/testthat', package = 'multigpu', load_package = 'installed')"
        for command in (["R", "CMD", "INSTALL", f"--library={library}", "."], ["Rscript", "-e", tests]):
            if subprocess.run(command, cwd=self._root, env=environ, capture_output=True, check=False).returncode:
                return False
        return True

    def _failed(self, tests: list[str]) -> str:
        """The first test that fails, if one does."""
        listed = self._root.parent / "tests"
        listed.write_text("\n".join(tests))
        paths = [str(self._root / path) for path in ("tests/support/imports", "python")]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, "-m", "pytest", "-x", "-n", "0", "-p", "no:cacheprovider", "--tb=no", "-rfE"]
        try:
            ended = subprocess.run(
                [*command, f"@{listed}"], cwd=self._root, env=environ, capture_output=True, text=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            return "hangs"
        if ended.returncode == 0:
            return ""
        said = [line for line in ended.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return said[0].split(" - ")[0] if said else f"exit status {ended.returncode}"
