"""Find the requirements of R in this process that are missing, and how to install them."""

import importlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys

from multigpu.base.refusal import refuse

RPY2_FOR_OLD_R = "rpy2>=3.5.17,<3.6"  # newer versions do not load with R before 4.5
RPY2_FOR_NEW_R = "rpy2>=3.6.9,<3.7"


def check_r_and_rpy2() -> None:
    """Raise an ImportError without R, or without an rpy2 that fits it."""
    r_version = version_of_r()
    if r_version is None:
        raise refuse(
            "R 4.1 or later, on PATH or at R_HOME",
            "none",
            "Install R from https://cran.r-project.org, on Debian or Ubuntu with `apt-get install r-base-core`.",
            error=ImportError,
        )
    cure = f"Run `{sys.executable} -m pip install '{rpy2_for(r_version)}'` and restart Python."
    try:
        rpy2_version = importlib.metadata.version("rpy2")
    except importlib.metadata.PackageNotFoundError:
        raise refuse("the package rpy2, which hosts R in Python", "none", f"{cure}", error=ImportError) from None
    try:
        importlib.import_module("rpy2.rinterface")
    except Exception as error:  # rpy2 is not found, or R lacks a symbol, or a library is missing
        raise refuse(
            f"an rpy2 that fits R {r_version}",
            f"rpy2 {rpy2_version}, which does not load: {error}",
            cure,
            error=ImportError,
        ) from error


def check_packages(reticulate: str, multigpu: str, wanted: str, libraries: str) -> None:
    """Raise an ImportError if R packages are missing or too old. "" is the version of a missing one."""
    if is_before(reticulate, "1.28"):
        raise refuse(
            "the R package reticulate 1.28 or later",
            f"{reticulate or 'none'}, in {libraries}",
            'In R, run `install.packages("reticulate")`.',
            error=ImportError,
        )
    if multigpu != wanted:
        raise refuse(
            f"the R package multigpu {wanted}",
            f"{multigpu or 'none'}, in {libraries}",
            "In a clone of this repository, run `R CMD INSTALL .`, or set R_LIBS to the library that has it.",
            error=ImportError,
        )


def version_of_r() -> str | None:
    """Return the version of the R that rpy2 finds, without starting R."""
    home = os.environ.get("R_HOME")
    command = os.path.join(home, "bin", "R") if home else shutil.which("R")
    if command is None or not os.path.exists(command):
        return None
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"R version (\S+)", done.stdout)
    return found.group(1) if found else None


def rpy2_for(r_version: str) -> str:
    """Return the requirement with which pip installs rpy2 for this R."""
    return RPY2_FOR_OLD_R if is_before(r_version, "4.5") else RPY2_FOR_NEW_R


def is_before(version: str, other: str) -> bool:
    """Return whether a version is older than another. "" is older than all."""
    return _numbers(version) < _numbers(other)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
