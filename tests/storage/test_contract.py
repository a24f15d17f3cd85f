"""What `base.Store` promises, on every implementation."""

from __future__ import annotations

import gc
import pickle
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeseal.errors import InvalidArgument, ObjectNotFound, StorageError, UnsafePath
from lakeseal.storage import LocalStore, Store, open_store
from lakeseal.storage.keys import check_key
from lakeseal.testing.s3 import S3Server
from support.examples import examples

ODD_KEYS = [
    "a=1%3A2/b c#?é&+.parquet",
    "100%",
    "%",
    "%2F",
    "a%252Fb",
    " blank at both ends ",
    "~tilde",
    "*[]{}<>|^`\\\"'",
    "a:b@c,d;e!$()",
    ".hidden",
    "..twodots",
    "trailing.",
    "_delta_log/00000000000000000000.json",
    "emoji 😀",
    "\u2028",
    "ひらがな/漢字",
    "x.tmp",
    "n" * 200,
]

UNSAFE_KEYS = [
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "../a",
    "a/../b",
    "a/..",
    "a/./b",
    "nul\0",
    "a\nb",
    "\x7f",
    "\ud800",
]


@pytest.mark.parametrize("key", ODD_KEYS)
def test_a_key_of_odd_characters_names_exactly_that_object(
    store: Store, key: str, keys_below: Callable[[], list[str]]
) -> None:
    assert store.put_if_absent(key, b"first")
    assert not store.put_if_absent(key, b"second")
    assert store.get(key) == b"first"
    assert store.head(key).key == key
    assert keys_below() == [key]
    with store.open_read(key) as file:
        assert file.read() == b"first"
    store.delete([key])
    assert keys_below() == []


def test_keys_that_differ_only_in_encoding_or_unicode_form_are_different_objects(store: Store) -> None:
    keys = ["a b", "a%20b", "a%2520b", "a+b", "caf\u00e9", "cafe\u0301"]
    for number, key in enumerate(keys):
        assert store.put_if_absent(key, str(number).encode())
    assert store.list_keys() == sorted(keys)
    assert store.get_many(keys) == [b"0", b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize("key", UNSAFE_KEYS)
def test_a_key_that_could_leave_the_root_is_refused_by_every_call(store: Store, key: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.get(key),
        lambda: store.get_range(key, 0, 1),
        lambda: store.get_ranges(key, [(0, 1), (5, 1)]),
        lambda: store.get_many([key]),
        lambda: store.head(key),
        lambda: store.put(key, b""),
        lambda: store.put_if_absent(key, b""),
        lambda: store.delete([key]),
        lambda: store.open_read(key),
        lambda: store.open_write(key),
    ]
    for call in calls:
        with pytest.raises(UnsafePath):
            call()


def test_a_name_of_unfinished_files_is_refused(store: Store) -> None:
    with pytest.raises(UnsafePath, match="unfinished"):
        store.put(f"d/.lakeseal-{uuid.uuid4().hex}.tmp", b"")


def test_an_absent_object_is_not_found_by_every_reading_call(store: Store) -> None:
    store.put("there/x", b"x")
    for key in ["absent", "there", "there/absent", "there/x/y"]:
        calls: list[Callable[[], object]] = [
            lambda key=key: store.get(key),  # type: ignore[misc]
            lambda key=key: store.get_range(key, 0, 5),  # type: ignore[misc]
            lambda key=key: store.get_range(key, 0, 0),  # type: ignore[misc]
            lambda key=key: store.get_ranges(key, [(0, 5), (9, 1)]),  # type: ignore[misc]
            lambda key=key: store.get_many(["there/x", key]),  # type: ignore[misc]
            lambda key=key: store.head(key),  # type: ignore[misc]
            lambda key=key: store.open_read(key),  # type: ignore[misc]
        ]
        for call in calls:
            with pytest.raises(ObjectNotFound) as caught:
                call()
            assert caught.value.file == key


def test_put_replaces_and_put_if_absent_does_not(store: Store) -> None:
    store.put("k", b"one")
    store.put("k", b"two")
    assert not store.put_if_absent("k", b"three")
    assert store.get("k") == b"two"
    store.delete(["k"])
    assert store.put_if_absent("k", b"four")
    assert store.get("k") == b"four"


def test_an_empty_object_is_an_object(store: Store) -> None:
    assert store.put_if_absent("d/empty", b"")
    store.put("d/empty2", b"")
    with store.open_write("d/empty3"):
        pass
    for key in ["d/empty", "d/empty2", "d/empty3"]:
        assert store.get(key) == b""
        assert store.get_range(key, 0, 10) == b""
        assert store.head(key).size == 0
        with store.open_read(key) as file:
            assert file.size() == 0
            assert file.read() == b""
    assert store.list_keys("d/") == ["d/empty", "d/empty2", "d/empty3"]
    assert [meta.key for meta in store.list(recursive=True)] == ["d/empty", "d/empty2", "d/empty3"]


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [
        (0, 10, b"0123456789"),
        (0, 0, b""),
        (3, 4, b"3456"),
        (9, 1, b"9"),
        (8, 100, b"89"),
        (0, 1 << 40, b"0123456789"),
        (10, 1, b""),
        (11, 5, b""),
        (1 << 40, 5, b""),
    ],
)
def test_a_range_ends_with_the_object_and_is_empty_beyond_it(
    store: Store, start: int, length: int, expected: bytes
) -> None:
    store.put("k", b"0123456789")
    assert store.get_range("k", start, length) == expected


def test_several_ranges_come_in_the_order_asked_for(store: Store) -> None:
    store.put("k", b"0123456789")
    assert store.get_ranges("k", [(8, 100), (3, 4), (11, 5), (0, 2), (3, 4)]) == [b"89", b"3456", b"", b"01", b"3456"]


@pytest.mark.parametrize(("start", "length"), [(-1, 1), (0, -1)])
def test_a_negative_range_is_refused(store: Store, start: int, length: int) -> None:
    store.put("k", b"0123456789")
    with pytest.raises(InvalidArgument):
        store.get_range("k", start, length)


def test_head_tells_size_and_time(store: Store) -> None:
    before = int(time.time() * 1000) - 5_000
    store.put("d/k", b"12345")
    meta = store.head("d/k")
    assert (meta.key, meta.size) == ("d/k", 5)
    assert before <= meta.modified_ms <= int(time.time() * 1000) + 5_000
    assert list(store.list("d/")) == [meta]


def test_get_many_keeps_the_order_asked_for_and_repetitions(store: Store) -> None:
    for number in range(40):
        store.put(f"n/{number:02}", str(number).encode())
    keys = [f"n/{number:02}" for number in (7, 3, 39, 0, 3, *range(40))]
    assert store.get_many(keys) == [str(int(key[2:])).encode() for key in keys]
    assert store.get_many([]) == []


def test_listing_is_in_byte_order_where_directories_and_astral_letters_would_confuse_it(store: Store) -> None:
    # "-" and "." sort before "/", "0" after it; U+FF5E sorts after U+1F600 in UTF-16, before it in UTF-8.
    keys = ["a-b", "a.b", "a/z", "a/0/y", "a0", "A", "Z", "é", "\uff5e", "😀", "_x", "10", "9"]
    for key in keys:
        store.put(key, key.encode())
    expected = sorted(keys, key=lambda key: key.encode())
    assert [meta.key for meta in store.list(recursive=True)] == expected
    assert [meta.key for meta in store.list()] == [key for key in expected if "/" not in key]
    assert store.list_keys() == [key for key in expected if "/" not in key]
    for after in [*keys, "", "a", "a/", "a/0", "b", "\uffff"]:
        assert [meta.key for meta in store.list(after=after, recursive=True)] == [
            key for key in expected if key.encode() > after.encode()
        ]
        assert store.list_keys(after=after) == [
            key for key in expected if "/" not in key and key.encode() > after.encode()
        ]


def test_a_thousand_keys_are_listed_after_a_key(store: Store) -> None:
    keys = [f"_delta_log/{number:020}.json" for number in range(1_000)]
    for key in keys:
        store.put_if_absent(key, b"{}")
    store.put("_delta_log/_sidecars/a.parquet", b"x")
    store.put("_delta_logs/not-ours", b"x")
    assert store.list_keys("_delta_log/") == keys
    assert store.list_keys("_delta_log/", after=keys[-3]) == keys[-2:]
    assert store.list_keys("_delta_log/", after=f"_delta_log/{500:020}.j") == keys[500:]
    assert store.list_keys("_delta_log/", after=keys[-1]) == []
    assert [meta.key for meta in store.list("_delta_log/", after=keys[989])] == keys[990:]


def test_listing_a_directory_that_is_not_there_is_empty(store: Store) -> None:
    assert store.list_keys() == []
    assert list(store.list("absent/", recursive=True)) == []
    assert store.list_keys("absent/", after="a") == []
    store.put("file", b"")
    assert store.list_keys("file/") == []


def test_listing_is_limited_to_its_directory_and_not_to_names_that_begin_alike(store: Store) -> None:
    for key in ["t1/a", "t1/sub/b", "t10/c", "t1x"]:
        store.put(key, b"")
    assert [meta.key for meta in store.list("t1/", recursive=True)] == ["t1/a", "t1/sub/b"]
    assert store.list_keys("t1/") == ["t1/a"]


@pytest.mark.parametrize("prefix", ["a", "a/b"])
def test_a_prefix_that_is_no_directory_is_refused(store: Store, prefix: str) -> None:
    with pytest.raises(InvalidArgument, match="does not end"):
        store.list_keys(prefix)
    with pytest.raises(InvalidArgument, match="does not end"):
        store.list(prefix)


@pytest.mark.parametrize("prefix", ["/", "../", "a/../", "a//"])
def test_a_prefix_that_could_leave_the_root_is_refused(store: Store, prefix: str) -> None:
    with pytest.raises(UnsafePath):
        store.list_keys(prefix)
    with pytest.raises(UnsafePath):
        store.list(prefix, recursive=True)


def test_a_deep_tree_is_listed_whole(store: Store) -> None:
    deep = "/".join(f"d{level}" for level in range(40)) + "/leaf"
    store.put(deep, b"x")
    assert [meta.key for meta in store.list(recursive=True)] == [deep]
    assert list(store.list()) == []


def test_deleting_many_keys_of_which_some_are_absent(store: Store, keys_below: Callable[[], list[str]]) -> None:
    keys = [f"d{number % 3}/{number:04}" for number in range(1_200)]
    for key in keys:
        store.put_if_absent(key, b"")
    store.put("kept", b"")
    store.delete([*keys, "absent", "d0/absent", "no/such/directory"])
    assert keys_below() == ["kept"]
    store.delete([])
    store.delete(["kept", "kept"])
    assert keys_below() == []


def test_a_large_object_is_streamed_and_appears_only_when_closed(
    store: Store, keys_below: Callable[[], list[str]]
) -> None:
    part = bytes(range(256)) * 4096
    with store.open_write("d/large") as stream:
        for number in range(20):
            assert stream.write(part) == len(part)
            assert stream.tell() == (number + 1) * len(part)
        stream.write(b"end")
        assert keys_below() == []
    assert stream.closed
    assert store.head("d/large").size == 20 * len(part) + 3
    assert store.get_range("d/large", 19 * len(part), len(part)) == part
    assert store.get("d/large")[-5:] == b"\xfe\xffend"
    with store.open_read("d/large") as file:
        assert file.size() == 20 * len(part) + 3
        file.seek(10 * len(part) + 7)
        assert file.read(3) == b"\x07\x08\x09"
        file.seek(-3, 2)
        assert file.read() == b"end"


def test_many_small_writes_arrive_in_order(store: Store) -> None:
    with store.open_write("k") as stream:
        for number in range(60_000):
            stream.write(b"%07d\n" % number)
    assert store.get("k") == b"".join(b"%07d\n" % number for number in range(60_000))


@pytest.mark.parametrize("size", [10, 9 << 20])
@pytest.mark.parametrize("how", ["exception", "abort", "forgotten"])
def test_a_stream_that_is_not_closed_leaves_nothing(
    store: Store, size: int, how: str, keys_below: Callable[[], list[str]]
) -> None:
    def write(stream_key: str) -> None:
        stream = store.open_write(stream_key)
        stream.write(b"x" * size)
        if how == "abort":
            stream.abort()
            stream.abort()
            stream.close()
            with pytest.raises(InvalidArgument):
                stream.write(b"more")
        elif how == "exception":
            with pytest.raises(ZeroDivisionError), stream:
                raise ZeroDivisionError

    write("d/k")
    gc.collect()
    assert keys_below() == []
    if isinstance(store, LocalStore):
        assert [path for path in Path(store.path("d/k")).parent.iterdir() if path.is_file()] == []


def test_a_stream_replaces_an_object_only_when_it_is_closed(store: Store) -> None:
    store.put("k", b"old")
    with store.open_write("k") as stream:
        stream.write(b"new")
        assert store.get("k") == b"old"
    assert store.get("k") == b"new"


def test_parquet_is_written_and_read_through_streams(store: Store) -> None:
    table = pa.table({"n": range(200_000), "text": [f"row {number}" for number in range(200_000)]})
    with store.open_write("t/data.parquet") as stream:
        pq.write_table(table, stream, row_group_size=20_000)
    with store.open_read("t/data.parquet") as file:
        assert pq.read_table(file, columns=["n"]).equals(table.select(["n"]))
    with store.open_read("t/data.parquet") as file:
        assert pq.ParquetFile(file).read_row_group(7).slice(0, 1).to_pylist() == [{"n": 140_000, "text": "row 140000"}]


def test_a_parquet_writer_that_fails_leaves_no_object(store: Store, keys_below: Callable[[], list[str]]) -> None:
    batch = pa.table({"n": [1, 2]})

    def fail() -> None:
        with store.open_write("t/data.parquet") as stream, pq.ParquetWriter(stream, batch.schema) as writer:
            writer.write_table(batch)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    gc.collect()
    assert keys_below() == []


def test_a_reader_that_started_before_an_overwrite_never_mixes_two_contents(store: Store) -> None:
    size = 4 << 20
    store.put("k", b"a" * size)
    file = store.open_read("k")
    first = file.read(10)
    store.put("k", b"b" * size)
    if isinstance(store, LocalStore):
        assert set(first + file.read()) == {ord("a")}
    else:
        with pytest.raises(StorageError, match="read it again"):
            file.read()


def test_stores_refuse_to_be_pickled_and_say_what_to_send_instead(store: Store) -> None:
    with pytest.raises(InvalidArgument, match="StoreSpec"):
        pickle.dumps(store)


_segment = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/"), min_size=1, max_size=12)
_key = st.lists(_segment, min_size=1, max_size=4).map("/".join)


def _legal(key: str) -> bool:
    try:
        check_key(key)
    except UnsafePath:
        return False
    return all(len(part.encode()) <= 255 for part in key.split("/"))


def _no_file_is_a_directory(keys: set[str]) -> bool:
    return not any(other.startswith(key + "/") for key in keys for other in keys)


_trees = st.sets(_key.filter(_legal), max_size=12).filter(_no_file_is_a_directory)


def _check_tree(store: Store, keys: set[str], after: str) -> None:
    for key in keys:
        assert store.put_if_absent(key, key.encode())
    ordered = sorted(keys, key=lambda key: key.encode())
    assert [meta.key for meta in store.list(recursive=True)] == ordered
    assert [meta.key for meta in store.list(recursive=True, after=after)] == [
        key for key in ordered if key.encode() > after.encode()
    ]
    assert store.list_keys() == [key for key in ordered if "/" not in key]
    for prefix in {key[: key.index("/") + 1] for key in keys if "/" in key}:
        beside = [key for key in ordered if key.startswith(prefix) and "/" not in key[len(prefix) :]]
        assert store.list_keys(prefix) == beside
        assert store.list_keys(prefix, after=after) == [key for key in beside if key.encode() > after.encode()]
    assert store.get_many(ordered) == [key.encode() for key in ordered]


@examples(30, 200)
@given(keys=_trees, after=_key.filter(_legal))
def test_any_tree_of_legal_keys_comes_back_from_local_disk(
    tmp_path_factory: pytest.TempPathFactory, keys: set[str], after: str
) -> None:
    _check_tree(open_store(tmp_path_factory.mktemp("tree")), keys, after)


@examples(30, 200)
@given(keys=_trees, after=_key.filter(_legal))
def test_any_tree_of_legal_keys_comes_back_from_memory(keys: set[str], after: str) -> None:
    _check_tree(open_store(f"memory://{uuid.uuid4().hex}"), keys, after)


@settings(max_examples=15)
@given(keys=_trees, after=_key.filter(_legal))
def test_any_tree_of_legal_keys_comes_back_from_s3(s3: S3Server, keys: set[str], after: str) -> None:
    _check_tree(open_store(s3.uri(uuid.uuid4().hex), s3.storage_options), keys, after)
