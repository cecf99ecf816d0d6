"""Tests in Python with the lowest and the newest versions of what the package needs, and on Debian 13.

    python .ci/test_versions.py [NAME ...]               in these ENVIRONMENTS, or in all
    python .ci/test_versions.py --here tensorflow|jax    with what this Python has

With TensorFlow they are the quick tests, with JAX those of `make jax`. The newest JAX needs the Python of Debian 13.
Environments are kept in ~/.cache/multigpu/versions, or in the folder TEST_VERSIONS. What pip cannot install is an
error. None of these tests needs R, whose reticulate on Debian 12 does not know numpy 2: `make test-debian13` has that.
"""

import fcntl
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path(os.environ.get("TEST_VERSIONS") or Path.home() / ".cache" / "multigpu" / "versions")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NEEDED = PROJECT["dependencies"]
ON_JAX = [*PROJECT["optional-dependencies"]["jax"], *NEEDED[1:]]  # in place of TensorFlow
PACKAGES = [requirement.split(">=")[0] for requirement in [*NEEDED, *ON_JAX[:1]]]
ENVIRONMENTS = {
    "lowest": [f"{requirement.replace('>=', '==')}.*" for requirement in NEEDED],
    "newest": PACKAGES[:-1],
    "debian13": PACKAGES,  # in which .ci/test-debian13 installs them
    "jax-lowest": [f"{requirement.replace('>=', '==')}.*" for requirement in ON_JAX],
    "jax-debian13": PACKAGES,
}
TOOLS = ["pytest", "pytest-xdist", "hypothesis", "pyyaml"]
QUICK = [path for path in (ROOT / "tests").rglob("test_*.py") if "pytest.mark.quick" in path.read_text()]
TESTS = {
    "tensorflow": ["-n", "2", "--dist", "loadfile", "-m", "quick and not soak", *QUICK],
    "jax": ["-m", "not soak", "tests/exactness", "tests/engines/jax"],
}


def main() -> None:
    """Runs what is asked for, one environment after the other."""
    asked = sys.argv[1:]
    if asked[:1] == ["--here"]:
        print(json.dumps(run_tests(asked[1])))
        return
    rows = [run_in(name) for name in asked or ENVIRONMENTS]
    print("", *table(rows), sep="\n")
    problems = [problem for row in rows for problem in problems_of(row)]
    sys.exit("\n".join(problems) or None)


def run_in(name: str) -> dict:
    """The tests in one environment: what was found there."""
    engine = "jax" if name.startswith("jax") else "tensorflow"
    print(f"{name}: {' '.join(ENVIRONMENTS[name])}", flush=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two checkouts would disturb each other
        start = [ROOT / ".ci" / "test-debian13"] if "debian13" in name else [prepared(name), __file__, "--here"]
        done = subprocess.run([*start, engine], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    *said, last = done.stdout.splitlines() or [""]
    if done.returncode:
        sys.exit(f"{done.stdout}\n{name}: exit status {done.returncode}")
    print(*said, sep="\n", flush=True)
    return {"environment": name, **json.loads(last)}


def prepared(name: str) -> Path:
    """The Python of a virtual environment that has the versions of this environment, and what the tests need."""
    python = FOLDER / name / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", python.parents[1]], check=True)
    pip = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--upgrade"]
    subprocess.run([*pip, "--upgrade-strategy", "eager", *ENVIRONMENTS[name], *TOOLS], check=True)
    return python


def run_tests(engine: str) -> dict:
    """Runs an engine's tests with this Python; versions, how many passed and what did not, and seconds."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = ["-p", "no:cacheprovider", f"--junitxml={report}", *TESTS[engine]]
        environment = {**os.environ, "KERAS_BACKEND": engine, "PYTHONPATH": str(ROOT / "python")}
        command = [sys.executable, "-m", "pytest", *options]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if not report.exists():
            sys.exit(done.stdout + done.stderr)
        suite = ElementTree.parse(report).find("testsuite").attrib
    others = sum(int(suite[kind]) for kind in ("errors", "failures", "skipped"))
    print(done.stdout if others else done.stdout.splitlines()[-1])
    return {
        "Python": platform.python_version(),
        **{name: version_of(name) for name in PACKAGES},
        "passed": int(suite["tests"]) - others,
        "others": others,
        "seconds": round(time.monotonic() - start),
        "newer": newer_on_pypi(),
    }


def version_of(package: str) -> str:
    """Its version, or a dash where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "-"


def newer_on_pypi() -> list[str]:
    """Those of the packages of which PyPI has a newer version for this Python than is installed."""
    command = [sys.executable, "-m", "pip", "list", "--outdated", "--format=json", "--disable-pip-version-check"]
    listed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return [f"{each['name']} {each['latest_version']}" for each in listed if each["name"] in PACKAGES]


def table(rows: list[dict]) -> list[str]:
    """The rows in Markdown."""
    columns = ["environment", "Python", *PACKAGES, "passed", "others", "seconds"]
    cells = [[str(row[column]) for column in columns] for row in rows]
    return [f"| {' | '.join(each)} |" for each in [columns, ["---"] * len(columns), *cells]]


def problems_of(row: dict) -> list[str]:
    """What is wrong: tests that did not pass; versions that nobody asked for, or that the package does not know."""
    name, problems = row["environment"], []
    if row["others"] or not row["passed"]:
        problems.append(f"{name}: {row['others']} tests failed or were skipped, {row['passed']} passed.")
    if "lowest" not in name and row["newer"]:
        print(f"{name}: PyPI has newer ones, which the others do not allow: {', '.join(row['newer'])}")
    for package, (lowest, newest) in tested_versions().items():
        wanted = lowest if "lowest" in name else newest
        if row[package] not in (wanted, "-"):
            problems.append(
                f"{name}: Expected {package} {wanted}, as its table of private names has it. "
                f"Received: {row[package]}. If the tests passed, write it there."
            )
    return problems


def tested_versions() -> dict[str, tuple[str, str]]:
    """The lowest and the newest version of each package, read without importing what imports Keras."""
    texts = [path.read_text() for path in (ROOT / "python" / "multigpu").rglob("*_names.py")]
    fields = [dict(re.findall(r'^    (package|lowest|newest)="(.+)",$', text, flags=re.MULTILINE)) for text in texts]
    return {field["package"]: (field["lowest"], field["newest"]) for field in fields if field}


if __name__ == "__main__":
    main()
