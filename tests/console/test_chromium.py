"""The console in a real browser. Pictures of every page are left in build/screenshots."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest

import lakeseal
from lakeseal.testing.service import service_inside
from support.chromium import BROWSER, DRIVER, MISSING, Chromium, chromium
from support.shown_lake import EVIL, Shown, fill, fill_more

pytestmark = pytest.mark.skipif(BROWSER is None or DRIVER is None, reason=MISSING)
PICTURES = Path(__file__).resolve().parents[2] / "build" / "screenshots"
LOOKS = [(390, "light"), (390, "dark"), (1440, "light"), (1440, "dark")]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with chromium(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """With more than others are shown: what is long, what is wide, and what went wrong."""
    root = tmp_path_factory.mktemp("lake").resolve()
    ledger = f"sqlite:///{root}/ledger.db"
    fill(root, ledger)
    with service_inside(ledger=ledger, rate=0, roots=(str(root),)) as (url, service):
        lake = Shown(url, service, root, ledger)
        fill_more(lake)
        yield lake


@pytest.fixture(scope="module")
def signed(browser: Chromium, shown: Shown) -> Chromium:
    browser.resize(1440)
    browser.open(f"{shown.url}/catalog")
    assert "/sign-in" in browser.url
    sign_in(browser, shown)
    browser.wait(lambda: browser.url == f"{shown.url}/catalog")
    return browser


def sign_in(browser: Chromium, shown: Shown) -> None:
    browser.type("#token", shown.token("ada", "admin"))
    browser.click("main button")


def pages(shown: Shown) -> dict[str, str]:
    def place(name: str) -> str:
        return quote(f"file://{shown.root}/{name}", safe="")

    return {
        "tables": "/",
        "tables-none-found": "/?search=nowhere",
        "table": f"/table?uri={place('orders')}",
        "table-wide": f"/table?uri={place('wide')}",
        "table-without-rows": f"/table?uri={place('secret/salaries')}",
        "table-refusals": f"/table?uri={place('managed')}",
        "catalog": "/catalog",
        "branches": "/branches",
        "repository": f"/repository?uri={place('repo')}&branch=try",
        "compare": f"/compare?uri={place('repo')}&source=try&dest=main",
        "compare-same": f"/compare?uri={place('repo')}&source=main&dest=main",
        "pipelines": "/pipelines",
        "pipeline": "/pipeline?name=clicks",
        "pipeline-failed": "/pipeline?name=late",
        "audit": "/audit",
        "error": "/table?uri=file%3A%2F%2F%2Fetc",
    }


def look(browser: Chromium, name: str, wide: int, scheme: str) -> None:
    """Keep a picture of what is shown, and see that nothing of it is cut off or lies over another."""
    browser.picture(PICTURES / f"{name}-{wide}{'-dark' if scheme == 'dark' else ''}.png")
    wider = browser.run("return document.documentElement.scrollWidth - window.innerWidth")
    assert wider <= 0, f"{name} is {wider} pixels too wide"
    assert browser.run("return document.querySelectorAll('main script').length") == 0
    heads = browser.run("return [...document.querySelectorAll('.cards thead')].map(one => one.clientWidth)")
    assert wide > 390 or max(heads, default=0) <= 1, f"the heads of {name} lie over its rows"
    assert browser.run(OUTSIDE) == [], name
    assert browser.run(BROKEN) == [], f"words of {name} are broken"


OUTSIDE = """
const reachable = (one) => one.closest('.scroll, .skip, svg, thead, .commits');
return [...document.querySelectorAll('header *, main *, footer *')].filter((one) => !reachable(one)).filter((one) => {
  const at = one.getBoundingClientRect();
  const isCut = one.clientWidth > 0 && one.scrollWidth > one.clientWidth + 1;
  return isCut || at.right > window.innerWidth + 1 || at.left < -1;
}).map((one) => one.outerHTML.slice(0, 200));
"""
"""What reaches beyond the page or beyond its own box, where nothing can be moved to see it."""
BROKEN = """
const tags = [...document.querySelectorAll('.tag:not(.place)')];
return tags.filter((one) => one.clientHeight > 30).map((one) => one.textContent);
"""


@pytest.mark.parametrize(("wide", "scheme"), LOOKS)
def test_every_page_fits_its_width_and_complains_of_nothing(
    wide: int, scheme: str, signed: Chromium, shown: Shown
) -> None:
    signed.resize(wide)
    signed.colours(scheme)
    for name, path in pages(shown).items():
        signed.open(shown.url + path)
        look(signed, name, wide, scheme)
    assert [one for one in signed.errors() if "403" not in one] == []


def test_a_lake_with_nothing_in_it_says_how_to_begin(tmp_path: Path) -> None:
    """And those who are not let in are told so."""
    with (
        service_inside(ledger=f"sqlite:///{tmp_path}/ledger.db", rate=0, roots=(str(tmp_path),)) as (url, service),
        chromium(tmp_path) as browser,
    ):
        lake = Shown(url, service, tmp_path, "")
        for wide, scheme in LOOKS:
            browser.resize(wide)
            browser.colours(scheme)
            browser.open(f"{url}/sign-in")
            look(browser, "sign-in", wide, scheme)
            browser.type("#token", "lks_wrong")
            browser.click("main button")
            browser.wait(lambda: bool(browser.run("return document.querySelectorAll('.wrong').length")))
            look(browser, "sign-in-refused", wide, scheme)
        sign_in(browser, lake)
        browser.wait(lambda: browser.url == f"{url}/")
        for wide, scheme in LOOKS:
            browser.resize(wide)
            browser.colours(scheme)
            for name in ("tables", "catalog", "branches", "pipelines", "audit"):
                browser.open(f"{url}/{'' if name == 'tables' else name}")
                look(browser, f"{name}-empty", wide, scheme)
                said = browser.run("return document.querySelector('.empty code') !== null")
                assert said or name == "audit", name


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
