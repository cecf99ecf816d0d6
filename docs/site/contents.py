"""Add the list of pages to the site's first page, and a drawing for narrow screens."""

from sphinx.application import Sphinx

CONTENTS = {
    "Start": ["/docs/install", "Quick start </README>", "/examples/README"],
    "Tutorials": [
        "Your first training </docs/tutorial>",
        "Fine-tune a network </docs/tutorial-fine-tuning>",
        "Several machines </docs/tutorial-several-machines>",
        "Train from R </docs/tutorial-r>",
    ],
    "Guides": [
        "/docs/usage",
        "/docs/saving",
        "/docs/profiling",
        "/docs/larger-batches",
        "/docs/model-parallel",
        "/docs/engines",
        "/docs/multi-worker",
        "/docs/r",
        "/docs/r-in-python",
        "/docs/migrate-from-keras2",
        "/docs/migrate-from-mirrored-strategy",
    ],
    "Reference": [
        "/docs/numerics",
        "/docs/api",
        "/docs/reference/r/index",
        "/docs/command-line",
        "Changes </NEWS>",
    ],
    "Background": [
        "/docs/what-others-do",
        "/docs/multi-worker-performance",
        "/bench/results/RESULTS",
        "/bench/results/GPU",
        "Tested models </bench/results/MODELS>",
    ],
    "Develop": ["/docs/architecture", "/CONTRIBUTING", "/SECURITY", "/LICENSE", "/THIRD-PARTY"],
}
LIST = "\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages}\n```\n"
DRAWING = "![How a batch flows](batch-flow.svg)\n"
TWICE = """\
```{image} batch-flow.svg
:alt: How a batch flows
:class: on-wide-screens
```

```{image} batch-flow-narrow.svg
:alt: How a batch flows
:class: on-narrow-screens
```
"""


def add(app: Sphinx, page: str, source: list[str]) -> None:
    """Add the lists to the first page, where the theme looks for them, and the drawing's second version."""
    if page == app.config.root_doc:
        lists = (LIST.format(caption=name, pages="\n".join(pages)) for name, pages in CONTENTS.items())
        source[0] = source[0].replace(DRAWING, TWICE) + "".join(lists)
