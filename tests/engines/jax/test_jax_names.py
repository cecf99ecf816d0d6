"""A JAX or Keras that lacks what the engine uses is refused at import. Files use only the names that tables list."""

import ast
from pathlib import Path

import pytest

from multigpu.engines import jax as engine
from multigpu.engines.jax.jax_names import JAX
from multigpu.engines.jax.private_api import KERAS_ON_JAX

FILES = sorted(Path(engine.__file__).parent.rglob("*.py"))
PAIRS = [(owner, name) for owner, names in JAX.attributes.items() for name in names]


def imported(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("jax.experimental", "jax.extend")):
            yield from ((f"{node.module}.{alias.name}", alias.name) for alias in node.names)


def test_what_is_used_is_in_the_table():
    listed = {f"{owner}.{name}" for owner, name in PAIRS} | set(JAX.attributes)
    used = {dotted for file in FILES for dotted, _ in imported(file)}
    assert used
    assert used <= listed
    text = "".join(file.read_text() for file in FILES if file.name != "jax_names.py")
    assert "jax._src" not in text
    assert [name for _, name in PAIRS if name not in text] == []


@pytest.mark.parametrize(("owner", "name"), PAIRS)
def test_what_is_missing_is_named(monkeypatch, owner, name):
    monkeypatch.delattr(f"{owner}.{name}")
    with pytest.raises(ImportError, match=rf"Expected a JAX .* which lacks '{owner}.{name}'\. Run `pip install"):
        JAX.check()


def test_a_keras_whose_loop_puts_batches_on_devices_otherwise_is_refused(monkeypatch):
    monkeypatch.delattr("keras.src.backend.jax.trainer._distribute_data")
    with pytest.raises(ImportError, match=r"Expected a Keras .* which lacks '.*trainer\._distribute_data'\. Run `pip"):
        KERAS_ON_JAX.check()
    monkeypatch.undo()
    monkeypatch.delattr("keras.src.backend.jax.trainer.JAXEpochIterator._one_batch_ahead_iterator")
    monkeypatch.delattr("keras.src.backend.jax.trainer.JAXEpochIterator._get_distributed_iterator")
    with pytest.raises(ImportError, match=r"JAXEpochIterator\._distribute_data"):
        KERAS_ON_JAX.check()
