"""The built site: links and anchors lead somewhere, and a browser shows it, wide and narrow, light and dark.

`make test-docs` builds the site and runs this; the site is in `.venv/site`, screenshots in `.venv/site-screenshots`.
"""

import functools
import http.server
import shutil
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from playwright.sync_api import Page, expect, sync_playwright

import multigpu

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
SITE = ROOT / ".venv" / "site"
PICTURES = ROOT / ".venv" / "site-screenshots"
SCREENS = {"wide": {"width": 1400, "height": 900}, "narrow": {"width": 390, "height": 844}}
PAGES = {path.relative_to(SITE).as_posix(): path for path in sorted(SITE.rglob("*.html"))}
TOPICS = [path.stem for path in (ROOT / "man").glob("*.Rd")]
LOOKED_AT = [
    "README.html",
    "bench/results/RESULTS.html",
    *(f"docs/{name}.html" for name in ("index", "usage", "what-others-do", "model-parallel", "api", "command-line")),
    "docs/reference/r/multi_gpu_model.html",
]
IN_SEARCH = {"cpu_relocation": "docs/api.html", "save_model_hdf5": "docs/reference/r/save_model_hdf5.html"}


class Links(HTMLParser):
    """What a page links to, and the anchors that it has."""

    def __init__(self, path: Path):
        super().__init__()
        self.targets, self.anchors = [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors.add(attributes.get("id"))
        self.targets += [attributes[name] for name in ("href", "src") if attributes.get(name)]


@functools.cache
def links(path):
    return Links(path)


# Files ----------------------------------------------------------------------------------------------------------------


def test_there_are_pages():
    assert len(PAGES) > 40


@pytest.mark.parametrize("name", PAGES)
def test_links_and_anchors_lead_somewhere(name):
    for target in links(PAGES[name]).targets:
        if target.startswith(("http:", "https:", "mailto:", "data:")):
            continue
        file, anchor = urldefrag(target)
        path = (PAGES[name].parent / unquote(file.split("?")[0])).resolve() if file else PAGES[name]
        assert path.is_file(), target
        if anchor and path.suffix == ".html":
            assert unquote(anchor) in links(path).anchors, target


def test_every_public_name_has_its_place_in_the_reference():
    anchors = links(PAGES["docs/api.html"]).anchors
    assert {f"multigpu.{name}" for name in multigpu.__all__} <= anchors


def test_every_topic_of_r_has_a_page():
    assert {f"docs/reference/r/{topic}.html" for topic in TOPICS} <= PAGES.keys()
    assert len(TOPICS) > 20


# In a browser ---------------------------------------------------------------------------------------------------------


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address():
    """Where the site is served, as a host of pages would."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser():
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    assert chromium, "Expected Chromium. `.ci/install-chromium` installs it from Debian."
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(params=SCREENS)
def page(request, browser):
    """A page on one of the screens; whatever the browser complains of fails the test."""
    context = browser.new_context(viewport=SCREENS[request.param])
    page, complaints = context.new_page(), []
    page.screen = request.param
    # The browser asks for the icon once the page has loaded: if the page is left before, that request fails.
    page.goto = functools.partial(page.goto, wait_until="networkidle")
    page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda asked: complaints.append(asked.url))
    page.on("request", lambda asked: None if "127.0.0.1" in asked.url else complaints.append(asked.url))
    yield page
    page.wait_for_load_state("networkidle")
    context.close()
    assert complaints == []


def shoot(page: Page, name: str) -> None:
    PICTURES.mkdir(exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}-{page.screen}.png", full_page="full" in name)


def test_pages_fit_the_screen(page, address):
    for name in LOOKED_AT:
        page.goto(f"{address}/{name}")
        expect(page.locator("h1").first).to_be_visible()
        shoot(page, Path(name).stem)
        assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"], name
        broken = page.evaluate("[...document.images].filter(x => !x.complete || !x.naturalWidth).map(x => x.src)")
        assert broken == [], name


def test_code_fits_a_wide_screen_and_tables_have_the_width_of_the_text(page, address):
    if page.screen == "wide":
        for name in ("README.html", "docs/usage.html", "docs/multi-worker.html", "docs/numerics.html"):
            page.goto(f"{address}/{name}")
            cut = "[...document.querySelectorAll('article pre')].filter(x => x.scrollWidth > x.clientWidth + 1).length"
            assert page.evaluate(cut) == 0, name
            widths = page.evaluate("[...document.querySelectorAll('article table')].map(x => x.clientWidth)")
            assert len(set(widths)) == 1, name


def test_a_narrow_screen_has_a_drawing_of_its_own(page, address):
    page.goto(f"{address}/docs/index.html")
    shown = page.locator("article img:visible")
    expect(shown).to_have_count(1)
    assert ("narrow" in shown.get_attribute("src")) == (page.screen == "narrow")


def test_added_and_deleted_lines_differ_in_both_themes(page, address):
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.goto(f"{address}/README.html")
        colors = {
            page.evaluate(f"getComputedStyle(document.querySelector('.highlight {kind}')).color")
            for kind in (".gi", ".gd", "pre")
        }
        assert len(colors) == 3, scheme


def test_the_site_begins_with_the_first_page(page, address):
    page.goto(address)
    expect(page).to_have_url(f"{address}/docs/index.html")


def test_a_tab_chooses_the_language_on_every_page(page, address):
    page.goto(f"{address}/docs/index.html")
    in_python, in_r = page.get_by_text("model.save(").first, page.get_by_text("save_model_hdf5(").first
    expect(in_python).to_be_visible()
    expect(in_r).not_to_be_visible()
    page.locator("label.sd-tab-label", has_text="R").first.click()
    expect(in_r).to_be_visible()
    expect(in_python).not_to_be_visible()
    shoot(page, "tab-r")
    page.goto(f"{address}/README.html")
    expect(page.get_by_text("install_multigpu()").first).to_be_visible()
    expect(page.locator("label.sd-tab-label", has_text="R").first).to_be_visible()
    expect(page.get_by_text("save_model_hdf5(").first).to_be_visible()


def test_search_finds_pages_in_both_languages(page, address):
    for words, found in IN_SEARCH.items():
        page.goto(f"{address}/search.html?q={words}")
        expect(page.locator(f'#search-results a[href*="{found}"]').first).to_be_visible()
        page.wait_for_load_state("networkidle")  # it reads the pages that it found
    shoot(page, "search")


def test_dark_mode_is_dark(page, address):
    page.emulate_media(color_scheme="dark")
    page.goto(f"{address}/docs/index.html")
    colors = page.evaluate("getComputedStyle(document.body).backgroundColor").strip("rgb()").split(",")
    assert max(map(int, colors[:3])) < 60
    shoot(page, "dark")
    button = page.locator(".theme-toggle:visible").first
    while page.evaluate("document.body.dataset.theme") != "light":
        button.click()
    colors = page.evaluate("getComputedStyle(document.body).backgroundColor").strip("rgb()").split(",")
    assert min(map(int, colors[:3])) > 200


def test_the_list_of_pages_opens_on_a_narrow_screen(page, address):
    page.goto(f"{address}/docs/index.html")
    entry = page.locator(".sidebar-tree a", has_text="Saving").first
    if page.screen == "narrow":
        page.locator("label.nav-overlay-icon:visible").first.click()
    expect(entry).to_be_in_viewport()
    entry.click()
    expect(page).to_have_url(f"{address}/docs/saving.html")
