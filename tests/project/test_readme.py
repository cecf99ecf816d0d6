"""The README tells the same story as the code."""

import re
from pathlib import Path

import multigpu

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_every_file_of_the_core_is_named_in_the_readme_once():
    table = README[README.index("## How a batch flows") : README.index("## Speed")]
    named = re.findall(r"`(\w+\.py)`", table)
    files = [path.name for path in (ROOT / "python" / "multigpu").rglob("*.py") if path.name != "__init__.py"]
    assert sorted(named) == sorted(files)


def test_the_news_begin_with_the_version():
    news = (ROOT / "NEWS.md").read_text()
    assert news.startswith(f"# multigpu {multigpu.__version__}\n")
