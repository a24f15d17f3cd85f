"""The console in a real browser. Pictures of every page are left in build/screenshots."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest

import lakeseal
from support.chromium import BROWSER, DRIVER, MISSING, Chromium, chromium
from support.shown_lake import EVIL, Shown

pytestmark = pytest.mark.skipif(BROWSER is None or DRIVER is None, reason=MISSING)
PICTURES = Path(__file__).resolve().parents[2] / "build" / "screenshots"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with chromium(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@pytest.fixture(scope="module")
def signed(browser: Chromium, shown: Shown) -> Chromium:
    browser.resize(1440)
    browser.open(f"{shown.url}/catalog")
    assert "/sign-in" in browser.url
    browser.picture(PICTURES / "sign-in-1440.png")
    browser.type("#token", shown.token("ada", "admin"))
    browser.click("main button")
    browser.wait(lambda: browser.url == f"{shown.url}/catalog")
    return browser


def pages(shown: Shown) -> dict[str, str]:
    orders, repo = (quote(f"file://{shown.root}/{name}", safe="") for name in ("orders", "repo"))
    return {
        "tables": "/",
        "table": f"/table?uri={orders}",
        "catalog": "/catalog",
        "branches": "/branches",
        "repository": f"/repository?uri={repo}&branch=try",
        "compare": f"/compare?uri={repo}&source=try&dest=main",
        "pipelines": "/pipelines",
        "pipeline": "/pipeline?name=clicks",
        "audit": "/audit",
        "error": "/table?uri=file%3A%2F%2F%2Fetc",
    }


@pytest.mark.parametrize(("wide", "scheme"), [(390, "light"), (390, "dark"), (1440, "light"), (1440, "dark")])
def test_every_page_fits_its_width_and_complains_of_nothing(
    wide: int, scheme: str, signed: Chromium, shown: Shown
) -> None:
    signed.resize(wide)
    signed.colours(scheme)
    for name, path in pages(shown).items():
        signed.open(shown.url + path)
        signed.picture(PICTURES / f"{name}-{wide}{'-dark' if scheme == 'dark' else ''}.png")
        wider = signed.run("return document.documentElement.scrollWidth - window.innerWidth")
        assert wider <= 0, f"{name} is {wider} pixels too wide"
        assert signed.run("return document.querySelectorAll('main script').length") == 0
        heads = signed.run("return [...document.querySelectorAll('.cards thead')].map(one => one.clientWidth)")
        assert wide > 390 or max(heads, default=0) <= 1, f"the heads of {name} lie over its rows"
    assert [one for one in signed.errors() if "403" not in one] == []


def test_a_commit_is_shown_without_a_reload(signed: Chromium, shown: Shown) -> None:
    table = lakeseal.Table(shown.root / "orders")
    signed.resize(1440)
    signed.open(shown.url + pages(shown)["table"])
    signed.run("window.untouched = true")
    done = table.write(pa.table({"id": [77], "shop": ["live"], EVIL: [EVIL]}))
    signed.wait(lambda: signed.run("return document.querySelector('.version').textContent") == str(done.version))
    assert signed.run("return window.untouched") is True


def test_keys_lead_to_the_search_the_rows_and_the_pages(signed: Chromium, shown: Shown) -> None:
    signed.open(f"{shown.url}/")
    signed.press("jj")
    assert signed.run("return document.activeElement.className") == "row"
    signed.press("/")
    assert signed.run("return document.activeElement.id") == "search"
    signed.press("salaries\ue007")
    signed.wait(lambda: "search=salaries" in signed.url)
    assert signed.run("return document.querySelectorAll('a.row').length") == 1
    signed.run("document.activeElement.blur()")
    signed.press("gp")
    signed.wait(lambda: signed.url.endswith("/pipelines"))


def test_a_merge_asks_first_and_is_done(signed: Chromium, shown: Shown) -> None:
    repo = shown.repository
    repo.create_branch("by-hand", "main")
    repo.put("by-hand", "notes/today.txt", b"hello")
    place = quote(f"file://{shown.root}/repo", safe="")
    signed.open(f"{shown.url}/compare?uri={place}&source=by-hand&dest=main")
    signed.type("#message", "by a person")
    signed.click("main form button")
    signed.accept()
    signed.wait(lambda: "/repository" in signed.url)
    assert repo.read("main", "notes/today.txt") == b"hello"
    assert repo.log("main", 1)[0].message == "by a person"
