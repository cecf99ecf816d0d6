"""Where the version is written down, and what is a form that nobody has filled in yet."""

import re
from pathlib import Path

VERSIONS = {
    "python/multigpu/base/version.py": r'^__version__ = "(.+)"$',  # which pyproject.toml reads
    "DESCRIPTION": r"^Version: (.+)$",
    "NEWS.md": r"\A# multigpu (.+)$",
    "CITATION.cff": r"^version: (.+)$",
}
FORM = {
    "DESCRIPTION": ("GIVEN NAME", "FAMILY NAME", "maintainer@example.org", "OWNER"),
    "pyproject.toml": ("GIVEN NAME", "FAMILY NAME", "maintainer@example.org", "OWNER"),
    "CITATION.cff": ("GIVEN NAME", "FAMILY NAME", "maintainer@example.org", "OWNER"),
}


def versions(root: Path) -> dict[str, str]:
    """The version that each file has."""
    found = {name: re.search(form, (root / name).read_text(), re.MULTILINE) for name, form in VERSIONS.items()}
    return {name: match[1] if match else "none" for name, match in found.items()}


def one_version(root: Path) -> str:
    """The version, if all files have the same."""
    found = versions(root)
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{version} in {name}" for name, version in found.items())
        raise SystemExit(f"Expected one version. Received: {listed}.")
    return found["DESCRIPTION"]


def left_to_do(root: Path) -> list[str]:
    """What is still to be filled in before anything is published."""
    texts = {name: (root / name).read_text() for name in FORM}
    left = {name: [word for word in words if word in texts[name]] for name, words in FORM.items()}
    return [f"{name}: {', '.join(words)}" for name, words in left.items() if words]
