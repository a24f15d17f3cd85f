"""The site of the docs: it is built with every link right, and is read without a network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from support.chromium import BROWSER, DRIVER, MISSING, chromium

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "build" / "screenshots" / "site"
LOADED = re.compile(r"""<(?:script|link|img|iframe)[^>]*?(?:src|href)=["']?(https?:)?//""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocstrings", reason="the site needs pip install 'lakeseal[docs]'")
    place = tmp_path_factory.mktemp("site")
    call = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)]
    asks = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(call, cwd=ROOT, env=asks, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return place


def test_every_page_and_every_public_name_is_there(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs")).with_suffix(".html").exists(), page
    python = (site / "reference" / "python.html").read_text(encoding="utf-8")
    for name in ("Table.merge", "Catalog.grant", "Repository.write", "Pipeline.run", "transaction", "sql"):
        assert f".{name}" in python, name
    assert "lakeseal branch read" in (site / "reference" / "command-line.html").read_text(encoding="utf-8")
    assert "on_fail" in (site / "reference" / "pipeline-yaml.html").read_text(encoding="utf-8")


def test_every_page_is_reached_from_the_contents_and_from_the_index() -> None:
    contents = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if page not in contents] == []
    assert [page for page in pages if f"]({page}" not in index and page != "index.md"] == []


@pytest.mark.skipif(BROWSER is None or DRIVER is None, reason=MISSING)
def test_the_site_is_searched_in_a_browser_that_reaches_nothing_but_its_server(site: Path, tmp_path: Path) -> None:
    with (
        _served(site) as url,
        chromium(tmp_path, "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1") as browser,
    ):
        browser.resize(1440)
        browser.open(f"{url}/index.html")
        browser.type(".md-search__input", "takeover epoch")
        browser.wait(lambda: bool(browser.run("return document.querySelectorAll('.md-search-result__link').length")))
        browser.run("document.querySelector('.md-search-result__link').click()")
        browser.wait(lambda: "index.html" not in browser.url)
        loaded = browser.run("return performance.getEntriesByType('resource').map((one) => one.name)")
        assert [one for one in loaded if not one.startswith((url, "data:"))] == []
        assert browser.errors() == []
        for wide in (390, 1440):
            browser.resize(wide)
            for page in ("index.html", "tutorial.html", "console.html", "reference/python.html", "limits.html"):
                browser.open(f"{url}/{page}")
                browser.picture(PICTURES / f"{page.replace('/', '-').removesuffix('.html')}-{wide}.png")
                wider = browser.run("return document.documentElement.scrollWidth - window.innerWidth")
                assert wider <= 0, f"{page} is {wider} pixels too wide"


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loaded = [
        f"{page.name}: {found[0]}"
        for page in site.rglob("*.html")
        for found in [LOADED.search(page.read_text())]
        if found
    ]
    assert loaded == []
