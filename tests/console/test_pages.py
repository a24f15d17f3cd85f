"""The console on a real service: what is shown, to whom, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import escape, unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa
import pytest

import lakeseal
from lakeseal.clock import now_ms
from lakeseal.console.app import routes
from lakeseal.display import counted, size
from lakeseal.service import tokens
from lakeseal.service.access import Grant
from lakeseal.service.client import HttpOwner
from lakeseal.steps.books import LedgerBooks
from lakeseal.steps.fs_rename import FsRenameCommitStep
from lakeseal.steps.sequence import CommitSequence
from lakeseal.steps.store import CommitStepStore, SequenceState
from lakeseal.table import reading
from lakeseal.testing.service import service_inside
from support.shown_lake import EVIL, Shown, fill_late, mark

PAGES = ("/", "/catalog", "/branches", "/pipelines", "/audit")


def uri(shown: Shown, name: str) -> str:
    return f"file://{shown.root}/{name}"


def steps_that_wait(shown: Shown, dataset: str) -> CommitStepStore:
    """With steps of this dataset of clicks that were set aside."""
    steps = LedgerBooks(shown.service.ledger).sequences
    if steps.status("clicks", dataset) is None:
        move = FsRenameCommitStep.of(f"file://{shown.root}/from", f"file://{shown.root}/to", [])
        steps.put(CommitSequence.builder("clicks", dataset).add(move).build())
        status = steps.status("clicks", dataset)
        assert status is not None
        known = {"checksum": status.checksum, "epoch": status.epoch}
        why = f"the disk {EVIL} is full"
        steps.note("clicks", dataset, state=SequenceState.SET_ASIDE, tries=3, reason=why, **known)
    return steps


def at(page: str, **query: str) -> str:
    return f"/{page}?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())


def test_nobody_sees_a_page_without_signing_in(shown: Shown) -> None:
    with shown.browser() as stranger:
        for path in (*PAGES, at("table", uri=uri(shown, "orders")), at("repository", uri=uri(shown, "repo"))):
            page = stranger.get(path)
            assert page.url.path == "/sign-in", path
            assert "salaries" not in page.text
        assert stranger.get("/", headers={"Accept": "*/*"}).status_code == 401
        wrong = stranger.post("/sign-in", data={"form": mark(stranger.get("/sign-in").text), "token": "lks_wrong"})
        assert wrong.status_code == 401
        assert "not valid" in wrong.text
        assert "lakeseal_token" not in stranger.cookies


def test_signing_in_gives_a_cookie_that_scripts_and_other_sites_do_not_get(shown: Shown) -> None:
    with shown.browser() as browser:
        form = mark(browser.get("/sign-in").text)
        token = shown.token("ada", "reader")
        signed = browser.post("/sign-in?next=/catalog", data={"form": form, "token": token}, follow_redirects=False)
        assert (signed.status_code, signed.headers["location"]) == (303, "/catalog")
        cookie = signed.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert browser.get("/").url.path == "/"
        out = browser.post("/sign-out", data={"form": form})
        assert out.url.path == "/sign-in"
        assert browser.get("/").url.path == "/sign-in"
        elsewhere = browser.post(
            "/sign-in?next=//evil.example/", data={"form": form, "token": token}, follow_redirects=False
        )
        assert elsewhere.headers["location"] == "/"


def test_an_address_signs_nobody_in(shown: Shown) -> None:
    """Another site's link would make somebody work as somebody else, and addresses are written down by proxies."""
    with shown.browser() as browser:
        page = browser.get("/sign-in", params={"token": shown.token("ada", "reader")})
        assert "set-cookie" not in page.headers or "lakeseal_token" not in page.headers["set-cookie"]
        assert browser.get("/").url.path == "/sign-in"


def test_behind_a_trusted_proxy_with_tls_the_cookie_is_for_tls_only(tmp_path: Path) -> None:
    for trusted, said, is_secure in (
        (("127.0.0.1",), "https", True),
        (("127.0.0.1",), "https, http", False),
        ((), "https", False),
    ):
        with service_inside(ledger=f"sqlite:///{tmp_path}/ledger.db", trusted_proxies=trusted) as (url, service):
            token = tokens.create(service.ledger, "ada", (Grant.from_text("reader"),), now=now_ms())[0]
            with httpx.Client(base_url=url, trust_env=False, headers={"X-Forwarded-Proto": said}) as browser:
                shown = browser.get("/sign-in")
                form = {"form": mark(shown.text), "token": token}
                signed = browser.post("/sign-in", data=form, headers={"Cookie": _cookie(shown)})
                assert ("Secure" in signed.headers["set-cookie"]) is is_secure, (trusted, said)


def _cookie(page: httpx.Response) -> str:
    return page.headers["set-cookie"].partition(";")[0]


def test_a_revoked_token_is_out(shown: Shown) -> None:
    text = shown.token("gone", "reader")
    with shown.browser(text) as browser:
        tokens.revoke(shown.service.ledger, text.split("_")[1], now=now_ms())
        shown.service.authenticator._kept.clear()  # it is kept for a second
        assert browser.get("/").url.path == "/sign-in"


def test_tables_are_listed_and_searched(admin: httpx.Client, shown: Shown) -> None:
    page = admin.get("/").text
    for name in ("main.sales.orders", "main.sales.managed", "main.secret.salaries"):
        assert name in page
    found = admin.get("/?search=sal+orders").text
    assert "main.sales.orders" in found
    assert "salaries" not in found
    assert "Nothing has" in admin.get("/", params={"search": EVIL}).text
    assert EVIL not in admin.get("/", params={"search": EVIL}).text


def test_a_table_has_schema_history_partitions_rows_and_all_of_it_is_text(admin: httpx.Client, shown: Shown) -> None:
    page = admin.get(at("table", uri=uri(shown, "orders")))
    assert page.status_code == 200
    assert "<script>alert" not in page.text
    assert "<b>bold" not in page.text
    text = unescape(page.text)
    for told in (
        "main.sales.orders",
        f"<code>{EVIL}</code>",
        "DELETE",
        "1 row deleted",
        f"day 4 {EVIL}",
        "shop = north",
        "<b>bold</b>",
        'class="plot"',
    ):
        assert told in text, told
    expected = lakeseal.Table(shown.root / "orders")
    assert f"<dd>{expected.version()}</dd>" in page.text
    assert page.text.count('class="version"') == expected.version() + 1
    assert page.text.count("<tr>") >= expected.to_arrow().num_rows


def test_a_table_has_the_bytes_and_the_files_of_each_partition(admin: httpx.Client, shown: Shown) -> None:
    page = unescape(admin.get(at("table", uri=uri(shown, "orders"))).text)
    table = lakeseal.Table(shown.root / "orders")
    expected: dict[str, list[int]] = {}
    for one in table.files().select(["partitionValues", "size"]).to_pylist():
        expected.setdefault(f"shop = {dict(one['partitionValues'])['shop']}", []).append(one["size"])
    told = re.findall(r'<span class="label">(.*?)</span>.*?<span class="told">(.*?)</span>', page, re.DOTALL)
    assert len(expected) == 2
    assert dict(told) == {shop: f"{size(sum(of))}, {counted(len(of), 'file')}" for shop, of in expected.items()}


def test_headers_let_a_page_load_nothing_from_elsewhere(admin: httpx.Client) -> None:
    page = admin.get("/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["x-frame-options"] == "DENY"
    for path in ("/static/console.css", "/static/console.js"):
        assert admin.get(path).status_code == 200
        assert "http://" not in admin.get(path).text
    assert admin.get("/static/..%2fapp.py").status_code == 404


def test_a_reader_sees_what_the_token_may_read_and_no_more(shown: Shown, reader: Callable[..., Any]) -> None:
    with reader("orders") as browser:
        assert "main.sales.orders" in browser.get("/").text
        for path in ("/", "/catalog"):
            assert "salaries" not in browser.get(path).text
        assert browser.get(at("table", uri=uri(shown, "orders"))).status_code == 200
        for place in ("secret/salaries", "managed", "nowhere"):
            assert browser.get(at("table", uri=uri(shown, place))).status_code == 403
        assert browser.get(at("table", uri="file:///etc")).status_code == 403
        assert browser.get("/audit").status_code == 403
        assert browser.get("/pipelines").status_code == 403
        assert "role admin" in browser.get("/catalog").text
        assert "repo" not in browser.get("/branches").text.replace("repository", "").replace("Repositories", "")


def test_an_admin_is_not_led_out_of_the_services_places(admin: httpx.Client, shown: Shown) -> None:
    page = admin.get(at("table", uri="file:///etc"))
    assert page.status_code == 403
    assert "does not work on tables in this place" in page.text
    assert admin.get(at("table", uri="x" * 9000)).status_code == 400


def test_the_catalog_shows_names_and_to_admins_grants(admin: httpx.Client, shown: Shown) -> None:
    shown.token(EVIL, f"writer:{shown.root}/orders")
    page = admin.get("/catalog").text
    assert "main.sales" in page
    assert escape(EVIL) in page.replace("&#39;", "&#x27;")
    assert f"writer:file://{shown.root}/orders" in page
    assert "lks_" not in page


def test_what_is_live_is_the_inside_of_the_page_and_is_sent_when_it_changed(admin: httpx.Client) -> None:
    live = admin.get("/catalog", headers={"X-Lakeseal-Live": "1"})
    assert "<html" not in live.text
    assert "<h1>Catalog</h1>" in live.text
    again = admin.get("/catalog", headers={"X-Lakeseal-Live": "1", "If-None-Match": live.headers["etag"]})
    assert (again.status_code, again.text) == (304, "")


def test_branches_show_a_graph_a_diff_and_are_merged_and_reverted(admin: httpx.Client, shown: Shown) -> None:
    place = uri(shown, "repo")
    assert "repo" in admin.get("/branches").text
    page = admin.get(at("repository", uri=place, branch="try")).text
    assert "<circle" in page
    assert "<script>alert" not in page
    compare = admin.get(at("compare", uri=place, source="try", dest="main"))
    assert "out/b/" in compare.text
    repo = shown.repository
    before = repo.log("main", 1)[0].id
    form = {"form": mark(compare.text), "uri": place, "source": "try", "dest": "main", "message": "looked at"}
    merged = admin.post("/branch/merge", data=form)
    assert merged.status_code == 200
    assert "looked at" in merged.text
    head = repo.log("main", 1)[0]
    assert head.id != before
    assert repo.to_arrow("main", "out/b").to_pylist() == [{"a": 3}]
    undone = admin.post(
        "/branch/revert", data={"form": form["form"], "uri": place, "branch": "main", "commit": head.id}
    )
    assert undone.status_code == 200
    assert repo.list("main", "out/b") == []
    told = admin.get("/audit").text
    assert "merged try into main" in told
    assert f"reverted {head.id[:12]} on main" in told
    assert "ada" in told


def form_of(route: str, shown: Shown) -> dict[str, str]:
    """What the page of a route would send."""
    place, head = uri(shown, "repo"), shown.repository.log("main", 1)[0].id
    return {
        "/branch/merge": {"uri": place, "source": "try", "dest": "main"},
        "/branch/revert": {"uri": place, "branch": "main", "commit": head},
        "/pipeline/retry": {"name": "clicks", "dataset": "waiting"},
        "/sign-in": {"token": shown.token("eve", "admin")},
        "/sign-out": {},
    }[route]


POSTED = [
    route.path
    for route in routes(lambda request: None, lambda request, token: None)  # type: ignore[arg-type,return-value]
    if "POST" in (route.methods or ())
]


@pytest.fixture
def unchanged(shown: Shown) -> Iterator[None]:
    """Nothing that a form could change is another afterwards."""

    def now() -> tuple[object, ...]:
        status = steps_that_wait(shown, "waiting").status("clicks", "waiting")
        assert status is not None
        return shown.repository.log("main", 1)[0].id, status.state, status.tries

    before = now()
    yield
    assert now() == before == (before[0], SequenceState.SET_ASIDE, 3)


@pytest.mark.parametrize("how", ["no mark", "another's mark", "another site", "another origin", "no cookie"])
@pytest.mark.parametrize("route", POSTED)
@pytest.mark.usefixtures("unchanged")
def test_nothing_is_changed_by_a_request_from_elsewhere(route: str, how: str, shown: Shown) -> None:
    with shown.browser(shown.token("ada", "admin")) as browser, shown.browser() as other:
        form = form_of(route, shown)
        right, signed_in = mark(browser.get("/").text), browser.cookies["lakeseal_token"]
        headers = {}
        match how:
            case "another's mark":
                form["form"] = mark(other.get("/sign-in").text)
            case "another site":
                form["form"], headers["Sec-Fetch-Site"] = right, "cross-site"
            case "another origin":
                form["form"], headers["Origin"] = right, "https://evil.example"
            case "no cookie":
                form["form"] = right
                browser.cookies.delete("lakeseal_form")
        refused = browser.post(route, data=form, headers=headers)
        assert refused.status_code == 403
        assert browser.cookies["lakeseal_token"] == signed_in
        assert browser.get("/catalog").url.path == "/catalog"


@pytest.mark.parametrize("route", [route for route in POSTED if not route.startswith("/sign-")])
@pytest.mark.usefixtures("unchanged")
def test_who_may_only_read_changes_nothing(route: str, shown: Shown) -> None:
    with shown.browser(shown.token("rita", "reader")) as browser:
        page = browser.get(at("repository", uri=uri(shown, "repo")))
        assert page.status_code == 200
        assert "/branch/revert" not in page.text
        form = {**form_of(route, shown), "form": mark(browser.get("/").text)}
        assert browser.post(route, data=form).status_code == 403


def test_who_may_only_read_signs_out(reader: Callable[..., Any]) -> None:
    with reader("repo") as browser:
        out = browser.post("/sign-out", data={"form": mark(browser.get("/").text)})
        assert (out.status_code, out.url.path) == (200, "/sign-in")
        assert "lakeseal_token" not in browser.cookies


def test_pipelines_show_runs_rows_and_broken_rules(admin: httpx.Client) -> None:
    assert "clicks" in admin.get("/pipelines").text
    page = unescape(admin.get(at("pipeline", name="clicks")).text)
    assert page.count("published") >= 2
    assert "id > 0" in page
    assert "2.json" in page
    assert "with all there was at" in page
    assert "Behind the sources: " in page


def test_pipelines_show_rows_a_minute(admin: httpx.Client, shown: Shown) -> None:
    page = admin.get(at("pipeline", name="clicks")).text
    told = re.findall(r'data-label="Rows a minute" class="number">([\d,]*)<', page)
    runs = lakeseal.Pipeline.from_yaml(shown.root / "clicks.yaml").history()
    assert len(runs) == 2
    assert told == [f"{round(60_000 * one.rows / (one.ended_ms - one.started_ms)):,}" for one in runs]  # type: ignore[operator]
    assert all(int(one.replace(",", "")) > 0 for one in told)


def test_a_dataset_that_is_made_of_others_shows_what_it_is_made_of(tmp_path: Path) -> None:
    root, ledger = tmp_path.resolve(), f"sqlite:///{tmp_path}/ledger.db"
    (root / "in").mkdir()
    (root / "in" / "1.json").write_text('{"id": 1, "shop": "north"}\n{"id": 2, "shop": "north"}\n')
    (root / "p.yaml").write_text(
        f"""name: shops
ledger: {ledger}
datasets:
  - name: sold
    source: {{type: files, path: {root}/in, format: json, schema: "id long, shop string"}}
    target: {{type: table, uri: {root}/sold}}
  - name: by_shop
    source: {{type: datasets, inputs: [sold]}}
    transform: "SELECT shop, count(*) AS n FROM sold GROUP BY shop"
    target: {{type: table, uri: {root}/by_shop, mode: replace}}
"""
    )
    assert lakeseal.Pipeline.from_yaml(root / "p.yaml").run().dataset("by_shop").rows == 1
    with service_inside(ledger=ledger, rate=0, roots=(str(root),)) as (url, service):
        lake = Shown(url, service, root, ledger)
        with lake.browser(lake.token("ada", "admin")) as browser:
            page = browser.get(at("pipeline", name="shops"))
            table = browser.get(at("table", uri=uri(lake, "by_shop")))
    flow = re.search(r"<li>(?:(?!</li>).)*<b>by_shop</b>.*?</li>", page.text, re.DOTALL)
    assert flow is not None
    for told in ("the datasets sold<", ">published<", f"{root}/by_shop<", "with all there was at"):
        assert told in flow[0], told
    assert "<td>north</td><td>2</td>" in table.text


def test_rows_that_were_set_aside_are_shown_with_their_reasons(admin: httpx.Client, shown: Shown) -> None:
    page = unescape(admin.get(at("pipeline", name="clicks")).text)
    _, _, aside = page.partition("Rows set aside")
    assert uri(shown, "bad") in aside
    assert "id > 0" in aside
    assert '"name":"two"' in aside.replace(" ", "")
    table = admin.get(at("table", uri=uri(shown, "bad")))
    assert table.status_code == 200


def test_a_pipeline_that_never_came_through_says_what_failed(tmp_path: Path) -> None:
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    with service_inside(ledger=ledger, rate=0, roots=(str(tmp_path),)) as (url, service):
        lake = Shown(url, service, tmp_path.resolve(), ledger)
        fill_late(lake)
        with lake.browser(lake.token("ada", "admin")) as browser:
            page = browser.get(at("pipeline", name="late"))
    assert page.status_code == 200
    assert "failed" in page.text
    assert "is full" in page.text


def test_a_pipeline_that_nobody_knows_is_not_found(admin: httpx.Client) -> None:
    assert admin.get(at("pipeline", name=EVIL)).status_code == 404


def test_steps_that_were_set_aside_say_why_and_are_opened_again(admin: httpx.Client, shown: Shown) -> None:
    steps = steps_that_wait(shown, "late")
    page = admin.get(at("pipeline", name="clicks"))
    assert "the disk" in page.text
    assert "<script>alert" not in page.text
    retried = admin.post("/pipeline/retry", data={"form": mark(page.text), "name": "clicks", "dataset": "late"})
    assert retried.status_code == 200
    again = steps.status("clicks", "late")
    assert again is not None
    assert (again.state, again.tries) == (SequenceState.OPEN, 0)
    assert "opened the steps of late again" in admin.get("/audit").text


def test_a_commit_that_came_too_late_is_counted(shown: Shown, admin: httpx.Client) -> None:
    def late() -> int:
        page = admin.get(at("table", uri=uri(shown, "managed"))).text
        found = re.search(r"came too late for their version</dt><dd>(\d+)</dd>", page)
        return int(found[1]) if found is not None else 0

    owner = HttpOwner(shown.url, token=shown.token("carla", "writer"))
    one, other = (lakeseal.Table(shown.root / "managed", owner=owner) for _ in range(2))
    rows = pa.table({"id": [6], "shop": ["east"], EVIL: ["x"]})
    assert one.version() == other.version()
    before = late()
    stale = reading(other, other.version())
    one.write(rows)
    stale.write(rows)
    assert late() == before + 1
    assert re.search(r">carla</td>\s*<td[^>]*>came too late for a version \(", admin.get("/audit").text)


def test_pages_tell_who_committed_what_was_refused_and_how_far_logs_are_behind(
    shown: Shown, admin: httpx.Client
) -> None:
    rows = pa.table({"id": [5], "shop": ["east"], EVIL: ["x"]})
    carla, rob = shown.token("carla", "writer"), shown.token("rob", "reader")
    done = lakeseal.Table(shown.root / "managed", owner=HttpOwner(shown.url, token=carla)).write(rows)
    with pytest.raises(lakeseal.LakesealError):
        lakeseal.Table(shown.root / "managed", owner=HttpOwner(shown.url, token=rob)).write(rows)
    audit = admin.get("/audit").text
    assert re.search(rf">carla</td>\s*<td[^>]*>committed version {done.version}</td>", audit)
    assert re.search(r">rob</td>\s*<td[^>]*>was refused, not-allowed", audit)
    table = admin.get("/table", params={"uri": f"file://{shown.root}/managed"}).text
    assert "refused: not-allowed" in table
    assert "The log is behind: " in table
    assert "rob" not in table, "who it was is for those who see the audit"
    admin.get("/")
    assert "Logs are behind" in admin.get("/").text
    pipeline = admin.get("/pipeline", params={"name": "clicks"}).text
    assert f"files file://{shown.root}/incoming" in pipeline
    assert "/clicks</span>" in pipeline
