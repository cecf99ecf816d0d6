"""Links by the titles of pages: in the repository they have the names of files, which the site does not show."""

import re

from sphinx.application import Sphinx

NAMED_AS_FILE = re.compile(r"\[[\w/-]+\.md\]\(")
IN_DOCSTRING = re.compile(r"`docs/([\w-]+)\.md`")


def add(_: Sphinx, __: str, source: list[str]) -> None:
    """Empties the text of such links in a page; Sphinx then takes the title of the page or the section."""
    source[0] = NAMED_AS_FILE.sub("[](", source[0])


def add_to_docstring(_: Sphinx, __: str, ___: str, ____: object, _____: object, lines: list[str]) -> None:
    """Makes links of the pages that a docstring names."""
    lines[:] = [IN_DOCSTRING.sub(r":doc:`/docs/\1`", line) for line in lines]
