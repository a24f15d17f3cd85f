"""A bucket of a million files whose names only grow: what a run asks the store does not depend on how many there are.

The bucket is made up: a server that answers S3's listings and reads for names that it can tell, and counts what it is
asked.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from lakeseal.ingest import Dataset, FilesSource

PAGE = 1000
_ENTRY = (
    "<Contents><Key>landing/{n:09}.json</Key><LastModified>2026-03-01T10:00:00.000Z</LastModified>"
    '<ETag>"{n}"</ETag><Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>'
)


class Bucket(ThreadingHTTPServer):
    files = 0
    listings = 0
    others = 0


def _content(number: int) -> bytes:
    return b'{"id": %d}\n' % number


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Bucket

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(asked.query, keep_blank_values=True).items()}
        if "list-type" in query:
            self._list(query)
        else:
            self._object(asked.path)

    def do_HEAD(self) -> None:
        self._object(urlsplit(self.path).path)

    def _list(self, query: dict[str, str]) -> None:
        self.server.listings += 1
        after = query.get("continuation-token") or query.get("start-after") or ""
        name = after.removeprefix("landing/").removesuffix(".json")
        first = int(name) + 1 if name else 0
        last = min(self.server.files, first + PAGE)
        more = last < self.server.files
        entries = "".join(_ENTRY.format(n=n, size=len(_content(n))) for n in range(first, last))
        token = f"<NextContinuationToken>landing/{last - 1:09}.json</NextContinuationToken>" if more else ""
        self._say(
            '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name>'
            f"<Prefix>{query.get('prefix', '')}</Prefix><KeyCount>{last - first}</KeyCount><MaxKeys>{PAGE}</MaxKeys>"
            f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{entries}</ListBucketResult>".encode()
        )

    def _object(self, path: str) -> None:
        self.server.others += 1
        number = int(path.rpartition("/")[2].removesuffix(".json"))
        self._say(_content(number), number)

    def _say(self, body: bytes, number: int | None = None) -> None:
        wanted = self.headers.get("Range")
        self.send_response(200 if wanted is None else 206)
        if wanted is not None:
            first, last = wanted.removeprefix("bytes=").split("-")
            start = int(first) if first else max(0, len(body) - int(last))  # or a tail
            end = min(len(body), int(last) + 1) if first else len(body)
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(body)}")
            body = body[start:end]
        self.send_header("Content-Length", str(len(body)))
        if number is not None:
            self.send_header("ETag", f'"{number}"')
            self.send_header("Last-Modified", "Sun, 01 Mar 2026 10:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with Bucket(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_a_run_over_a_million_files_lists_what_is_behind_the_last_name_only(lake: Any, bucket: Bucket) -> None:
    options = {
        "aws_endpoint": f"http://127.0.0.1:{bucket.server_port}",
        "aws_allow_http": "true",
        "aws_access_key_id": "a",
        "aws_secret_access_key": "b",
        "aws_region": "us-east-1",
    }
    source = FilesSource(path="s3://b/landing", format="json", schema="id long", ordered=True, storage_options=options)
    pipeline = lake.pipeline(Dataset(name="a", source=source, target=lake.to_table()))
    asked = {}
    for count in (1_000, 1_000_000):
        bucket.files = count
        pipeline.reset("a", {"": {"key": f"{count - 4:09}.json"}})
        bucket.listings = bucket.others = 0
        assert pipeline.run().rows == 3
        assert pipeline.run().state == "nothing_new"
        asked[count] = (bucket.listings, bucket.others)
        assert [mark.value for mark in pipeline.watermarks()] == [{"key": f"{count - 1:09}.json"}]
    assert asked[1_000] == asked[1_000_000]
    assert asked[1_000_000][0] == 2, "one for each run; all of the names would take a thousand"
