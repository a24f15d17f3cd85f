"""Records of an HTTP interface: every page, once, whatever the server is up to."""

from __future__ import annotations

import gzip
import json
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from lakeseal.errors import InvalidArgument, LakesealError, RunFailed, SourceChanged
from lakeseal.ingest import Alert, Check, Dataset, Lineage, RestSource, Retries
from lakeseal.ingest.sources.rest import RestCursor, RestPages
from lakeseal.steps.watermarks import WatermarkChange, check_forward

SCHEMA = "id long, name string"


class Interface(ThreadingHTTPServer):
    """Serves `rows` in pages of two, in every way that pages are told."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.rows: list[Any] = []
        self.busy = 0
        self.again = "0"
        self.asked: list[str] = []
        self.packed = ("gzip", b"")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Answers(BaseHTTPRequestHandler):
    server: Interface

    def do_GET(self) -> None:
        path, asked = urlsplit(self.path).path, {k: v[0] for k, v in parse_qs(urlsplit(self.path).query).items()}
        self.server.asked.append(self.path)
        if self.server.busy:
            self.server.busy -= 1
            self.send_response(429)
            self.send_header("Retry-After", self.server.again)
            self.end_headers()
            return
        if path == "/packed":
            encoding, body = self.server.packed
            self.send_response(200)
            self.send_header("Content-Encoding", encoding)
            self.end_headers()
            self.wfile.write(body)
            return
        if self.headers.get("Authorization") != "Bearer secret":
            self.send_error(401)
            return
        since = int(asked.get("since", -1))
        rows = [row for row in self.server.rows if not isinstance(row, dict) or since < 0 or row["id"] >= since]
        match path:
            case "/pages":
                start = (int(asked["page"]) - 1) * 2
            case "/offsets" | "/cursors" | "/links":
                start = int(asked.get("at", 0))
            case _:
                start = 0
        more = start + 2 if start + 2 < len(rows) else None
        told: dict[str, Any] = {"data": {"items": rows[start : start + 2]}, "next": more}
        headers = {}
        if path == "/links" and more is not None:
            headers["Link"] = f'</links?at={more}&since={since}>; rel="next"'
        if path == "/all":
            told = {"data": {"items": rows}}
        if path == "/elsewhere":
            told["next"] = "http://localhost:1/other"
        if path == "/loops":
            told["next"] = self.path
        body = b"x" * 5000 if path == "/large" else b"[" * 100_000 if path == "/deep" else json.dumps(told).encode()
        if path == "/latin":
            body = b'{"data": {"items": [{"id": 1, "name": "a"}, {"id": 2, "name": "\xe9"}]}}'
        self.send_response(302 if path == "/moved" else 200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def interface() -> Iterator[Interface]:
    with Interface() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def source(interface: Interface, path: str, **options: Any) -> RestSource:
    given: dict[str, Any] = {"headers": {"Authorization": "Bearer secret"}, "records": "data.items", "schema": SCHEMA}
    return RestSource(url=f"{interface.url}{path}", **{**given, **options})


def dataset(lake: Any, of: RestSource, **options: Any) -> Dataset:
    given: dict[str, Any] = {"target": lake.to_table(), "retries": Retries(times=0), **options}
    return Dataset(name="d", source=of, **given)


@pytest.mark.parametrize("encoding", ["gzip", "gzip, gzip", "br"])
def test_an_answer_that_unfolds_is_stopped_where_it_is_too_large(interface: Interface, encoding: str) -> None:
    """A few thousand bytes stand for 300 MB, or for far more if they are packed twice."""
    packed = gzip.compress(b" " * (300 * 2**20), 1)
    interface.packed = (encoding, packed if encoding != "gzip, gzip" else gzip.compress(packed))
    tracemalloc.start()
    try:
        with pytest.raises(SourceChanged):
            source(interface, "/packed", max_answer_bytes=2**20).plan({})
        assert tracemalloc.get_traced_memory()[1] < 32 * 2**20
    finally:
        tracemalloc.stop()


def test_a_packed_answer_is_read_whole_or_not_at_all(interface: Interface) -> None:
    whole = gzip.compress(b'{"data":{"items":[{"id":1}]}}')
    interface.packed = ("gzip", whole)
    (unit,) = source(interface, "/packed").plan({}).units
    assert unit.payload == {"records": ['{"id":1}']}
    for wrong in (whole[:-9], b"nonsense", whole + whole):
        interface.packed = ("gzip", wrong)
        with pytest.raises(SourceChanged):
            source(interface, "/packed").plan({})


SECRET = "geheim"


@pytest.mark.field_bug("S7")
@pytest.mark.parametrize(
    "make",
    [
        lambda: RestSource(url=f"ftp://me:{SECRET}@host/", schema=SCHEMA),
        lambda: RestSource(url=f"http://[{SECRET}/", schema=SCHEMA),
        lambda: RestSource(url="http://127.0.0.1:1/", schema=SCHEMA, headers={"A": f"Bearer {SECRET}\n"}),
        lambda: RestSource(url=f"http://me:{SECRET}@127.0.0.1:1/", schema=SCHEMA, retries=0).plan({}),
        lambda: Alert(webhook=f"hooks.example/{SECRET}"),
        lambda: Alert(webhook=f"https://hooks.example/{SECRET} x"),
        lambda: Alert(webhook=f"https://hooks.example:{SECRET}/"),
        lambda: Alert(webhook="https://hooks.example/", headers={"A": f"{SECRET}\r\nX: y"}),
        lambda: Lineage(url=f"hooks.example/{SECRET}"),
        lambda: Lineage(url="https://hooks.example/", headers={"A": f"{SECRET}é"}),
    ],
)
def test_a_secret_in_an_address_or_a_header_is_not_told_with_what_is_wrong_with_it(make: Callable[[], Any]) -> None:
    with pytest.raises(LakesealError) as raised:
        make()
    assert SECRET not in str(raised.value)
    assert SECRET not in str(raised.value.__cause__ or "")


def test_a_place_has_no_password() -> None:
    assert RestSource(url=f"https://me:{SECRET}@host/a?b", schema=SCHEMA).place() == "rest://https://host/a"


PAGES = {
    "/pages": RestPages(by="page"),
    "/offsets": RestPages(by="offset", param="at"),
    "/cursors": RestPages(by="cursor", param="at"),
    "/links": RestPages(by="link", next="no.such"),
}


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_read_and_what_comes_later_by_the_cursor(lake: Any, interface: Interface, path: str) -> None:
    interface.rows = [{"id": n, "name": str(n)} for n in range(5)]
    of = source(interface, path, pages=PAGES[path], cursor=RestCursor(column="id", param="since"))
    pipeline = lake.pipeline(dataset(lake, of))
    pipeline.run()
    assert sorted(lake.table().to_arrow()["id"].to_pylist()) == [0, 1, 2, 3, 4]
    assert pipeline.run().state == "nothing_new"
    interface.rows += [{"id": n, "name": str(n)} for n in range(5, 12)]
    interface.busy = 2
    pipeline.run()
    assert sorted(lake.table().to_arrow()["id"].to_pylist()) == list(range(12))
    assert any("since=4" in asked for asked in interface.asked)


def test_no_more_is_asked_in_a_second_than_is_said(interface: Interface, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that stands still but for pauses and answers."""
    now, asked = [100.0], list[float]()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda pause: now.__setitem__(0, now[0] + pause))
    fetched = RestSource._body

    def body(self: RestSource, answer: Any) -> bytes:
        asked.append(now[0])
        now[0] += 0.1
        return fetched(self, answer)

    monkeypatch.setattr(RestSource, "_body", body)
    interface.rows = [{"id": n} for n in range(9)]
    assert source(interface, "/links", pages=RestPages(by="link"), max_per_second=4).plan({}).units
    assert asked == pytest.approx([100.0, 100.25, 100.5, 100.75, 101.0])
    asked.clear()
    assert source(interface, "/links", pages=RestPages(by="link"), max_per_second=20).plan({}).units
    assert [later - one for one, later in pairwise(asked)] == pytest.approx([0.1] * 4)


def test_a_pause_may_be_a_moment(interface: Interface, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    now = datetime.now(UTC)
    for again, least, most in (
        (format_datetime(now + timedelta(seconds=40), usegmt=True), 30, 41),
        (format_datetime(now - timedelta(seconds=40), usegmt=True), 0, 0),
        (format_datetime(now + timedelta(days=2), usegmt=True), 60, 60),
        ("7", 7, 7),
        ("nan", 0, 1),
        ("soon", 0, 1),
    ):
        interface.busy, interface.again = 1, again
        slept.clear()
        assert not source(interface, "/all").plan({}).notes
        assert len(slept) == 1
        assert least <= slept[0] <= most, (again, slept)


def test_a_cursor_of_times_is_compared_as_times(lake: Any, interface: Interface) -> None:
    """As texts, …:00Z is behind …:00.5Z, and 11:00+02:00 behind both."""
    schema = "id long, at timestamp"
    of = source(interface, "/all", cursor=RestCursor(column="at", param="after"), schema=schema)
    pipeline = lake.pipeline(Dataset(name="d", source=of, target=lake.to_table()))
    spelt = ["2026-01-01T09:00:00Z", "2026-01-01T09:00:00.5Z", "2026-01-01T11:00:01+02:00", "2026-01-01T09:00:02Z"]
    for number, at in enumerate(spelt):
        interface.rows.append({"id": number, "at": at})
        assert pipeline.run().rows == 1
        assert pipeline.run().state == "nothing_new"
    assert sorted(lake.ids().elements()) == [0, 1, 2, 3]


def test_a_record_that_is_no_text_is_set_aside(lake: Any, interface: Interface) -> None:
    of = source(interface, "/latin")
    dataset = Dataset(name="d", source=of, target=lake.to_table(mode="replace"), on_bad_record="error_table")
    assert lake.pipeline(dataset).run().rows == 1
    assert lake.table().to_arrow().to_pylist() == [{"id": 1, "name": "a"}]
    assert lake.table("t_errors").to_arrow().num_rows == 1


def test_without_a_cursor_the_whole_answer_replaces_what_was_there(lake: Any, interface: Interface) -> None:
    interface.rows = [{"id": 1}, {"id": 2}]
    pipeline = lake.pipeline(dataset(lake, source(interface, "/all"), target=lake.to_table(mode="replace")))
    pipeline.run()
    assert pipeline.run().state == "nothing_new"
    interface.rows = [{"id": 2}]
    pipeline.run()
    assert lake.table().to_arrow()["id"].to_pylist() == [2]


def test_records_that_are_no_rows_are_set_aside_by_their_number(lake: Any, interface: Interface) -> None:
    interface.rows = [{"id": 1}, {"id": "many"}, 7, {"id": 2}]
    lake.pipeline(dataset(lake, source(interface, "/all"), on_bad_record="error_table")).run()
    assert sorted(lake.table().to_arrow()["id"].to_pylist()) == [1, 2]
    assert lake.table("t_errors").to_arrow()["position"].to_pylist() == ["record 2", "record 3"]


@pytest.mark.parametrize("wrong", ["many", [2], {"a": 2}, None, 2**70])
def test_a_record_without_a_cursor_is_set_aside_and_a_row_once_the_server_has_mended_it(
    lake: Any, interface: Interface, wrong: Any
) -> None:
    """Nothing else is held up by it."""
    interface.rows = [{"id": 1, "name": "a"}, {"id": wrong, "name": "b"}, {"id": 2, "name": "c"}]
    of = source(interface, "/all", cursor=RestCursor(column="id", param="after"))
    rule = Check(rule="id IS NOT NULL", on_fail="error_table")
    pipeline = lake.pipeline(dataset(lake, of, on_bad_record="error_table", quality=(rule,)))
    assert pipeline.run().dataset("d").rows == 2
    [told] = lake.table("t_errors").to_arrow().to_pylist()
    assert told["reason"]
    assert json.loads(told["record"])["name"] == "b"
    assert pipeline.run().state == "nothing_new"
    interface.rows[1] = {"id": 3, "name": "b"}
    assert pipeline.run().dataset("d").rows == 1
    assert sorted(lake.table().to_arrow()["name"].to_pylist()) == ["a", "b", "c"]


def test_a_cursor_of_decimals_in_texts_is_compared_as_decimals(lake: Any, interface: Interface) -> None:
    """As a text, 10 is before 9."""
    of = source(interface, "/all", cursor=RestCursor(column="at", param="after"), schema="id long, at decimal(20,2)")
    pipeline = lake.pipeline(dataset(lake, of))
    for number, at in enumerate(["9.5", "10", 10.25, "100.00"]):
        interface.rows.append({"id": number, "at": at})
        assert pipeline.run().rows == 1, at
        assert pipeline.run().state == "nothing_new"


def test_a_watermark_of_decimals_grows_as_it_is_kept(interface: Interface) -> None:
    """As the steps of a commit keep it, which another run may have to finish."""
    of = source(interface, "/all", cursor=RestCursor(column="at", param="after"), schema="id long, at decimal(38,2)")
    mark: Any = None
    for number, at in enumerate(
        ["-10", "-9", "9.5", "10", 10.25, "100.00", "1" + 35 * "0" + ".01", "1" + 35 * "0" + ".1"]
    ):
        interface.rows.append({"id": number, "at": at})
        (unit,) = of.plan({} if mark is None else {"": mark}).units
        kept = json.loads(msgspec.json.encode(unit.high))
        check_forward(WatermarkChange(partition="", expected=mark, value=kept))
        assert not of.plan({"": kept}).units
        mark = kept


def test_cursors_of_one_value_that_are_spelt_as_number_and_text_are_one(lake: Any, interface: Interface) -> None:
    of = source(interface, "/all", cursor=RestCursor(column="at", param="after"), schema="id long, at decimal(20,2)")
    pipeline = lake.pipeline(dataset(lake, of))
    interface.rows = [{"id": 1, "at": 5.1}, {"id": 2, "at": "5.10"}]
    assert pipeline.run().rows == 2
    assert pipeline.run().state == "nothing_new"


def test_a_cursor_that_is_none_of_its_column_any_more_is_told(lake: Any, interface: Interface) -> None:
    interface.rows = [{"id": 1, "name": "x"}]
    by_name = source(interface, "/all", cursor=RestCursor(column="name", param="after"))
    lake.pipeline(dataset(lake, by_name)).run()
    changed = source(
        interface, "/all", cursor=RestCursor(column="name", param="after"), schema="id long, name timestamp"
    )
    with pytest.raises(RunFailed, match="read up to 'x'"):
        lake.pipeline(dataset(lake, changed)).run()


@pytest.mark.parametrize(
    ("path", "options", "told"),
    [
        ("/elsewhere", {"pages": RestPages(by="link")}, "another server"),
        ("/loops", {"pages": RestPages(by="link")}, "gave before"),
        ("/large", {"max_answer_bytes": 1000}, "more than 1000 bytes"),
        ("/deep", {}, "JSON"),
        ("/moved", {}, "it answers 302"),
        ("/all", {"records": "data"}, "no list of records"),
        ("/all", {"headers": {}}, "it answers 401"),
        ("/pages", {"pages": RestPages(by="page"), "max_pages": 2}, "more than 2 pages"),
        ("/all", {"max_bytes": 10}, "more than 10 bytes"),
    ],
)
def test_a_server_that_is_up_to_something_is_told_of_and_nothing_is_published(
    lake: Any, interface: Interface, path: str, options: dict[str, Any], told: str
) -> None:
    interface.rows = [{"id": n} for n in range(9)]
    pipeline = lake.pipeline(dataset(lake, source(interface, path, **options)))
    with pytest.raises(RunFailed, match=told) as raised:
        pipeline.run()
    assert "secret" not in str(raised.value)
    assert "checkpoint" not in str(raised.value), "which is of Spark's streams"
    assert not pipeline.watermarks()


def test_what_is_no_address_or_no_column_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="HTTP"):
        RestSource(url="file:///etc/passwd", schema=SCHEMA)
    with pytest.raises(InvalidArgument, match="'at' is not in the schema"):
        RestSource(url="http://x", schema=SCHEMA, cursor=RestCursor(column="at", param="since"))
