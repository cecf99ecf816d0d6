"""README and the pages in `docs/`: their code runs, what they name is there, and their figures are measured."""

import dataclasses
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import keras
import pytest
from forked_python import python

import multigpu
from multigpu.cli.main import make_parser
from multigpu.cluster.config import described
from multigpu.profiling.measurement import Measurement

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
PACKAGE = ROOT / "python" / "multigpu"
ENGINE = PACKAGE / "engines" / "tensorflow"
PAGES = {path.name: path.read_text() for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]}
FOLDERS = {name: ROOT if name == "README.md" else ROOT / "docs" for name in PAGES}
FOLDERS.update(dict.fromkeys(("CONTRIBUTING.md", "SECURITY.md", "NEWS.md", "THIRD-PARTY.md"), ROOT))
FOLDERS["examples/README.md"] = ROOT / "examples"
TEXTS = {name: (folder / Path(name).name).read_text() for name, folder in FOLDERS.items()}
EVERYTHING = "\n".join(PAGES.values())


def blocks(name: str, language: str) -> list[str]:
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```$", TEXTS[name], flags=re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for _, block in found]


def pages_with(*languages: str) -> list[str]:
    return [name for name in PAGES if any(blocks(name, language) for language in languages)]


def script(name: str, language: str) -> str:
    """All blocks of a page, after those of the quick start if the page says that it continues it."""
    own = blocks(name, language)
    return "\n".join([*(blocks("README.md", language) if "#quick-start)" in TEXTS[name] else []), *own])


def run(command: list, folder: Path, **environment: str) -> subprocess.CompletedProcess:
    settings = {"CUDA_VISIBLE_DEVICES": "-1", "RETICULATE_PYTHON": sys.executable, "RPY2_CFFI_MODE": "ABI"}
    library = os.path.join(sys.prefix, "r")  # where `make` installs the R package
    environment = {"R_LIBS": library, **os.environ, **settings, **environment}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]
    return done


# Code runs ------------------------------------------------------------------------------------------------------------


@pytest.mark.pages
@pytest.mark.parametrize("name", pages_with("python"))
def test_examples_in_python_run_and_print_what_the_page_shows(name, tmp_path):
    (tmp_path / "page.py").write_text(script(name, "python"))
    done = run([*python(), "page.py"], tmp_path)
    for shown in blocks(name, "text"):
        assert shown in done.stdout


# what the set-up of the R package does outside of R's own process
R_STAND_INS = """
install.packages <- function(...) invisible()
for (name in c("virtualenv_exists", "virtualenv_create", "virtualenv_install")) {
  assignInNamespace(name, function(...) TRUE, "reticulate")
}
"""


# each R takes seconds to start: the quick start runs before the page that continues it, two workers run what is below
RUN_ELSEWHERE = ["README.md", "multi-worker.md"]


def test_what_r_runs_elsewhere_is_all_there_is():
    assert script("r.md", "r").startswith(script("README.md", "r"))
    assert len(blocks("multi-worker.md", "r")) == 1


@pytest.mark.pages
@pytest.mark.parametrize("name", [page for page in pages_with("r") if page not in RUN_ELSEWHERE])
def test_examples_in_r_run_and_print_what_the_page_shows(name, tmp_path):
    (tmp_path / "page.R").write_text(R_STAND_INS + script(name, "r"))
    done = run(["Rscript", "page.R"], tmp_path)
    for shown in [] if blocks(name, "python") or blocks(name, "sh") else blocks(name, "text"):  # from elsewhere
        assert shown in done.stdout


@pytest.mark.pages
@pytest.mark.parametrize(
    ("page", "language", "file"),
    [
        ("multi-worker.md", "python", "train.py"),
        ("multi-worker.md", "r", "train.R"),
        ("tutorial-several-machines.md", "python", "train.py"),
    ],
)
def test_the_script_for_several_machines_runs_as_two_workers(page, language, file, tmp_path):
    (tmp_path / file).write_text(blocks(page, language)[0])
    # where it is set, a worker writes each end of a line by itself, possibly after a line of the other one
    buffered = {"PYTHONUNBUFFERED": ""}
    done = run([sys.executable, "-m", "multigpu", "launch", "--processes", "2", file], tmp_path, **buffered)
    for shown in blocks(page, "console"):
        assert sorted(shown.splitlines()) == sorted(done.stdout.splitlines())


def test_the_tf_config_of_the_page_is_understood():
    (block,) = blocks("multi-worker.md", "json")
    cluster = described({"TF_CONFIG": block})
    assert (cluster.size, cluster.number) == (2, json.loads(block)["task"]["index"])


# programs that reach other machines, run what they are given here; those that install something are only noted
RUNS = {
    "srun": 'exec "$@"',
    "unshare": 'while [ "${1#-}" != "$1" ]; do shift; done; exec "$@"',
    "mpirun": 'while [ "${1#-}" != "$1" ]; do shift 2; done; exec "$@"',
    "ssh": 'exec sh -c "$2"',
    "ip": "exit 0",
}
NOTED = ("python", "pip", "make", "R")


@pytest.fixture
def shell(tmp_path):
    """Runs lines of a shell, and gives the calls of programs that are noted."""
    (tmp_path / "bin").mkdir()
    for program in ("train.py", "shared/train.py", "model.keras"):
        (tmp_path / program).parent.mkdir(exist_ok=True)
        (tmp_path / program).touch()
    noted = {name: f'( echo {name}; printf "%s\\n" "$@" ) | paste -sd "\\t" >> {tmp_path}/calls' for name in NOTED}
    for name, line in {**RUNS, **noted}.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / "bin" / name).chmod(0o755)

    def run_lines(lines: str, **environment: str) -> list[list[str]]:
        run(["sh", "-eu", "-c", lines], tmp_path, PATH=f"{tmp_path}/bin:/usr/bin:/bin", **environment)
        return [line.split("\t") for line in (tmp_path / "calls").read_text().splitlines()]

    return run_lines


def check_call(program: str, *arguments: str) -> None:
    """Refuses what the program would: commands, options, targets and extras that are not there."""
    if program == "python" and arguments[0] == "-m":
        assert make_parser().parse_args(arguments[2:])
    elif program == "make":
        assert (
            arguments[0] in re.search(r"^\.PHONY: (.*)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)[1].split()
        )
    elif program == "pip":
        extras = re.findall(r"\.\[(\w+)\]", " ".join(arguments))
        known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert arguments[0] == "install"
        assert set(extras) <= set(known)
    else:
        assert arguments in (("train.py",), ("CMD", "INSTALL", "."))


@pytest.mark.parametrize("name", pages_with("sh"))
def test_commands_are_understood(name, shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the scripts are
    calls = shell("\n".join(blocks(name, "sh")))
    assert len(calls) >= len(blocks(name, "sh"))
    for call in calls:
        check_call(*call)


def fields_on_page(heading: str) -> list[set[str]]:
    """The names in the first columns of the tables of fields below a heading of the command line's page."""
    section = re.search(rf"^## {heading}$(.*?)(?=^## |\Z)", TEXTS["command-line.md"], re.MULTILINE | re.DOTALL)[1]
    tables = re.findall(r"^\| field of .*?\n\|[-|]*\n((?:\|.*\n)*)", section, flags=re.MULTILINE)
    return [
        {name for line in table.splitlines() for name in re.findall(r"`(\w+)`", line.split("|")[1])} for table in tables
    ]


def test_commands_print_the_tables_and_the_fields_that_their_page_shows(tmp_path):
    keras.utils.clear_session()  # the page shows the names of a new process
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.save(tmp_path / "model.keras")
    example = r"```sh\npython (-m multigpu estimate .*)\n```\n\n```text\n((?:.+\n|\n)*?)```"
    command, shown = re.search(example, TEXTS["command-line.md"]).groups()
    assert run([*python(), *command.split()], tmp_path).stdout == shown
    told = json.loads(run([*python(), *command.split(), "--json"], tmp_path).stdout)
    assert fields_on_page("`estimate`") == [set(told), set(told["devices"][0]), set(told["layers"][0])]
    assert fields_on_page("`measure`") == [
        {"model", "enough", *(field.name for field in dataclasses.fields(Measurement))}
    ]
    told = json.loads(run([*python(), "-m", "multigpu", "devices", "--json"], tmp_path).stdout)
    assert fields_on_page("`devices`") == [set(told)]


def test_the_pods_of_kubernetes_run_one_worker_each(shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("multi-worker.md", "yaml")
    command = re.search(r"- (exec python .*?\.py)$", block, flags=re.MULTILINE | re.DOTALL)[1]
    ((_, *arguments),) = shell(" ".join(command.split()), JOB_COMPLETION_INDEX="3")
    parsed = make_parser().parse_args(arguments[2:])
    assert parsed.rank == 3
    hosts = len(parsed.hosts.split(","))
    assert f"completions: {hosts}\n" in block
    assert f"parallelism: {hosts}\n" in block


# What is named is there -----------------------------------------------------------------------------------------------


def test_every_page_is_linked_from_the_readme_and_the_index():
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert pages - {"api.md"} <= set(re.findall(r"\]\(docs/([\w-]+\.md)\)", TEXTS["README.md"]))
    assert pages - {"index.md"} <= set(re.findall(r"\]\(([\w-]+\.md)\)", TEXTS["index.md"]))


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.quick
@pytest.mark.parametrize("name", TEXTS)
def test_links_lead_somewhere(name):
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", TEXTS[name]):
        path = FOLDERS[name] / (target or Path(name).name)
        assert path.exists(), target
        if anchor:
            assert anchor in map(slug, re.findall(r"^#+ (.*)", path.read_text(), flags=re.MULTILINE))


@pytest.mark.parametrize("name", TEXTS)
def test_files_that_a_page_names_are_there(name):
    for path in re.findall(r"(?<![\w/.-])((?:[\w-]+/)+[\w-]+\.(?:py|R|md|png|json|ipynb))\b", TEXTS[name]):
        assert any((folder / path).exists() for folder in (ROOT, PACKAGE, ENGINE, FOLDERS[name])), path


def test_the_drawing_names_files_that_are_there():
    named = re.findall(r'class="file"[^>]*>([\w/]+\.py)<', (ROOT / "docs" / "batch-flow.svg").read_text())
    assert len(named) > 3
    assert all(any((folder / path).exists() for folder in (PACKAGE, ENGINE)) for path in named)


def test_pages_that_messages_name_are_there():
    sources = [*PACKAGE.rglob("*.py"), *(ROOT / "R").glob("*.R"), *(ROOT / "man").glob("*.Rd")]
    named = {page for source in sources for page in re.findall(r"docs/[\w-]+\.md", source.read_text())}
    assert len(named) > 2
    assert all((ROOT / page).exists() for page in named)


def test_every_public_name_is_on_a_page_and_every_name_on_a_page_is_public():
    exported = re.findall(r'^export\("?([\w, ]+)"?\)$', (ROOT / "NAMESPACE").read_text(), flags=re.MULTILINE)
    names = {name for line in exported for name in line.split(", ")} | set(multigpu.__all__)
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", EVERYTHING)] == []
    used = set(re.findall(r"\bmultigpu\.(\w+)\(", EVERYTHING))
    assert used <= set(multigpu.__all__)


def test_the_table_of_arguments_is_the_signature():
    rows = re.findall(r"^\| `(\w+)` \|(?: `(\w+)`)? \| ", TEXTS["usage.md"], flags=re.MULTILINE)
    parameters = inspect.signature(multigpu.multi_gpu_model).parameters.values()
    assert rows == [(each.name, "" if each.default is each.empty else repr(each.default)) for each in parameters]


def test_environment_variables_are_those_of_the_code():
    code = "".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    assert set(re.findall(r"\bMULTIGPU_\w+", EVERYTHING)) == set(re.findall(r"\bMULTIGPU_\w+", code))


# The architecture -----------------------------------------------------------------------------------------------------


def test_the_architecture_lists_every_file_of_python_with_its_first_line(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    assert TEXTS["architecture.md"] == importlib.import_module("list_files").listed()  # else run docs/list_files.py


def test_the_architecture_names_every_file_of_r_once():
    table = re.search(r"^### `R`\n(.*?)(?=^#|\Z)", TEXTS["architecture.md"], flags=re.MULTILINE | re.DOTALL)[1]
    named = re.findall(r"^\| `(\S+)` \|", table, re.MULTILINE)
    assert sorted(named) == sorted(path.name for path in (ROOT / "R").glob("*.R"))


@pytest.mark.parametrize("number", [0, 1])
def test_the_architecture_lists_the_packages_in_the_order_that_the_linter_holds(number):
    tables = re.findall(r"^\| package \| contents \|\n(.*?)\n\n", TEXTS["architecture.md"], re.MULTILINE | re.DOTALL)
    listed = re.findall(r"`(\w+)(?:\.py)?`", " ".join(line.split("|")[1] for line in tables[number].splitlines()))
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [layer.split(" | ") for layer in reversed(contracts[number]["layers"])]
    order = {name: number for number, names in enumerate(layers) for name in names}
    assert set(listed) == order.keys() - {"__main__"}
    assert listed == sorted(listed, key=order.get)


# Figures are measured -------------------------------------------------------------------------------------------------


def test_the_runs_of_the_page_on_larger_batches_are_those_of_its_script(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    script = importlib.import_module("bench.training.larger_batches")
    page = (ROOT / "docs" / "larger-batches.md").read_text()
    for name, (_, _, rate, _) in script.RUNS.items():
        assert f"| {name} | {rate:g} | " in page


def test_programs_of_xla_are_those_of_the_benchmark():
    measured = json.loads((ROOT / "bench" / "results" / "measured.json").read_text())["rows"]["xla_programs"]
    found = {
        (row["N"], row["rows"] % row["batch"]): [
            row["programs"],
            *(row["s"][how]["epoch"] for how in ("XLA", "without")),
        ]
        for row in measured
        if row["batch"] == 32
    }
    rows = re.findall(r"^\| (one device|\d devices), (.*?) \| (.*) \|$", TEXTS["numerics.md"], flags=re.MULTILINE)
    assert len(rows) == 4
    for devices, batches, cells in rows:
        case = 1 if devices == "one device" else int(devices.split()[0]), 4 if "last" in batches else 0
        programs, *seconds = found[case]
        assert cells == " | ".join([str(programs), *(f"{of_epoch:.1f}" for of_epoch in seconds)])


def test_what_others_do_is_what_the_benchmarks_measured():
    page, results = TEXTS["what-others-do.md"], (ROOT / "bench" / "results" / "RESULTS.md").read_text()
    (exactness,) = re.findall(r"^\|  \| multigpu \|(?:.*\n)+?\n", results, flags=re.MULTILINE)
    assert exactness in page
    of_step = re.findall(r"^\| (.+?) \| 8 \| \d+ \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", results, flags=re.MULTILINE)
    on_jax = dict(re.findall(r"^\| (.+?) \| JAX \| 8 \| \d+ \| .+ \| ([\d.]+) \|$", results, flags=re.MULTILINE))
    lines = [f"| {' | '.join(figures)} | {on_jax[figures[0]]} |" for figures in of_step if figures[0] in on_jax]
    assert len(lines) == 2
    assert all(line in page for line in lines)
    memory = re.search(r"^\| peak memory of the same ÷ MirroredStrategy \|.*?\|.*?\| ([\d.]+) ", results, re.MULTILINE)[
        1
    ]
    assert f"is {float(memory):.2f} times that of MirroredStrategy" in page


def test_the_table_of_engines_is_what_the_benchmark_measured():
    results = (ROOT / "bench" / "results" / "RESULTS.md").read_text()
    rows = re.findall(
        r"^\| (.+?) \| (JAX|TensorFlow) \| (\d) \| \d+ \| (.+?) \| (.+?) \| (.+?) \|$", results, re.MULTILINE
    )
    shown = re.findall(r"^\| (.+?) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", TEXTS["engines.md"], flags=re.MULTILINE)
    measured = []
    for workload in ("conv net", "MLP 4×1024"):
        of = {(engine, n): figures for name, engine, n, *figures in rows if name == workload}
        for engine, figure in (("TensorFlow", 0), ("JAX", 0), ("JAX", 1), ("JAX", 2)):
            measured.append(tuple(of[engine, n][figure] for n in "248"))
    assert [figures for _, *figures in shown] == [list(each) for each in measured]


def test_times_of_several_workers_are_those_of_the_benchmark_and_its_formula():
    page, results = TEXTS["multi-worker-performance.md"], (ROOT / "bench" / "results" / "RESULTS.md").read_text()
    measured = re.findall(r"(\d+) ms \((\d+ to \d+)\)", page)
    assert len(measured) == 6
    assert all(f"| {median} ({span}) |" in results for median, span in measured)
    expected = re.search(r"^\| workers \| conv net, 10.*?\n\n", page, flags=re.MULTILINE | re.DOTALL)[0]
    head, _, *rows = (line.strip("| ").split(" | ") for line in expected.splitlines() if line)
    of_work = {"conv net": (175, 1.23e6), "MLP": (43, 16.83e6)}
    assert len(rows) == 5
    for count, *cells in rows:
        workers = int(count.replace(",", ""))
        for title, cell in zip(head[1:], cells, strict=True):
            work, speed = title.removesuffix(" Gbit/s").split(", ")
            alone, weights = of_work[work]
            links = 2 * (workers - 1)
            step = alone + links / workers * weights / (float(speed) * 1e9 / 8) * 1000 + links * 0.65
            shown, efficiency = map(int, re.findall(r"\d+", cell))
            assert shown == pytest.approx(step, rel=0.02)  # of rounded figures
            assert efficiency == pytest.approx(100 * alone / step, abs=1.5)
