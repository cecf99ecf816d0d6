"""The names of an engine, and the rooms that know no engine."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import multigpu
from multigpu import engines

PACKAGE = Path(multigpu.__file__).parent
TABLE = " ".join(line.split("|")[1] for line in engines.__doc__.splitlines() if "|" in line)
NAMES = sorted(re.findall(r"`(\w+)`", TABLE))
NEUTRAL = sorted(
    ".".join(("multigpu", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if path.relative_to(PACKAGE).parts[0] not in ("engines", "__main__.py")
)

WITHOUT_TENSORFLOW = """
import importlib, sys
sys.modules["tensorflow"] = None
import keras
from multigpu import engines
for name in sys.argv[1].split(","):
    setattr(engines, name, type(name, (keras.Model,), {}))
engines.OUT_OF_MEMORY = (MemoryError,)
for module in sys.argv[2].split(","):
    importlib.import_module(module)
assert not any(name.startswith("tensorflow.") for name in sys.modules)
print("all imported")
"""


@pytest.mark.quick
@pytest.mark.parametrize("engine", ["tensorflow"])
def test_an_engine_has_the_names_of_the_page_and_no_other(engine):
    names = vars(importlib.import_module(f"multigpu.engines.{engine}.names"))
    assert sorted(name for name in names if not name.startswith("_")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_there(name):
    assert getattr(engines, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"module 'multigpu.engines.tensorflow.names' has no attribute 'nothing'"):
        engines.nothing  # noqa: B018  # it is looked up


def test_all_other_rooms_are_imported_without_tensorflow():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TENSORFLOW, ",".join(NAMES), ",".join(NEUTRAL)],
        env={"KERAS_BACKEND": "jax", "PYTHONPATH": str(PACKAGE.parent), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "all imported\n", done.stderr[-2000:]
