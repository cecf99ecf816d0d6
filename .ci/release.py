"""Makes the files of a release of the last commit in `dist`, checks them, and trains with each, installed anew.

    make release

Everything is made from a copy of what git has, so that nothing else that lies about gets in. The R tarball is built,
checked and tried out by `check-r` and `test-tarball`. Nothing is published.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

from one_version import left_to_do, one_version

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
BIN = Path(sys.executable).parent


def main() -> None:
    """All of it, or an exit status that is not 0."""
    start = time.monotonic()
    print("Left to do before publishing:", *(left_to_do(ROOT) or ["nothing: the form is filled in"]), sep="\n  ")
    version = one_version(ROOT)
    check_clean()
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    with tempfile.TemporaryDirectory() as folder:
        source = exported(Path(folder) / "multigpu")
        check_forms(source)
        wheel, sdist = built(source, Path(folder))
        check_contents(wheel, sdist, version)
        for package in (wheel, sdist):
            train_with(package)
        tarball = r_package(source, Path(folder))
    print(f"\n{(time.monotonic() - start) / 60:.0f} minutes. In {DIST}:\n")
    print("| file | bytes | sha256 |", "|---|---|---|", *map(row, (wheel, sdist, tarball)), sep="\n")


def run(*command: object, **options: object) -> str:
    """Runs a program to its end, and says what it said if it failed."""
    done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode:
        sys.exit(
            f"{done.stdout}\nExpected exit status 0. Received: {done.returncode}, of {' '.join(map(str, command))}"
        )
    return done.stdout


def step(text: str) -> None:
    """Says what is done next."""
    print(f"\n{text}", flush=True)


def check_clean() -> None:
    """Refuses to make a release of what is not in git."""
    changed = run("git", "status", "--porcelain", cwd=ROOT)
    if changed:
        sys.exit(f"Expected all changes to be committed. Received:\n{changed}Commit or remove them.")


def exported(folder: Path) -> Path:
    """A copy of the last commit."""
    folder.mkdir()
    archive = folder.with_suffix(".tar")
    run("git", "archive", f"--output={archive}", "HEAD", cwd=ROOT)
    run("tar", "--extract", f"--file={archive}", f"--directory={folder}")
    return folder


def check_forms(source: Path) -> None:
    """CITATION.cff and the workflows are in the form that those have who read them."""
    step("CITATION.cff and workflows, by their schemas")
    check = BIN / "check-jsonschema"
    print(run(check, "--builtin-schema", "vendor.citation-file-format", source / "CITATION.cff"), end="")
    workflows = (source / ".github" / "workflows").glob("*")
    print(run(check, "--builtin-schema", "vendor.github-workflows", *workflows), end="")


def built(source: Path, folder: Path) -> tuple[Path, Path]:
    """Wheel and sdist. The wheel is made from the sdist, and is that which the sources give, byte by byte."""
    step("wheel and sdist")
    committed = run("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": committed}
    run(BIN / "python", "-m", "build", "--outdir", DIST, source, env=environment)
    run(BIN / "python", "-m", "build", "--wheel", "--outdir", folder / "direct", source, env=environment)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    (direct,) = (folder / "direct").glob("*.whl")
    if wheel.read_bytes() != direct.read_bytes():
        sys.exit(f"Expected the same wheel from {sdist.name} as from the sources. Received: another one.")
    return wheel, sdist


def check_contents(wheel: Path, sdist: Path, version: str) -> None:
    """What has to be in the files, and what must not."""
    step("twine check, check-wheel-contents, names of files")
    print(run(BIN / "twine", "--no-color", "check", "--strict", wheel, sdist), end="")
    print(run(BIN / "check-wheel-contents", wheel), end="")
    in_wheel = zipfile.ZipFile(wheel).namelist()
    with tarfile.open(sdist) as files:
        in_sdist = [name.split("/", 1)[-1] for name in files.getnames()]
    of_wheel = f"multigpu-{version}.dist-info/"
    others = [name for name in in_wheel if not name.startswith(("multigpu/", of_wheel)) or "test" in name]
    expected = {"multigpu/py.typed", f"{of_wheel}licenses/LICENSE.md", f"{of_wheel}licenses/THIRD-PARTY.md"}
    in_both = {"LICENSE.md", "THIRD-PARTY.md", "tests/conftest.py", "python/multigpu/py.typed"}
    missing = [*(expected - set(in_wheel)), *(in_both - set(in_sdist))]
    if others or missing:
        sys.exit(
            f"Expected nothing but the package, with licences and py.typed. Left over: {others}; missing: {missing}"
        )


def train_with(package: Path) -> None:
    """Installs a file into an empty environment with an empty HOME, far from the clone, and trains there."""
    step(f"{package.name}, newly installed")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = as_new_user(folder)
        run(sys.executable, "-m", "venv", folder / "venv", env=environment)
        python = folder / "venv" / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", package, cwd=folder, env=environment)
        shutil.copy(ROOT / ".ci" / "train_installed.py", folder)
        print(run(python, "-I", "train_installed.py", cwd=folder, env=environment).splitlines()[-1])
        run(python, "-I", "-m", "multigpu", "devices", cwd=folder, env=environment)


def as_new_user(folder: Path) -> dict[str, str]:
    """An environment in which nothing is set that would lead to the clone; pip keeps what it has downloaded."""
    cache = run(BIN / "python", "-m", "pip", "cache", "dir").strip()
    ours = ("PYTHON", "RETICULATE", "R_LIBS", "VIRTUAL_ENV", "MAKE", "XDG_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    home = folder / "home"
    home.mkdir()
    devices = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    return {**kept, **devices, "HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin", "PIP_CACHE_DIR": cache}


def r_package(source: Path, folder: Path) -> Path:
    """The R tarball, after R CMD check, installed and tried out."""
    step("R tarball, R CMD check --as-cran")
    run(".ci/check-r", folder / "r", cwd=source)
    (built,) = (folder / "r").glob("multigpu_*.tar.gz")
    tarball = Path(shutil.copy(built, DIST))
    print(*(folder / "r" / "multigpu.Rcheck" / "00check.log").read_text().splitlines()[-2:], sep="\n")
    step(f"{tarball.name}, newly installed")
    cache = run(BIN / "python", "-m", "pip", "cache", "dir").strip()
    environment = {**os.environ, "TARBALL_CACHE": cache}
    print(run(".ci/test-tarball", tarball, cwd=source, env=environment).splitlines()[-1])
    return tarball


def row(path: Path) -> str:
    """A line of the table."""
    return f"| {path.name} | {path.stat().st_size:,} | {hashlib.sha256(path.read_bytes()).hexdigest()} |"


if __name__ == "__main__":
    main()
