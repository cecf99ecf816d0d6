"""The list of files in docs/architecture.md, made from the first line of each module. `python docs/list_files.py`."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
PACKAGE = ROOT / "python" / "multigpu"
BEGIN, END = "## Files of the Python package\n", "## Files of the R package\n"


def listed() -> str:
    """The page with the list as it has to be."""
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    return before + BEGIN + "\n" + "\n".join(map(_table, _folders())) + "\n" + END + rest.split(END)[1]


def _folders() -> list[Path]:
    return sorted(path.parent for path in PACKAGE.rglob("__init__.py"))


def _table(folder: Path) -> str:
    name = folder.relative_to(PACKAGE.parent)
    files = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
    rows = [f"| `{path.name}` | {_first_line(path)} |" for path in files]
    table = "\n".join(["| file | contents |", "|---|---|", *rows]) + "\n" if rows else ""
    return f"### `{name}`\n\n{_first_line(folder / '__init__.py')}\n\n{table}"


def _first_line(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n")[0].replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(listed())
