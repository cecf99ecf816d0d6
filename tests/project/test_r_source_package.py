"""The R package carries the Python package, wherever it is built or installed from: no symbolic link has to survive."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
TRACKED_BY_GIT = [
    "DESCRIPTION",
    "NAMESPACE",
    "LICENSE",
    "R",
    "man",
    "inst/rstudio",
    "python",
    ".Rbuildignore",
    ".Rinstignore",
]


@pytest.fixture
def archive(tmp_path):
    """The repository's R package as an archive of it has them: no git, no links, nothing installed."""
    folder = tmp_path / "multigpu"
    for name in [*TRACKED_BY_GIT, "configure", "cleanup"]:
        source, target = PROJECT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    return folder


def r_cmd(*words, folder):
    return subprocess.run(
        ["R", "CMD", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "R_DEFAULT_PACKAGES": "NULL"},
    )


def test_the_source_package_contains_the_python_package_once_and_without_compiled_files(archive, tmp_path):
    built = r_cmd("build", "--no-build-vignettes", "multigpu", folder=tmp_path)
    assert built.returncode == 0, built.stderr
    (tarball,) = tmp_path.glob("multigpu_*.tar.gz")
    with tarfile.open(tarball) as files:
        names = files.getnames()
    sources = {f"multigpu/inst/{path.relative_to(PROJECT)}" for path in PROJECT.glob("python/**/*.py")}
    assert {name for name in names if name.endswith((".py", ".pyc"))} == sources
    assert "multigpu/configure" not in names  # nothing is left to copy


def test_the_repository_is_installed_with_the_python_package(archive, tmp_path):
    library = tmp_path / "library"
    library.mkdir()
    installed = r_cmd("INSTALL", f"--library={library}", "multigpu", folder=tmp_path)
    assert installed.returncode == 0, installed.stderr
    assert (library / "multigpu" / "python" / "multigpu" / "py.typed").exists()
