"""What a release says of itself is the same wherever it is written down. `make release` builds it and tries it out."""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import multigpu

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
WORKFLOWS = {path.name: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").glob("*.yaml")}
MAKEFILE = (ROOT / "Makefile").read_text()
FIELDS = re.findall(r"^([\w@]+): *((?:.|\n(?=[ \t]))*)", (ROOT / "DESCRIPTION").read_text(), flags=re.MULTILINE)
DESCRIPTION = {name: " ".join(text.split()) for name, text in FIELDS}


def script_of_ci(name):
    """A script of `.ci` as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


one_version, test_versions = script_of_ci("one_version"), script_of_ci("test_versions")


@pytest.fixture
def copy(tmp_path):
    """The files that have the version and the form, in a folder of their own."""
    for name in one_version.VERSIONS | one_version.FORM:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def replace(path, old, new):
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


# The version and the form ---------------------------------------------------------------------------------------------


@pytest.mark.quick
def test_every_file_has_the_version_of_the_package():
    assert set(one_version.versions(ROOT).values()) == {multigpu.__version__}
    assert one_version.one_version(ROOT) == multigpu.__version__


@pytest.mark.parametrize("name", one_version.VERSIONS)
def test_another_version_in_one_file_is_refused(copy, name):
    replace(copy / name, multigpu.__version__, "9.9.9")
    with pytest.raises(SystemExit, match=rf"^Expected one version. Received: .*9\.9\.9 in {re.escape(name)}"):
        one_version.one_version(copy)


def test_the_version_of_the_wheel_is_read_from_the_package():
    assert PROJECT["dynamic"] == ["version"]
    assert PYPROJECT["tool"]["setuptools"]["dynamic"] == {"version": {"attr": "multigpu.base.version.__version__"}}


def test_what_is_not_filled_in_is_told_until_it_is(copy):
    for name in one_version.FORM:
        (copy / name).write_text("GIVEN NAME, https://github.com/OWNER/multigpu")
    assert one_version.left_to_do(copy) == [f"{name}: GIVEN NAME, OWNER" for name in one_version.FORM]
    for name in one_version.FORM:
        (copy / name).write_text("A name, https://github.com/someone/multigpu")
    assert one_version.left_to_do(copy) == []


def test_the_authors_are_the_same_everywhere():
    given, family, email = re.search(r'person\("(.*?)", "(.*?)", email = "(.*?)"', DESCRIPTION["Authors@R"]).groups()
    assert PROJECT["authors"] == [{"name": f"{given} {family}", "email": email}]
    assert CITATION["authors"] == [{"given-names": given, "family-names": family, "email": email}]


def test_the_address_is_the_same_everywhere():
    assert PROJECT["urls"]["Homepage"] == DESCRIPTION["URL"] == CITATION["repository-code"]
    assert PROJECT["urls"]["Issues"] == DESCRIPTION["BugReports"]


# What R reads ---------------------------------------------------------------------------------------------------------

ASK_R = """
news <- utils::news(package = "multigpu")
cat(unique(news$Version), unique(news$Category[nzchar(news$Category)]), citation("multigpu")$title, sep = "\\n")
"""


def test_r_reads_the_news_in_groups_and_cites_what_the_citation_file_does():
    environment = {"R_LIBS": os.path.join(sys.prefix, "r"), **os.environ}  # where `make` installs the R package
    done = subprocess.run(["Rscript", "-e", ASK_R], env=environment, capture_output=True, text=True, check=True)
    version, *groups, title = done.stdout.splitlines()
    assert version == multigpu.__version__
    assert groups == ["Added", "Changed", "Fixed"]
    assert title.replace("'", "") == CITATION["title"]
    assert PROJECT["license"] == CITATION["license"] == DESCRIPTION["License"].split(" + ")[0]


# What is needed -------------------------------------------------------------------------------------------------------


def test_python_and_r_ask_for_the_same_versions():
    extras = PROJECT["optional-dependencies"]
    asked = dict(each.split(">=") for each in [*PROJECT["dependencies"], *extras["jax"]])
    with_cuda = dict(each.split(">=") for each in [*extras["cuda"], *extras["jax-cuda"]])
    for_r = (ROOT / "R" / "python-setup.R").read_text()
    assert dict(re.findall(r'"([\w\[\]-]+)>=([\d.]+)"', for_r)) == {**asked, **with_cuda}
    assert [with_cuda[each] for each in sorted(with_cuda)] == [asked["jax"], asked["tensorflow"]]
    wanted = {"Python": PROJECT["requires-python"][2:]}
    wanted |= {name: asked[name.lower()] for name in ("TensorFlow", "JAX", "Keras")}
    assert dict(re.findall(r"(\w+) \(>= ([\d.]+)\)", DESCRIPTION["SystemRequirements"])) == wanted
    body = re.search(r"required_versions <- function\(\) {(.*?)}", for_r, re.DOTALL)[1]
    assert dict(re.findall(r'(\w+) = "([\d.]+)"', body)) == wanted


def test_the_lowest_versions_tested_are_those_that_are_asked_for():
    asked = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["jax"]]
    lowest = [requirement.replace(">=", "==") + ".*" for requirement in asked]
    assert test_versions.ENVIRONMENTS["lowest"] == lowest[:-1]
    assert test_versions.ENVIRONMENTS["jax-lowest"] == [lowest[-1], *lowest[1:-1]]
    for package, (version, newest) in test_versions.tested_versions().items():
        assert any(f"{version}.".startswith(f"{each[: -len('.*')].split('==')[1]}.") for each in lowest), package
        assert [*map(int, version.split("."))] <= [*map(int, newest.split("."))]


def third_party():
    """Package → licence, of the tables for users."""
    return dict(re.findall(r"^\| ([\w\[\]-]+) \| .* \| (.+) \|$", (ROOT / "THIRD-PARTY.md").read_text(), re.MULTILINE))


FOR_USERS = ("cuda", "demo", "jax", "jax-cuda", "plots", "r")


def needed_by_users():
    extras = PROJECT["optional-dependencies"]
    python = [*PROJECT["dependencies"], *(each for extra in FOR_USERS for each in extras[extra])]
    assert set(extras) - {*FOR_USERS} == {"bench", "dev", "docs", "release"}  # of developers
    r = f"{DESCRIPTION['Imports']}, {DESCRIPTION['Suggests']}".split(", ")
    to_develop = {"knitr", "rmarkdown", "testthat"}  # vignette and tests
    parts_of_r = {"graphics", "methods", "stats", "utils"}
    names = {re.split("[ >]", each)[0] for each in [*python, *r]}
    return names - to_develop - parts_of_r


def test_everything_that_users_need_has_a_row_with_its_licence():
    rows = third_party()
    assert {*rows} - {"package", "---"} == needed_by_users()


@pytest.mark.parametrize("package", ["tensorflow", "keras", "numpy", "h5py", "scikit-learn", "matplotlib", "rpy2"])
def test_a_licence_is_what_the_installed_package_says(package):
    family = re.match("Apache|BSD|GPL|MIT|Matplotlib", third_party()[package])[0]
    said = importlib.metadata.metadata(package)
    fields = [said[name] for name in ("License", "License-Expression") if name in said]
    fields += [field for field in said.get_all("Classifier", []) if field.startswith("License ::")]
    assert any(family.lower() in field.lower() for field in fields)


def test_types_are_in_the_wheel():
    assert (Path(multigpu.__file__).parent / "py.typed").exists()
    assert PYPROJECT["tool"]["setuptools"]["package-data"] == {"multigpu": ["py.typed"]}


# The workflow ---------------------------------------------------------------------------------------------------------


def commands(workflow):
    for job in workflow["jobs"].values():
        of_matrix = [case["run"] for case in job.get("strategy", {}).get("matrix", {}).get("include", [])]
        yield from (step["run"] for step in job["steps"] if "run" in step and "matrix" not in step["run"])
        yield from of_matrix


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_calls_targets_of_make_and_nothing_else_but_its_set_up(name):
    targets = set(re.search(r"^\.PHONY: (.*)", MAKEFILE, flags=re.MULTILINE)[1].split())
    lines = [*commands(WORKFLOWS[name])]
    called = {word for line in lines if line.startswith("make ") for word in line.split()[1:] if "=" not in word}
    assert len(called) >= 5
    assert called <= targets
    assert all(line.startswith(("make ", "apt-get ", "git config ")) for line in lines)


def test_the_workflow_has_the_versions_of_python_that_the_package_names():
    named = [each.rsplit(" ", 1)[1] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)]
    cases = WORKFLOWS["test.yaml"]["jobs"]["test"]["strategy"]["matrix"]["include"]
    assert [case["python"] for case in cases] == named
    assert f">={named[0]}" == PROJECT["requires-python"]
    assert all(case["r"] != "none" for case in (cases[0], cases[-1]))
