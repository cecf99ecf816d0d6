"""A Keras or TensorFlow that lacks what the room `private_api` uses is refused at import, with all that is missing."""

import ast
import inspect
import pkgutil
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import FunctionType

import keras
import pytest
from forked_python import python

from multigpu import private_api as of_keras
from multigpu.engines.tensorflow import private_api as of_tensorflow
from multigpu.engines.tensorflow.private_api.tensorflow_names import BY_COUNTER, BY_SEED, OTHERS, TENSORFLOW
from multigpu.private_api.keras_names import KERAS

ROOMS = [Path(room.__file__).parent for room in (of_keras, of_tensorflow)]
TABLES = ("required.py", "keras_names.py", "tensorflow_names.py")
FILES = [path for room in ROOMS for path in room.glob("*.py") if path.name not in TABLES]
TREES = {f"{path.parents[1].name}/{path.name}": ast.parse(path.read_text()) for path in FILES}
NOT_OF_KERAS = {"_getframe", "_multigpu_gradients"}  # of Python, and of this package
BOTH = (KERAS, TENSORFLOW)
PAIRS = [(owner, name) for of in BOTH for owner, names in of.attributes.items() for name in names]
WRITTEN = [(owner, name) for of in BOTH for owner, names in of.names_in_code.items() for name in names]


def remove(monkeypatch, owner, name):
    """Takes an attribute from wherever the owner has it: from all of its bases, if it is a class."""
    for place in owner.__mro__ if isinstance(owner, type) else [owner]:
        if not isinstance(place, type) or name in vars(place):
            monkeypatch.delattr(place, name)


def rename(monkeypatch, owner, name):
    """Replaces the functions whose code has a name by some that have not."""
    kinds = owner.__mro__ if isinstance(owner, type) else [sys.modules[owner.__module__]]
    functions = {owner} if isinstance(owner, FunctionType) else None
    for kind in kinds:
        for attribute, member in list(vars(kind).items()):
            if isinstance(member, FunctionType) and (functions is None or member in functions):
                code = inspect.unwrap(member).__code__
                if name in code.co_names or name in code.co_consts:
                    monkeypatch.setattr(kind, attribute, lambda *_, **__: None)


def missing():
    return [*KERAS.missing(), *TENSORFLOW.missing()]


def refusal(required):
    with pytest.raises(ImportError) as refused:
        required.check()
    return str(refused.value)


@pytest.mark.quick
def test_nothing_is_missing_here():
    assert missing() == []


@pytest.mark.parametrize(
    ("take", "owner", "name"), [*((remove, *pair) for pair in PAIRS), *((rename, *pair) for pair in WRITTEN)]
)
def test_what_is_taken_away_is_named(monkeypatch, take, owner, name):
    take(monkeypatch, pkgutil.resolve_name(owner), name)
    dotted = f"{owner.replace(':', '.')}.{name}"
    lacking = missing()
    monkeypatch.undo()
    assert dotted in lacking
    assert missing() == []


def test_the_error_says_what_was_tested_what_is_there_what_is_missing_and_what_to_do(monkeypatch):
    monkeypatch.setattr("keras.__version__", "9.9.9")
    monkeypatch.setattr("multigpu.private_api.required.__version__", "1.2.3")
    monkeypatch.delattr("keras.Layer._flatten_layers")
    monkeypatch.delattr("keras.src.losses.loss.apply_mask")
    assert refusal(replace(KERAS, lowest="3.15.1", newest="3.16.0")) == (
        "Expected a Keras with the private names that multigpu 1.2.3 uses. It was tested with keras 3.15.1 to 3.16.0. "
        "Received: keras 9.9.9, which lacks 'keras.Layer._flatten_layers', 'keras.src.losses.loss.apply_mask'. Run "
        "`pip install 'keras==3.16.0'`, start again, and report this error."
    )


def test_a_module_that_is_gone_is_named_with_all_that_it_had(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow.python.eager.context", None)  # importing it is an ImportError
    monkeypatch.delattr(sys.modules["tensorflow.python.eager"], "context")
    assert (
        "'tensorflow.python.eager.context.context', 'tensorflow.python.eager.context.Context.abort_collective_ops'"
        in refusal(TENSORFLOW)
    )


FROM_ANEW = """
import keras
del keras.Layer._flatten_layers
import multigpu
try:
    multigpu.simulate_gpus(2)
except ImportError as error:
    print(error)
del keras.Function._get_operation_for_node
try:
    from multigpu import load_model_hdf5
except ImportError as error:
    print(error)
"""

STARTS_NOTHING = """
import sys
import multigpu
assert not any(name.startswith("multigpu.private_api") for name in sys.modules)
import multigpu.engines.tensorflow.private_api
from tensorflow.python.eager import context
assert "multigpu.private_api.required" in sys.modules
assert not context.context()._initialized
multigpu.simulate_gpus(3)
print(multigpu.available_gpus())
"""


def printed(script):
    done = subprocess.run([*python(), "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_whatever_is_used_first_is_refused():
    first, second = printed(FROM_ANEW)
    assert first.startswith("Expected a Keras with the private names that multigpu ")
    assert "lacks 'keras.Layer._flatten_layers'. Run `pip" in first
    assert "lacks 'keras.Function._get_operation_for_node', 'keras.Layer._flatten_layers'. Run `pip" in second


def test_looking_starts_no_device():
    assert printed(STARTS_NOTHING) == ["['CPU:0', 'CPU:1', 'CPU:2']"]


# The table is complete ------------------------------------------------------------------------------------------------


def nodes(tree, kind):
    return [node for node in ast.walk(tree) if isinstance(node, kind)]


def imported_privately(tree):
    """What a file imports from private modules, by the name that it has there."""
    return {
        alias.asname or alias.name: pkgutil.resolve_name(f"{node.module}:{alias.name}")
        for node in nodes(tree, ast.ImportFrom)
        if node.module.startswith(("keras.src", "tensorflow.python"))
        for alias in node.names
    }


def taken_from_modules(tree):
    """What a file imports from private modules, and attributes of the modules that it has imported so."""
    imported = imported_privately(tree)
    yield from (name for name, thing in imported.items() if not inspect.ismodule(thing))
    modules = {name for name, thing in imported.items() if inspect.ismodule(thing)}
    for node in nodes(tree, ast.Assign):  # `this = context.context()`
        if isinstance(node.value, ast.Call) and root_of(node.value) in modules:
            modules |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    yield from (node.attr for node in nodes(tree, ast.Attribute) if root_of(node) in modules)


def root_of(node):
    while isinstance(node, ast.Attribute | ast.Call):
        node = node.value if isinstance(node, ast.Attribute) else node.func
    return getattr(node, "id", None)


def private_names(tree):
    """Private attributes, and texts that name one, but for those that the file defines itself."""
    own = {node.name for node in nodes(tree, ast.FunctionDef | ast.ClassDef)}
    own |= {node.id for node in nodes(tree, ast.Name) if isinstance(node.ctx, ast.Store)}
    own |= {node.attr for node in nodes(tree, ast.Attribute) if getattr(node.value, "id", None) == "self"}
    named = [node.attr for node in nodes(tree, ast.Attribute)]
    named += [node.value for node in nodes(tree, ast.Constant) if isinstance(node.value, str)]
    return {name for name in named if re.fullmatch(r"_[a-z]\w*", name)} - own


def hooks_of_keras(tree):
    """Private methods of Keras that a file overrides."""
    members = [member for kind in nodes(tree, ast.ClassDef) for member in kind.body]
    names = {member.name for member in members if isinstance(member, ast.FunctionDef)}
    stored = (name for member in members if isinstance(member, ast.Assign) for name in nodes(member, ast.Name))
    names |= {name.id for name in stored if isinstance(name.ctx, ast.Store)}
    return {name for name in names if not name.startswith("__") and hasattr(keras.Model, name)}


@pytest.mark.quick
@pytest.mark.parametrize("file", TREES)
def test_the_table_has_every_private_name_of_the_room(file):
    tree = TREES[file]
    used = {*taken_from_modules(tree), *private_names(tree), *hooks_of_keras(tree)}
    assert used - {name for _, name in [*PAIRS, *WRITTEN]} - NOT_OF_KERAS == set()


def test_the_table_has_no_other_name():
    texts = " ".join([*map(ast.unparse, TREES.values()), *BY_COUNTER, *OTHERS, *BY_SEED])
    assert [name for _, name in [*PAIRS, *WRITTEN] if not re.search(rf"\b{name}\b", texts)] == []
