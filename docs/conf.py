"""How Sphinx makes one site for both languages: of the Markdown pages, the docstrings and the Rd pages.

The pages are plain Markdown, so that they read well wherever the repository is hosted. What only the site has is added
while it is built: tabs (`site/tabs.py`), titles in links (`site/titles.py`), the order of the pages
(`site/contents.py`), the pages of the R package (`site/rd_pages.py`).
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs" / "site"))

import contents
import rd_pages
import tabs
import titles
from sphinx.application import Sphinx

from multigpu.base.version import __version__

project, author, copyright = "multigpu", "the multigpu authors", "the multigpu authors"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "sphinx_design"]

# the folder of all pages is the repository, so that links between them are those of the repository
root_doc = "docs/index"
include_patterns = ["*.md", "docs/*.md", "docs/reference/**/*.md", "examples/README.md", "bench/results/*.md"]
exclude_patterns = [".*", "python", "tests", "R", "man", "inst", "vignettes", "cran-comments.md"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
default_role = "code"  # `name` in a docstring, as in Markdown
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings say what is taken
# only multigpu makes the objects of these classes
autodoc_class_signature, autodoc_default_options = "separated", {"exclude-members": "__init__, __new__"}
napoleon_use_rtype = False
nitpicky = True
nitpick_ignore_regex = [("py:.*", "(?!multigpu).*")]  # other packages are not part of this site

html_theme, pygments_dark_style = "furo", "monokai"
html_title = f"multigpu {release}"
html_static_path = ["site/static"]
html_favicon = "site/static/logo.svg"
html_logo = "site/static/logo.svg"
html_css_files = ["site.css"]
html_extra_path = ["site/start"]  # `index.html`, which leads to the first page
html_copy_source = False
html_show_sphinx = False


def setup(app: Sphinx) -> None:
    """Adds what only the site has."""
    app.connect("config-inited", lambda _, __: rd_pages.write(ROOT))
    app.connect("source-read", contents.add)
    app.connect("source-read", tabs.add)
    app.connect("source-read", titles.add)
    app.connect("autodoc-process-docstring", titles.add_to_docstring)
