"""A block in Python that is followed by one in R becomes a pair of tabs, in which the whole site shows one language."""

import re

from sphinx.application import Sphinx

BLOCK = r"^```{}\n((?:(?!```).*\n)*)```\n"
PAIRS = [
    re.compile(BLOCK.format(first) + r"\n(?:In R:\n\n)?" + BLOCK.format(second), flags=re.MULTILINE)
    for first, second in (("python", "r"), ("diff", "diff"))
]
TAB = """\
:::{{tab-item}} {title}
:sync: {title}

```{language}
{code}```

:::
"""


def add(_: Sphinx, __: str, source: list[str]) -> None:
    """Rewrites the text of a page."""
    for pair in PAIRS:
        source[0] = pair.sub(_tabs, source[0])
    source[0] = source[0].replace(" In Python:\n\n::::", "\n\n::::")  # the first tab has this title


def _tabs(blocks: re.Match[str]) -> str:
    languages = ("diff", "diff") if blocks[0].startswith("```diff") else ("python", "r")
    items = [
        TAB.format(title=title, language=language, code=code)
        for title, language, code in zip(("Python", "R"), languages, blocks.groups(), strict=True)
    ]
    return "::::{tab-set}\n:sync-group: language\n\n" + "\n".join(items) + "::::\n"
