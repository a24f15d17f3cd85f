"""`rest`: records of an HTTP interface that answers in JSON, page by page.

The driver fetches all pages once, and what it got is the unit: an interface can't be asked for the same answer twice,
so what tasks read, as often as they do, is what was answered then. With a `cursor`, the largest value of a column is
the watermark, and the next run asks for what is behind it; without one, every run gets everything, and nothing is new
if the answer is the same as the last one.

What comes from outside is bounded: the size of an answer, as it unfolds, and of all of them, the number of pages, how
long a server may ask us to wait. A next page has to be at the same server, and not one that was there before. What a
server is too busy for is asked again, after a pause that it may name; a redirect is not followed, as it would take the
secrets along.
"""

from __future__ import annotations

import base64
import hashlib
import math
import time
import urllib.parse
import zlib
from collections.abc import Iterator, Mapping
from decimal import Context
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import msgspec
import pyarrow as pa
from msgspec import Raw, Struct

from lakeseal import clock
from lakeseal.backoff import Backoff
from lakeseal.errors import InvalidArgument, SourceChanged, SourceUnavailable, Unsupported
from lakeseal.expr.schema_text import parse_schema
from lakeseal.files.json_records import JsonRecords
from lakeseal.ingest.idle_options import refuse_idle
from lakeseal.ingest.posting import check_address, check_headers
from lakeseal.ingest.sources.source import Chunk, Plan, RejectedRecord, Source, Watermark, WorkUnit, register_source
from lakeseal.protocol.schema import DATE, STRING, TIMESTAMP, TIMESTAMP_NTZ, DecimalType, StructType

_BUSY = (408, 425, 429, 500, 502, 503, 504)
_BACKOFF = Backoff(first_s=0.5, longest_s=30)
_ALL_DIGITS = Context(prec=100)
_CHUNK = 10_000
_PIECE = 2**20
_POLITE_S = 60.0
"""The longest pause that a server may ask for."""


class RestPages(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    by: Literal["page", "offset", "cursor", "link"]
    """page, offset: counted, until a page is empty. cursor: the answer has what to ask for next. link: it has the whole
    address, or the header Link has."""
    param: str = "page"
    """What carries the page's number, the offset, or the cursor."""
    first: int = 1
    """The first page's number."""
    size_param: str | None = None
    """What carries the number of records that are asked for; nothing does if it is not given."""
    size: int = 100
    """Records of a page."""
    next: str = "next"
    """Where in the answer the cursor or the address is, such as `meta.next`."""

    def __post_init__(self) -> None:
        idle = {"page": ["next"], "offset": ["first", "next"], "cursor": ["first"], "link": ["param", "first"]}
        refuse_idle(self, idle[self.by], f"where pages go by: {self.by}")
        if self.size_param is None:
            refuse_idle(self, ["size"], "without a size_param", "Add size_param: limit, or leave it out")


class RestCursor(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    column: str
    """Of which the largest value is remembered."""
    param: str
    """What asks for records behind it."""
    inclusive: bool = False
    """Records with the last value come again, for targets that tell them apart by keys; else they are left out."""


@register_source
class RestSource(Source, frozen=True, kw_only=True, tag="rest"):
    url: str
    schema: str
    """Of the records, as Spark writes it."""
    records: str = ""
    """Where in the answer the list of records is, such as `data.items`; the answer itself if it is not given."""
    params: dict[str, str] = msgspec.field(default_factory=dict)
    """Of the address, beside those of pages and cursor."""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    """Secrets come from the environment: {Authorization: "Bearer ${TOKEN}"}."""
    pages: RestPages | None = None
    """How to ask for more; one answer is all if it is not given."""
    cursor: RestCursor | None = None
    """How to ask for what is new; all is read each time if it is not given."""
    max_per_second: float | None = None
    """Requests; no limit if it is not given."""
    retries: int = 5
    """Of a request that the server is too busy for, or that gets no answer."""
    timeout_seconds: float = 30.0
    """How long the server may be silent."""
    max_pages: int = 10_000
    """Of a run."""
    max_answer_bytes: int = 32 * 2**20
    """Of one answer."""
    max_bytes: int = 256 * 2**20
    """Of all answers of a run."""

    def __post_init__(self) -> None:
        columns = parse_schema(self.schema)
        check_address(self.url)
        check_headers(self.headers)
        if self.cursor is not None and columns.field(self.cursor.column) is None:
            raise InvalidArgument(f"The cursor's column {self.cursor.column!r} is not in the schema")
        if self.max_per_second is not None and self.max_per_second <= 0:
            raise InvalidArgument("max_per_second must be above 0")

        if self.pages is None:
            refuse_idle(self, ["max_pages"], "without pages", "Add pages: {by: page}, or leave it out")

    @property
    def commit_policies(self) -> tuple[str, ...]:
        return ("full",)

    def check_target(self, mode: str) -> None:
        if self.cursor is not None and self.cursor.inclusive and mode == "append":
            raise InvalidArgument(
                "A cursor that is inclusive brings records again, which a target in the mode 'append' would have twice",
                hint="Leave inclusive out, or give the target mode: upsert and keys",
            )

    def describe(self) -> str:
        parts = urllib.parse.urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def row_schema(self) -> StructType:
        return parse_schema(self.schema)

    def plan(self, watermarks: Mapping[str, Watermark]) -> Plan:
        mark = watermarks.get("")
        found = list(self._records(mark))
        if self.cursor is None:
            told = hashlib.sha256(b"\n".join(found)).hexdigest()
            if mark is not None and mark["hash"] == told:
                return Plan()
            high: dict[str, Any] = {"run": 1 if mark is None else mark["run"] + 1, "hash": told}
            return self._unit(found, mark, high)
        last = None if mark is None else mark["last"]
        values = [_value(record, self.cursor.column) for record in found]
        *places, end = self._places([*values, last])
        if last is not None and end is None:
            raise SourceChanged(
                f"{self.cursor.column!r} was read up to {last!r}, which is none of its values any more",
                hint="Say where to go on: lakeseal ingest reset",
            )
        fresh = [
            record
            for record, place in zip(found, places, strict=True)
            if end is None or place is None or place > end or (self.cursor.inclusive and place == end)
        ]
        pairs = [(place, value) for place, value in zip(places, values, strict=True) if place is not None]
        largest, spelt = max(pairs, default=(None, None), key=lambda pair: pair[0])
        if not fresh or largest is None or (end is not None and largest <= end):
            # Without a larger value there is nothing to remember them by: they would come again and again.
            return Plan(
                notes=(f"{len(fresh)} records have no {self.cursor.column!r} behind the last one",) if fresh else ()
            )
        # What is behind may be spelt as a smaller text: beside its place the watermark still grows.
        is_plain = isinstance(spelt, int | float) or largest == spelt
        return self._unit(fresh, mark, {"last": spelt, **({} if is_plain else {"at": largest})})

    def _places(self, values: list[Any]) -> list[Any]:
        """By which values are compared: as the column has them, however they are spelt. As texts, 10:00:00Z is behind
        10:00:00.5Z, and 9 behind 10. None for what is none, which the reader tells of."""
        assert self.cursor is not None
        field = self.row_schema().field(self.cursor.column)
        assert field is not None, "the cursor's column is in the schema"
        if field.type == STRING:
            kinds = {isinstance(value, str) for value in values if value is not None}
            if len(kinds) > 1:
                raise _odd(f"{field.name!r} is a number here and a text there: it has no largest value")
            return values
        known = [(at, value) for at, value in enumerate(values) if value is not None]
        parsed = JsonRecords(StructType((field,))).parse([msgspec.json.encode({field.name: one}) for _, one in known])
        column = parsed.rows.column(0)
        if field.type == DATE:
            column = column.cast(pa.int32())
        elif field.type in (TIMESTAMP, TIMESTAMP_NTZ):
            column = column.cast(pa.int64())
        found_places = column.to_pylist()
        if isinstance(field.type, DecimalType):
            # Watermarks are JSON, in which a decimal is a text, and 10 before 9.
            found_places = [int(place.scaleb(field.type.scale, _ALL_DIGITS)) for place in found_places]
        numbers = range(len(known)) if parsed.record_numbers is None else parsed.record_numbers
        found = {known[number][0]: place for number, place in zip(numbers, found_places, strict=True)}
        return [found.get(at) for at in range(len(values))]

    def _unit(self, records: list[bytes], mark: Watermark, high: Any) -> Plan:
        payload = {"records": [_written(record) for record in records]}
        return Plan(
            units=(WorkUnit(partition="", low=mark, high=high, size=sum(map(len, records)) + 1, payload=payload),)
        )

    def read(self, unit: WorkUnit) -> Iterator[Chunk]:
        parser = JsonRecords(self.row_schema())
        texts = [_read(record) for record in unit.payload["records"]]
        for start in range(0, len(texts), _CHUNK):
            part = texts[start : start + _CHUNK]
            parsed = parser.parse(part)
            bad = tuple(
                RejectedRecord.of(one.reason, part[one.at], f"record {start + one.at + 1}") for one in parsed.misfits
            )
            yield Chunk(rows=parsed.rows, bad=bad, bytes=sum(map(len, part)))

    def _records(self, mark: Watermark) -> Iterator[bytes]:
        # What unfolds otherwise is not asked for: see `_unfolded`.
        headers = {"Accept-Encoding": "gzip", **self.headers}
        with _httpx().Client(headers=headers, timeout=self.timeout_seconds, follow_redirects=False) as client:
            read = 0
            for answer in self._answers(client, mark):
                read += len(answer)
                if read > self.max_bytes:
                    raise SourceUnavailable(
                        f"{self.describe()} has answered more than {self.max_bytes} bytes", hint="Raise max_bytes"
                    )
                yield from self._list(answer)

    def _answers(self, client: Any, mark: Watermark) -> Iterator[bytes]:
        pages, params = self.pages, dict(self.params)
        if self.cursor is not None and mark is not None:
            params[self.cursor.param] = str(mark["last"])
        if pages is not None and pages.size_param is not None:
            params[pages.size_param] = str(pages.size)
        address = str(_httpx().URL(self.url).copy_merge_params(params))
        if pages is not None and pages.by in ("page", "offset"):
            address = _with(address, pages.param, pages.first if pages.by == "page" else 0)
        seen: set[str] = set()
        pace = _Pace(self.max_per_second)
        count = 0
        while True:
            if address in seen:
                raise _odd(f"{self.describe()} gives a page again that it gave before")
            if len(seen) >= self.max_pages:
                raise SourceUnavailable(
                    f"{self.describe()} has more than {self.max_pages} pages", hint="Raise max_pages"
                )
            seen.add(address)
            body, link = self._fetched(client, pace, address)
            yield body
            records = len(self._list(body)) if pages is not None and pages.by in ("page", "offset") else 1
            count += records
            following = (
                None if pages is None or not records else self._next(pages, address, body, link, len(seen), count)
            )
            if following is None:
                return
            address = following

    def _next(
        self, pages: RestPages, address: str, body: bytes, link: str | None, asked: int, count: int
    ) -> str | None:
        match pages.by:
            case "page":
                return _with(address, pages.param, pages.first + asked)
            case "offset":
                return _with(address, pages.param, count)
        found = link if pages.by == "link" and link is not None else self._at(body, pages.next)
        if found in (None, ""):
            return None
        if not isinstance(found, str | int) or isinstance(found, bool):
            raise _odd(f"{self.describe()} says {found!r} where the next page should be")
        if pages.by == "cursor":
            return _with(address, pages.param, found)
        following = urllib.parse.urljoin(address, str(found))
        if urllib.parse.urlsplit(following)[:2] != urllib.parse.urlsplit(address)[:2]:
            raise _odd(f"{self.describe()} says that the next page is at another server, {following[:200]}")
        return following

    def _fetched(self, client: Any, pace: _Pace, address: str) -> tuple[bytes, str | None]:
        for tried in _BACKOFF.tries(sleep=lambda _: None):
            pace.keep()
            trouble, pause = "", _BACKOFF.pause_s(tried)
            try:
                with client.stream("GET", address) as answer:
                    if answer.status_code == 200:
                        return self._body(answer), answer.links.get("next", {}).get("url")
                    trouble = f"it answers {answer.status_code}"
                    if answer.status_code not in _BUSY:
                        raise SourceChanged(
                            f"{self.describe()} can't be read: {trouble}", hint="Check the address, params and headers"
                        )
                    pause = _asked_pause(answer.headers.get("Retry-After"), pause)
            except _httpx().HTTPError as error:
                trouble = f"{type(error).__name__}: {error}"
            if tried > self.retries:
                raise SourceUnavailable(f"{self.describe()} does not answer: {trouble}")
            time.sleep(pause)
        raise AssertionError("there is always another try")

    def _body(self, answer: Any) -> bytes:
        parts, size = [], 0
        for part in self._unfolded(answer):
            size += len(part)
            if size > self.max_answer_bytes:
                raise SourceChanged(
                    f"An answer of {self.describe()} has more than {self.max_answer_bytes} bytes",
                    hint="Ask for smaller pages, or raise max_answer_bytes",
                )
            parts.append(part)
        return b"".join(parts)

    def _unfolded(self, answer: Any) -> Iterator[bytes]:
        """A piece at a time: a few bytes may stand for gigabytes, and more so what was packed twice."""
        packed = answer.headers.get("Content-Encoding", "identity").strip().lower()
        if packed in ("", "identity"):
            yield from answer.iter_raw()
            return
        if packed not in ("gzip", "x-gzip"):
            raise _odd(f"{self.describe()} answers in the encoding {packed[:100]!r}, which was not asked for")
        unpacks = zlib.decompressobj(wbits=31)
        try:
            for piece in answer.iter_raw():
                while piece:
                    yield unpacks.decompress(piece, _PIECE)
                    piece = unpacks.unconsumed_tail
            yield unpacks.flush()
        except zlib.error as error:
            raise _odd(f"{self.describe()} answers with what is no gzip: {error}") from None
        if not unpacks.eof or unpacks.unused_data:
            raise _odd(f"An answer of {self.describe()} is cut off, or longer than it says")

    def _list(self, body: bytes) -> list[bytes]:
        found = self._raw(body, self.records)
        try:
            return [bytes(one) for one in msgspec.json.decode(found or b"[]", type=list[Raw])]
        except (msgspec.MsgspecError, RecursionError) as error:
            raise _odd(f"{self.describe()} has no list of records at {self.records!r}: {error}") from None

    def _at(self, body: bytes, path: str) -> Any:
        found = self._raw(body, path)
        return None if found is None else msgspec.json.decode(found)

    def _raw(self, body: bytes, path: str) -> bytes | None:
        try:
            for name in path.split(".") if path else ():
                found = msgspec.json.decode(body, type=dict[str, Raw]).get(name)
                if found is None:
                    return None
                body = bytes(found)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise _odd(f"{self.describe()} does not answer with JSON that has {path!r}: {error}") from None
        return body


def _odd(what: str) -> SourceChanged:
    return SourceChanged(what, hint="Ask whoever runs the server; or say otherwise what records, pages and cursor are")


class _Pace:
    """So many requests in a second, at most."""

    def __init__(self, per_second: float | None) -> None:
        self._pause = 0.0 if per_second is None else 1 / per_second
        self._next = 0.0

    def keep(self) -> None:
        now = time.monotonic()
        if now < self._next:
            time.sleep(self._next - now)
        self._next = max(now, self._next) + self._pause


def _with(address: str, name: str, value: object) -> str:
    return str(_httpx().URL(address).copy_set_param(name, str(value)))


def _httpx() -> Any:
    try:
        import httpx  # an extra
    except ModuleNotFoundError as error:
        raise Unsupported("httpx is not installed", hint="pip install 'lakeseal[server]'") from error
    return httpx


def _written(record: bytes) -> str | list[str]:
    """For the plan, which is JSON. What is not UTF-8 is a bad record, and the reader is to tell of it."""
    try:
        return record.decode()
    except UnicodeDecodeError:
        return [base64.b64encode(record).decode()]


def _read(record: str | list[str]) -> bytes:
    return record.encode() if isinstance(record, str) else base64.b64decode(record[0])


def _asked_pause(text: str | None, otherwise: float) -> float:
    """Seconds, or the moment when the server wants to be asked again."""
    try:
        seconds = float(text or "")
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text or "").timestamp() - clock.now().timestamp()
        except ValueError:
            return otherwise
    return otherwise if math.isnan(seconds) else max(0.0, min(_POLITE_S, seconds))


def _value(record: bytes, column: str) -> Any:
    try:
        found = msgspec.json.decode(record, type=dict[str, Raw]).get(column)
        value = None if found is None else msgspec.json.decode(found)
    except (msgspec.MsgspecError, RecursionError):
        return None  # a bad record, which the reader tells of
    return value if isinstance(value, int | float | str) and not isinstance(value, bool) else None
