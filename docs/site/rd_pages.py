"""Pages of the R functions: what R makes of each Rd page, with headings and code that the theme knows.

They are written to `docs/reference/r/`, where Sphinx finds them, and which git ignores.
"""

import html
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

HEADING = re.compile(r"<h3[^>]*>(.*?)</h3>", flags=re.DOTALL)
CODE = re.compile(r"<pre><code class=['\"]language-R['\"]>(.*?)</code></pre>", flags=re.DOTALL)
ELSEWHERE = re.compile(r'(?<=href=")\.\./\.\./([\w.]+)/[^"]*')  # a topic of another package
PARTS = re.compile(rf"({HEADING.pattern.replace('(', '(?:')}|{CODE.pattern.replace('(', '(?:')})", flags=re.DOTALL)
INDEX = """\
# R reference

In R, `?multi_gpu_model` shows the same pages. They are those of the package `multigpu`: `library(multigpu)`.

| topic | |
|---|---|
{rows}

```{{toctree}}
:hidden:

{pages}
```
"""


def write(root: Path) -> None:
    """Writes a page for each file in `man/`, and one that lists them."""
    folder = root / "docs" / "reference" / "r"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        subprocess.run(["Rscript", "docs/site/rd_pages.R", made], cwd=root, check=True)
        topics = [line.split("\t") for line in (Path(made) / "topics.tsv").read_text().splitlines()]
        texts = {page: page_of(name, (Path(made) / f"{page}.html").read_text()) for page, name, *_ in topics}
    rows = "\n".join(f"| [{name}]({page}.md) | {title} |" for page, name, title, _ in topics)
    texts["index"] = INDEX.format(rows=rows, pages="\n".join(page for page, *_ in topics))
    for page, text in texts.items():
        _write_if_new(folder / f"{page}.md", text)


def page_of(name: str, made: str) -> str:
    """The Markdown of a page that R has made: its parts as HTML, but for headings and code."""
    title, body = re.search(r"<h2[^>]*>(.*?)</h2>(.*?)(?:<hr|</div>\s*</body>)", made, flags=re.DOTALL).groups()
    body = ELSEWHERE.sub(r"https://cran.r-project.org/package=\1", body)
    return "\n\n".join([f"# {name}", f"**{_plain(title)}**", *_parts(body)]) + "\n"


def _parts(body: str) -> Iterator[str]:
    for part in PARTS.split(body):
        if heading := HEADING.fullmatch(part):
            yield f"## {_plain(heading[1])}"
        elif code := CODE.fullmatch(part):
            yield f"```r\n{html.unescape(code[1]).strip()}\n```"
        elif part.strip():
            yield f"```{{raw}} html\n{part.strip()}\n```"


def _plain(text: str) -> str:
    return html.unescape(re.sub("<[^>]*>", "", text))


def _write_if_new(path: Path, text: str) -> None:
    """Leaves a file alone that says the same, so that Sphinx does not read it again."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
