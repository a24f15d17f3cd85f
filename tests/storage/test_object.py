"""Object stores: names on the wire, lost replies, refusals, what other tools leave in a bucket."""

from __future__ import annotations

import re
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.s3.models import s3_backends

from lakeseal.errors import (
    LakesealError,
    ObjectNotFound,
    OutOfSpace,
    PermissionDenied,
    StorageError,
    StorageUnavailable,
)
from lakeseal.storage import Store, open_store
from lakeseal.testing.proxy import Proxy, ProxyFault, Request, faulty_proxy
from lakeseal.testing.s3 import S3Server

ODD = "a=1%3A2/b c#?é&+.parquet"


@pytest.fixture
def bucket(s3: S3Server) -> Iterator[Any]:
    """The bucket as another vendor's client sees it."""
    options = s3.storage_options
    resource = boto3.resource(
        "s3",
        endpoint_url=s3.endpoint,
        aws_access_key_id=options["aws_access_key_id"],
        aws_secret_access_key=options["aws_secret_access_key"],
        region_name="us-east-1",
    )
    yield resource.Bucket(s3.bucket)
    resource.meta.client.close()


@pytest.fixture
def root() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def store(s3: S3Server, root: str) -> Store:
    return open_store(s3.uri(root), s3.storage_options)


@pytest.fixture
def through(s3: S3Server, root: str) -> Iterator[Callable[..., tuple[Store, Proxy]]]:
    """The same place, reached through a proxy that harms requests."""
    with ExitStack() as stack:

        def open_through(fault: Callable[[Request], ProxyFault | int | None], **options: str) -> tuple[Store, Proxy]:
            proxy = stack.enter_context(faulty_proxy(s3.endpoint, fault))
            settings = {**s3.storage_options, "aws_endpoint_url": proxy.endpoint, **options}
            return open_store(s3.uri(root), settings), proxy

        yield open_through


def test_a_key_that_we_write_has_exactly_that_name_in_the_bucket(store: Store, bucket: Any, root: str) -> None:
    store.put_if_absent(ODD, b"one")
    with store.open_write(ODD + "2") as stream:
        stream.write(b"two")
    found = {item.key: item.get()["Body"].read() for item in bucket.objects.filter(Prefix=root)}
    assert found == {f"{root}/{ODD}": b"one", f"{root}/{ODD}2": b"two"}


def test_a_key_that_another_client_wrote_is_listed_and_read_under_exactly_that_name(
    store: Store, bucket: Any, root: str
) -> None:
    bucket.put_object(Key=f"{root}/{ODD}", Body=b"theirs")
    assert [meta.key for meta in store.list(recursive=True)] == [ODD]
    assert store.list_keys("a=1%3A2/") == [ODD]
    assert store.get(ODD) == b"theirs"
    assert not store.put_if_absent(ODD, b"ours")
    store.delete([ODD])
    assert list(bucket.objects.filter(Prefix=root)) == []


@pytest.mark.parametrize("fault", [ProxyFault.LOSE_REPLY, ProxyFault.STALL, ProxyFault.LOSE_REQUEST, 500, 503])
def test_a_conditional_put_without_an_answer_is_unknown_and_is_sent_only_once(
    store: Store, through: Callable[..., tuple[Store, Proxy]], fault: ProxyFault | int
) -> None:
    harmed, proxy = through(lambda request: fault if request.method == "PUT" else None, timeout="1s")
    with pytest.raises(StorageUnavailable, match="read it back") as caught:
        harmed.put_if_absent("k", b"mine")
    assert caught.value.file == "k"
    assert [request.method for request in proxy.requests] == ["PUT"]
    landed = fault in (ProxyFault.LOSE_REPLY, ProxyFault.STALL)
    assert store.list_keys() == (["k"] if landed else [])


def test_other_requests_are_repeated_until_they_get_through(
    store: Store, through: Callable[..., tuple[Store, Proxy]]
) -> None:
    seen: list[str] = []

    def fail_first(request: Request) -> ProxyFault | int | None:
        seen.append(request.method)
        return [ProxyFault.LOSE_REPLY, 503, None][min(seen.count(request.method) - 1, 2)]

    harmed, _ = through(fail_first)
    harmed.put("k", b"data")
    assert harmed.get("k") == b"data"
    assert store.get("k") == b"data"
    assert seen == ["PUT"] * 3 + ["GET"] * 3


def test_a_refusal_although_there_is_no_object_is_tried_again(
    store: Store, through: Callable[..., tuple[Store, Proxy]]
) -> None:
    # S3 answers 409 to conditional puts that meet, also when in the end none of the others is stored.
    answers = iter([409, 409])
    harmed, proxy = through(lambda request: next(answers, None) if request.method == "PUT" else None)
    assert harmed.put_if_absent("k", b"mine")
    assert store.get("k") == b"mine"
    assert [request.method for request in proxy.requests] == ["PUT", "HEAD", "PUT", "HEAD", "PUT"]


def test_a_refusal_is_believed_when_the_object_is_there(
    store: Store, through: Callable[..., tuple[Store, Proxy]]
) -> None:
    store.put("k", b"theirs")
    harmed, _ = through(lambda request: 409 if request.method == "PUT" else None)
    assert harmed.put_if_absent("k", b"mine") is False


@pytest.mark.parametrize(
    ("status", "kind"),
    [(403, PermissionDenied), (401, PermissionDenied), (507, OutOfSpace), (400, StorageError), (404, ObjectNotFound)],
)
def test_what_the_store_answers_becomes_an_error_of_ours(
    through: Callable[..., tuple[Store, Proxy]], status: int, kind: type[LakesealError]
) -> None:
    harmed, _ = through(lambda _: status, max_retries="0")
    calls: list[Callable[[], object]] = [
        lambda: harmed.get("k"),
        lambda: harmed.head("k"),
        lambda: harmed.put("k", b""),
        lambda: harmed.put_if_absent("k", b""),
        lambda: harmed.list_keys(),
        lambda: harmed.get_many(["a", "b"]),
        lambda: harmed.open_read("k"),
    ]
    for call in calls:
        with pytest.raises(LakesealError) as caught:
            call()
        assert type(caught.value) is kind


def test_a_store_that_cannot_be_reached_is_unavailable(s3: S3Server) -> None:
    nowhere = {**s3.storage_options, "endpoint": "http://127.0.0.1:9", "max_retries": "0"}
    del nowhere["aws_endpoint_url"]
    store = open_store(s3.uri(), nowhere)
    for call in (lambda: store.get("k"), lambda: store.put("k", b""), lambda: store.put_if_absent("k", b"")):
        with pytest.raises(StorageUnavailable):
            call()


def test_plain_http_without_leave_says_which_option_gives_it(s3: S3Server) -> None:
    options = s3.storage_options
    del options["allow_http"]
    with pytest.raises(StorageError, match="allow_http"):
        open_store(s3.uri(), {**options, "max_retries": "0"}).get("k")


def test_a_bucket_that_is_not_there_is_named_as_such(s3: S3Server) -> None:
    store = open_store("s3://no-such-bucket/t", s3.storage_options)
    calls: list[Callable[[], object]] = [
        lambda: store.put("k", b""),
        lambda: store.put_if_absent("k", b""),
        lambda: store.list_keys(),
        lambda: list(store.list(recursive=True)),
    ]
    for call in calls:
        with pytest.raises(ObjectNotFound, match="no bucket for s3://no-such-bucket/t"):
            call()


def test_folder_markers_of_other_tools_are_not_objects(store: Store, bucket: Any, root: str) -> None:
    for key in ["", "d/", "d/e/", "d-x", "d/file", "empty"]:
        bucket.put_object(Key=f"{root}/{key}", Body=b"x" if key == "d/file" else b"")
    assert [meta.key for meta in store.list(recursive=True)] == ["d-x", "d/file", "empty"]
    assert store.list_keys() == ["d-x", "empty"]
    assert store.list_keys("d/") == ["d/file"]
    assert store.list_keys("d/", after="d/a") == ["d/file"]


def test_an_object_whose_name_is_no_key_is_named_in_the_error(store: Store, bucket: Any, root: str) -> None:
    bucket.put_object(Key=f"{root}/d//x", Body=b"")
    with pytest.raises(StorageError, match=r"d//x.*[Rr]ename"):
        list(store.list(recursive=True))
    bucket.objects.filter(Prefix=root).delete()


def test_aborted_and_failed_uploads_leave_no_parts_in_the_bucket(
    store: Store, bucket: Any, root: str, through: Callable[..., tuple[Store, Proxy]]
) -> None:
    stream = store.open_write("aborted")
    stream.write(b"x" * (25 << 20))
    stream.abort()

    def refuse_third_part(request: Request) -> int | None:
        return 403 if request.method == "PUT" and "partNumber=3" in request.path else None

    harmed, _ = through(refuse_third_part)
    stream = harmed.open_write("failed")
    with pytest.raises(PermissionDenied), stream:
        stream.write(b"x" * (25 << 20))
    assert [upload for upload in bucket.multipart_uploads.all() if upload.object_key.startswith(root)] == []
    assert list(bucket.objects.filter(Prefix=root)) == []


def test_listing_after_a_key_jumps_over_long_subdirectories(
    store: Store, bucket: Any, root: str, through: Callable[..., tuple[Store, Proxy]]
) -> None:
    for number in range(4_500):
        s3_backends["123456789012"]["aws"].put_object(bucket.name, f"{root}/log/_sidecars/{number:05}", b"x")
    for key in ["log/00.json", "log/01.json", "log/zz", "log/_sidecars0", "log/_sidecarsx/y"]:
        store.put(key, b"x")
    watched, proxy = through(lambda _: None)
    assert watched.list_keys("log/", after="log/00.json") == ["log/01.json", "log/_sidecars0", "log/zz"]
    assert len(proxy.requests) == 3


def test_opening_a_small_file_for_reading_takes_one_request(
    store: Store, through: Callable[..., tuple[Store, Proxy]]
) -> None:
    table = pa.table({"n": range(1000)})
    with store.open_write("small.parquet") as stream:
        pq.write_table(table, stream)
    watched, proxy = through(lambda _: None)
    with watched.open_read("small.parquet") as file:
        assert pq.read_table(file).equals(table)
    assert len(proxy.requests) == 1


def test_reading_in_order_fetches_ahead(store: Store, through: Callable[..., tuple[Store, Proxy]]) -> None:
    data = bytes(range(256)) * (8 << 12)
    store.put("k", data)
    watched, proxy = through(lambda _: None)
    with watched.open_read("k") as file:
        assert b"".join(iter(lambda: file.read(10_000), b"")) == data
    assert len(proxy.requests) < 8


@pytest.mark.field_bug("S7")
def test_errors_show_no_secret_not_even_in_their_traceback(through: Callable[..., tuple[Store, Proxy]]) -> None:
    harmed, _ = through(lambda _: 403, aws_secret_access_key="s3cr3t-value", aws_session_token="t0ken-value")
    with pytest.raises(PermissionDenied) as caught:
        harmed.get("k")
    shown = "".join(traceback.format_exception(caught.value)) + repr(harmed) + harmed.uri
    for secret in ("s3cr3t-value", "t0ken-value", "Signature"):
        assert secret not in shown


class FakeCloud(ThreadingHTTPServer):
    """As much of the REST interfaces of GCS and Azure as reading, writing and deleting single objects takes."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _FakeCloudHandler)
        self.objects: dict[str, bytes] = {}
        self.turn = threading.Lock()


class _FakeCloudHandler(BaseHTTPRequestHandler):
    server: FakeCloud
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        with self.server.turn:
            taken = self.key in self.server.objects
            if taken and self.headers.get("x-goog-if-generation-match") == "0":
                return self.answer(412)
            if taken and self.headers.get("if-none-match") == "*":
                return self.answer(409)
            self.server.objects[self.key] = body
        return self.answer(201)

    def do_GET(self) -> None:
        data = self.server.objects.get(self.key)
        if data is None:
            return self.answer(404)
        wanted = self.headers.get("range")
        if wanted is None:
            return self.answer(200, data)
        first, last = wanted.removeprefix("bytes=").split("-")
        start = int(first) if first else max(len(data) - int(last), 0)
        end = min(int(last) + 1, len(data)) if first and last else len(data)
        if start >= len(data):
            return self.answer(416)
        return self.answer(206, data[start:end], {"Content-Range": f"bytes {start}-{end - 1}/{len(data)}"})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.answer(202 if self.server.objects.pop(self.key, None) is not None else 404)

    def do_POST(self) -> None:
        """Azure's batch of deletes: one answer per request, each with a status of its own."""
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        parts = []
        for number, path in enumerate(re.findall(r"^DELETE (\S+) HTTP", body, re.MULTILINE)):
            found = self.server.objects.pop(unquote(urlsplit(path).path), None) is not None
            line = "202 Accepted" if found else "404 The specified blob does not exist."
            parts.append(
                "--batchresponse\r\nContent-Type: application/http\r\n"
                f"Content-ID: {number}\r\n\r\nHTTP/1.1 {line}\r\nx-ms-request-id: 1\r\n\r\n"
            )
        answer = "".join(parts) + "--batchresponse--\r\n"
        self.answer(202, answer.encode(), {"Content-Type": "multipart/mixed; boundary=batchresponse"})

    @property
    def key(self) -> str:
        return unquote(urlsplit(self.path).path)

    def answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response_only(status)
        common = {
            "ETag": '"1"',
            "Last-Modified": "Wed, 01 Jan 2025 00:00:00 GMT",
            "x-goog-generation": "1",
            "x-ms-request-id": "1",
            "Content-Length": str(len(body)),
        }
        for name, value in {**common, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture(params=["gs", "az"])
def cloud(request: pytest.FixtureRequest) -> Iterator[tuple[Store, FakeCloud]]:
    server = FakeCloud()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    options = {
        "gs": {"google_base_url": address, "google_bearer_token": "token", "allow_http": "true"},
        "az": {
            "azure_storage_endpoint": address,
            "azure_storage_account_name": "account",
            "azure_storage_account_key": "c2VjcmV0",
            "allow_http": "true",
        },
    }
    try:
        yield open_store(f"{request.param}://container/root", options[request.param]), server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_gcs_and_azure_put_if_absent_sends_its_condition_and_reads_come_back(
    cloud: tuple[Store, FakeCloud],
) -> None:
    store, server = cloud
    assert store.put_if_absent(ODD, b"0123456789")
    assert not store.put_if_absent(ODD, b"second")
    assert [key.endswith(f"/container/root/{ODD}") for key in server.objects] == [True]
    assert store.get(ODD) == b"0123456789"
    assert store.get_range(ODD, 8, 10) == b"89"
    assert store.get_range(ODD, 10, 5) == b""
    assert store.head(ODD).size == 10
    assert store.get_many([ODD, ODD]) == [b"0123456789"] * 2
    with store.open_read(ODD) as file:
        file.seek(4)
        assert file.read(3) == b"456"
    store.put("empty", b"")
    with store.open_read("empty") as file:
        assert file.read() == b""
    with pytest.raises(ObjectNotFound):
        store.get("absent")


def test_gcs_and_azure_delete_passes_over_absent_keys(cloud: tuple[Store, FakeCloud]) -> None:
    store, server = cloud
    for key in ["a", "b", "c"]:
        store.put(key, b"")
    store.delete(["a", "absent", "c"])
    assert [key.rpartition("/")[2] for key in server.objects] == ["b"]
