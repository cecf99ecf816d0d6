"""A JAX that lacks what the engine uses is refused at import, and no file uses other names than the table lists."""

import ast
from pathlib import Path

import pytest

from multigpu.engines import jax as engine
from multigpu.engines.jax.jax_names import JAX

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
