"""The order of the pages in the site's list, by headings."""

from sphinx.application import Sphinx

CONTENTS = {
    "Guide": [
        "Quick start </README>",
        "/docs/install",
        "/docs/usage",
        "/docs/numerics",
        "/docs/saving",
        "/docs/model-parallel",
        "/docs/profiling",
        "/docs/larger-batches",
        "/docs/multi-worker",
        "/docs/multi-worker-performance",
    ],
    "Examples": ["/examples/README"],
    "R": ["/docs/r", "/docs/r-in-python"],
    "Migrate": ["/docs/migrate-from-keras2", "/docs/migrate-from-mirrored-strategy", "/docs/what-others-do"],
    "Reference": ["/docs/api", "/docs/reference/r/index", "/docs/command-line"],
    "More": ["/bench/results/RESULTS", "Changes </NEWS>", "/LICENSE", "/THIRD-PARTY"],
    "Develop": ["/docs/architecture", "/CONTRIBUTING", "/SECURITY"],
}
LIST = "\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages}\n```\n"


def add(app: Sphinx, page: str, source: list[str]) -> None:
    """Adds the lists to the first page, where the theme looks for them."""
    if page == app.config.root_doc:
        source[0] += "".join(LIST.format(caption=name, pages="\n".join(pages)) for name, pages in CONTENTS.items())
