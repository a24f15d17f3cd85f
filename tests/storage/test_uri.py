"""URIs, storage options, and descriptions of stores that travel."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import traceback
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

import lakeseal.storage
from lakeseal.errors import InvalidArgument, InvalidUri, LakesealError, UnsafePath
from lakeseal.storage import LocalStore, StoreSpec, open_store, resolve
from lakeseal.storage.location import parse
from lakeseal.testing.s3 import S3Server

S3_OPTIONS = {"aws_access_key_id": "AKIDVALUE", "aws_secret_access_key": "SECRETVALUE", "aws_region": "eu-west-1"}


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("/data/t", "/data/t"),
        ("/data/t/", "/data/t"),
        ("//data//t//", "/data/t"),
        ("/data/./x/../t", "/data/t"),
        ("/", "/"),
        ("/data/a%20b", "/data/a%20b"),
        ("/data/a b#?é", "/data/a b#?é"),
        ("file:/data/t", "/data/t"),
        ("file:///data/t/", "/data/t"),
        ("FILE:///data/t", "/data/t"),
        ("file://localhost/data/t", "/data/t"),
        ("file:///data/a%20b%25", "/data/a b%"),
        ("file:///data/%C3%A9", "/data/é"),
        ("file:///data/x/%2e%2e/t", "/data/t"),
    ],
)
def test_a_local_uri_names_an_absolute_path(uri: str, path: str) -> None:
    assert parse(uri).path == path


def test_a_relative_path_is_relative_to_the_working_directory_and_a_tilde_is_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")
    assert parse("t").path == f"{tmp_path}/t"
    assert parse("./a:b/../t").path == f"{tmp_path}/t"
    assert parse("odd:name").path == f"{tmp_path}/odd:name"
    assert parse(Path("t")).path == f"{tmp_path}/t"
    assert parse("~/t").path == "/home/someone/t"
    assert parse("./~/t").path == f"{tmp_path}/~/t"


@pytest.mark.parametrize(
    ("uri", "normal"),
    [
        ("/data/a b", "file:///data/a%20b"),
        ("/data/a%20b", "file:///data/a%2520b"),
        ("/data/x=1/é", "file:///data/x=1/%C3%A9"),
        ("memory://name", "memory://name"),
        ("memory://name/p/", "memory://name/p"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3a://bucket/p//q/", "s3://bucket/p/q"),
        ("S3://bucket/P", "s3://bucket/P"),
        ("s3://bucket/a%20b/x=1#?&", "s3://bucket/a%20b/x=1#?&"),
        ("s3://bucket/a/./b/../c", "s3://bucket/a/c"),
        ("gs://bucket/p", "gs://bucket/p"),
        ("gcs://bucket/p", "gs://bucket/p"),
        ("az://container/p", "az://container/p"),
        ("abfss://container/p", "az://container/p"),
        (
            "abfs://container@account.dfs.core.windows.net/p/",
            "abfss://container@account.dfs.core.windows.net/p",
        ),
        ("abfss://w@onelake.dfs.fabric.microsoft.com/p", "abfss://w@onelake.dfs.fabric.microsoft.com/p"),
    ],
)
def test_a_uri_has_one_normal_form_which_means_the_same(uri: str, normal: str) -> None:
    assert parse(uri).uri == normal
    assert parse(normal) == parse(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "hdfs://namenode/t",
        "dbfs:/t",
        "https://account.blob.core.windows.net/c",
        "s3:/bucket/t",
        "s3:",
        "s3://",
        "s3:///t",
        "gs:///t",
        "memory:///t",
        "s3://bucket/../other",
        "s3://bucket/a/../../other",
        "s3://../t",
        "s3://bucket/a\nb",
        "s3://bucket/\ud800",
        "file:t",
        "file:",
        "file://host/t",
        "file://host",
        "file:///a%00b",
        "/a\0b",
        "file:///%ff",
        "az://container@evil.example.com/t",
        "abfss://container@account.dfs.core.windows.net.evil.example.com/t",
    ],
)
def test_what_is_no_uri_of_ours_is_refused(uri: str) -> None:
    with pytest.raises(InvalidUri) as caught:
        open_store(uri)
    assert caught.value.hint


@pytest.mark.parametrize(
    "uri",
    [
        "s3://AKID:SECRETVALUE@bucket/t",
        "gs://SECRETVALUE@bucket/t",
        "abfss://user:SECRETVALUE@account.dfs.core.windows.net/t",
        "az://container/t?sv=2024&sig=SECRETVALUE",
        "s3://bucket/t?X-Amz-Signature=SECRETVALUE",
        "s3://bucket/t?aws_secret_access_key=SECRETVALUE",
        "file://user:SECRETVALUE@host/t",
    ],
)
def test_a_uri_with_credentials_is_refused_and_not_repeated(uri: str) -> None:
    with pytest.raises(InvalidUri) as caught:
        open_store(uri)
    assert "SECRETVALUE" not in "".join(traceback.format_exception_only(caught.value))
    assert "SECRETVALUE" not in str(caught.value.to_json())


def test_a_memory_uri_is_the_same_store_wherever_it_is_opened() -> None:
    name = uuid.uuid4().hex
    open_store(f"memory://{name}/t").put("k", b"data")
    assert open_store(f"memory://{name}/t/").get("k") == b"data"
    assert open_store(f"memory://{name}").get("t/k") == b"data"
    assert open_store(f"memory://{name}x/t").list_keys() == []


def test_a_local_store_s_own_uri_opens_it_again(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a b%20#é")
    store.put("k", b"data")
    assert open_store(store.uri).get("k") == b"data"
    assert open_store(store.uri).uri == store.uri


def test_two_roots_of_which_one_name_begins_with_the_other_are_apart(tmp_path: Path, s3: S3Server) -> None:
    name = uuid.uuid4().hex
    for one, two in [
        (open_store(tmp_path / "t1"), open_store(tmp_path / "t10")),
        (open_store(f"memory://{name}/t1"), open_store(f"memory://{name}/t10")),
        (open_store(s3.uri(f"{name}/t1"), s3.storage_options), open_store(s3.uri(f"{name}/t10"), s3.storage_options)),
    ]:
        two.put("k", b"")
        assert list(one.list(recursive=True)) == []
        assert one.list_keys() == []


@pytest.mark.parametrize(
    "names",
    [
        ("aws_access_key_id", "aws_secret_access_key", "aws_region", "aws_endpoint_url", "aws_allow_http"),
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP"),
        ("access_key_id", "secret_access_key", "region", "endpoint", "allow_http"),
        ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "REGION", "ENDPOINT_URL", "ALLOW_HTTP"),
        ("aws_access_key_id", "aws_secret_access_key", "aws_default_region", "aws_endpoint", "allow_http"),
    ],
)
def test_the_usual_spellings_of_options_are_understood(s3: S3Server, names: tuple[str, ...]) -> None:
    values = ("testing", "testing", "us-east-1", s3.endpoint, "true")
    store = open_store(s3.uri(uuid.uuid4().hex), dict(zip(names, values, strict=True)))
    assert store.put_if_absent("k", b"data")


def test_the_environment_fills_in_what_the_options_leave_out(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.storage_options.items():
        monkeypatch.setenv(name.upper() if name.startswith("aws_") else f"AWS_{name.upper()}", value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert open_store(s3.uri(uuid.uuid4().hex), {"endpoint": s3.endpoint}).put_if_absent("k", b"data")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    assert open_store(s3.uri(uuid.uuid4().hex)).put_if_absent("k", b"data")


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        ("s3://bucket", {**S3_OPTIONS, "aws_acces_key_id": "SECRETVALUE"}),
        ("gs://bucket", {"aws_access_key_id": "SECRETVALUE"}),
        ("az://container", {"account_name": "a", "sas_tokn": "SECRETVALUE"}),
        ("memory://m", {"anything": "SECRETVALUE"}),
        ("/data", {"anything": "SECRETVALUE"}),
    ],
)
def test_an_unknown_option_is_named_and_its_value_is_not_shown(uri: str, options: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        open_store(uri, options)
    assert list(options)[-1] in str(caught.value)
    assert "SECRETVALUE" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        ("s3://bucket", {"timeout": "soon"}),
        ("s3://bucket", {"max_retries": "many"}),
        ("s3://bucket", {"retry_timeout": "soon"}),
        ("s3://bucket", {"aws_unsigned_payload": "perhaps"}),
        ("s3://bucket", {"aws_bucket": "another"}),
        ("s3://bucket", {"aws_region": object()}),
        ("s3://bucket", {"aws_access_key_id": "SECRETVALUE"}),
        ("az://container", {"account_key": "SECRETVALUE!"}),
        ("gs://bucket", {"google_service_account_key": "SECRETVALUE"}),
    ],
)
def test_an_option_that_makes_no_sense_is_an_invalid_argument_without_secrets(
    uri: str, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    with pytest.raises(InvalidArgument) as caught:
        open_store(uri, options)
    assert "SECRETVALUE" not in "".join(traceback.format_exception(caught.value))


def test_options_may_be_booleans_and_numbers(s3: S3Server) -> None:
    options = {**s3.storage_options, "allow_http": True, "max_retries": 2, "retry_timeout": "1m"}
    assert open_store(s3.uri(uuid.uuid4().hex), options).list_keys() == []  # type: ignore[arg-type]


def test_a_spec_travels_to_another_process_and_opens_there(
    shared_spec: StoreSpec, start: Callable[[str, object], subprocess.Popen[bytes]]
) -> None:
    store = shared_spec.open()
    store.put("question", b"6 * 7")
    code = """
import pickle, sys
store = pickle.load(sys.stdin.buffer).open()
store.put("answer", str(eval(store.get("question"))).encode())
print("ready", flush=True)
"""
    start(code, shared_spec)
    assert store.get("answer") == b"42"


def test_a_forked_process_is_told_that_it_cannot_use_object_stores_instead_of_hanging(
    s3: S3Server, tmp_path: Path, start: Callable[[str, object], subprocess.Popen[bytes]]
) -> None:
    code = """
import os, pickle, signal, sys
from lakeseal.errors import StorageError
from lakeseal.storage import open_store
spec, folder = pickle.load(sys.stdin.buffer)
store = spec.open()
store.put("k", b"data")
child = os.fork()
if child == 0:
    signal.alarm(20)
    for again in (store, spec.open()):
        for call in (lambda: again.get("k"), lambda: again.list_keys(), lambda: again.put_if_absent("n", b"")):
            try:
                call()
            except StorageError as error:
                assert "spawn" in str(error)
            else:
                os._exit(1)
    open_store(folder).put("k", b"")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert store.get("k") == b"data"
print("ready", flush=True)
"""
    start(code, (StoreSpec(uri=s3.uri(uuid.uuid4().hex), storage_options=s3.storage_options), str(tmp_path)))


def test_a_spec_of_memory_opens_only_in_the_process_that_made_it(
    start: Callable[[str, object], subprocess.Popen[bytes]],
) -> None:
    spec = StoreSpec(uri=f"memory://{uuid.uuid4().hex}")
    spec.open().put("k", b"data")
    assert pickle.loads(pickle.dumps(spec)).open().get("k") == b"data"
    code = """
import pickle, sys
from lakeseal.errors import InvalidArgument
try:
    pickle.load(sys.stdin.buffer).open()
except InvalidArgument as error:
    assert "another process" in str(error)
    print("ready", flush=True)
"""
    start(code, spec)


def test_a_spec_is_a_value_with_a_normal_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spec = StoreSpec(uri="t/")
    assert spec == StoreSpec(uri=str(tmp_path / "t"))
    assert spec.uri == f"file://{tmp_path}/t"
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert len({spec, StoreSpec(uri="t"), StoreSpec(uri="t2")}) == 2
    with pytest.raises(InvalidUri):
        StoreSpec(uri="hdfs://x/y")
    with pytest.raises(AttributeError):
        spec.uri = "elsewhere"  # type: ignore[misc]


def test_no_secret_is_shown_by_a_spec_or_a_store() -> None:
    spec = StoreSpec(uri="s3://bucket/t", storage_options=S3_OPTIONS)
    output = io.StringIO()
    Console(file=output).print(spec)
    store = spec.open()
    for shown in (repr(spec), str(spec), f"{spec}", output.getvalue(), repr(store), str(store), store.uri):
        assert "SECRETVALUE" not in shown
        assert "AKIDVALUE" not in shown
    assert "aws_region" in repr(spec)


def test_a_spec_is_not_changed_by_its_makers_dictionary() -> None:
    options = dict(S3_OPTIONS)
    spec = StoreSpec(uri="s3://bucket", storage_options=options)
    options["aws_region"] = "elsewhere"
    assert spec.storage_options["aws_region"] == "eu-west-1"


def test_an_absolute_uri_of_a_log_is_resolved_to_store_and_key(tmp_path: Path, s3: S3Server) -> None:
    name = uuid.uuid4().hex
    odd = "ts=2024-01-01 10%3A00/é#?.parquet"
    encoded = "ts=2024-01-01%2010%253A00/%C3%A9%23%3F.parquet"
    places = [
        (open_store(tmp_path), f"file:{tmp_path}/{encoded}", {}),
        (open_store(tmp_path), f"file://{tmp_path}/{encoded}", {}),
        (open_store(tmp_path), f"{tmp_path}/{encoded}", {}),
        (open_store(f"memory://{name}"), f"memory://{name}/{encoded}", {}),
        (open_store(s3.uri(name), s3.storage_options), s3.uri(f"{name}/{encoded}"), s3.storage_options),
        (
            open_store(s3.uri(name), s3.storage_options),
            s3.uri(f"{name}/{encoded}").replace("s3:", "s3a:"),
            s3.storage_options,
        ),
    ]
    for number, (store, uri, options) in enumerate(places):
        store.put(odd, str(number).encode())
        root, key = resolve(uri, options)
        assert key.endswith(odd)
        assert root.get(key) == str(number).encode()
        assert resolve(uri, options)[0] is root


@pytest.mark.parametrize("uri", ["part-0.parquet", "a/b.parquet", "", "s3://bucket", "s3://bucket/d/", "/", "file:///"])
def test_what_is_not_the_absolute_uri_of_an_object_is_not_resolved(uri: str) -> None:
    with pytest.raises(InvalidUri):
        resolve(uri)


@pytest.mark.parametrize(
    "uri",
    [
        "file:///data/t/../../etc/passwd",
        "/data/%2e%2e/etc/passwd",
        "s3://bucket/t/%2E%2e/other",
        "s3://bucket/t/..%2fother",
        "s3://bucket/./t",
    ],
)
def test_dots_in_a_log_s_uri_are_unsafe(uri: str) -> None:
    with pytest.raises(UnsafePath):
        resolve(uri)


def test_the_room_exports_what_it_says() -> None:
    assert sorted(lakeseal.storage.__all__) == lakeseal.storage.__all__
    for name in lakeseal.storage.__all__:
        assert hasattr(lakeseal.storage, name)
    assert isinstance(open_store("/data"), LocalStore)
    assert issubclass(InvalidUri, LakesealError)
