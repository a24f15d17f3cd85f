from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.errors import UnsafePath
from lakeseal.protocol.data_paths import (
    DataPath,
    canonical_path,
    canonical_paths,
    decode_path,
    encode_path,
    resolve_data_path,
)
from lakeseal.protocol.partitions import partition_directory

segments = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1).filter(
    lambda s: s not in (".", "..")
)
keys = st.lists(segments, min_size=1, max_size=4).map("/".join)


@given(keys)
def test_a_key_comes_back_from_its_path_and_the_path_is_a_relative_ascii_uri(key: str) -> None:
    path = encode_path(key)
    assert decode_path(path) == key
    assert resolve_data_path("s3://bucket/table", path) == DataPath(key=key)
    assert canonical_path(path) == path
    assert path.isascii()
    assert not set(path) & set(' :?#"<>\\^`{|}')


@pytest.mark.field_bug(27)
@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("ts=2024-01-01 10%3A00%3A00/f.parquet", "ts=2024-01-01%2010%253A00%253A00/f.parquet"),
        ("x=A%2FA/f", "x=A%252FA/f"),
        ("_2=bar+%2521/f", "_2=bar+%252521/f"),
        ("x=é/f", "x=%C3%A9/f"),
        ("special p@#h", "special%20p@%23h"),
    ],
)
def test_names_that_others_wrote_are_encoded_once(key: str, path: str) -> None:
    assert encode_path(key) == path
    assert decode_path(path) == key


@pytest.mark.field_bug(27)
@given(st.text(min_size=1), st.text(min_size=1))
def test_partition_values_are_encoded_twice_and_never_three_times(column: str, value: str) -> None:
    directory = partition_directory(column, value)
    assert decode_path(encode_path(f"{directory}/f.parquet")) == f"{directory}/f.parquet"


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("a b/é.parquet", "a b/é.parquet"),
        ("a+b", "a+b"),
        ("100%/%zz", "100%/%zz"),
        ("./a//b/../c", "a/c"),
        ("part:1.parquet", "part:1.parquet"),
        ("ts=10:00/f", "ts=10:00/f"),
        ("a/..b/.hidden", "a/..b/.hidden"),
    ],
)
def test_paths_that_are_no_proper_uris_are_read_generously(path: str, key: str) -> None:
    assert decode_path(path) == key


@pytest.mark.parametrize(
    "spellings",
    [
        ("/some/path", "file:/some/path", "file:///some/path", "FILE://localhost/some/path", "/some//./x/../path"),
        ("/with%20space/p@%23h", "file:///with%20space/p@%23h", "file:/with%20space/p@#h"),
        ("s3://b/k", "s3a://b/k", "s3n://b//k"),
    ],
)
def test_all_spellings_of_an_absolute_path_are_one_file(spellings: tuple[str, ...]) -> None:
    assert len({canonical_path(spelling) for spelling in spellings}) == 1


def test_different_absolute_paths_stay_different() -> None:
    paths = ["/a", "/b", "s3://a/b", "s3://b/b", "file://host/a", "gs://a/b", "a", "/../a", "file:/"]
    assert len({canonical_path(path) for path in paths}) == len(paths)


@pytest.mark.parametrize("chunks", [[["a/b", "/x", None], ["file:/x", "c:d"]], [["a", "b"]], [], [[], ["/x"]]])
def test_a_column_is_made_canonical_like_its_rows(chunks: list[list[str | None]]) -> None:
    column = pa.chunked_array(chunks, pa.string())
    expected = [None if p is None else canonical_path(p) for p in column.to_pylist()]
    assert canonical_paths(column).to_pylist() == expected


@pytest.mark.field_bug("S4")
@pytest.mark.parametrize(
    "path",
    ["..", "../x", "a/../../x", "..//Users/x", "%2e%2e/x", "a/%2E%2e/..%2fx", "x\0y", "x%00y", "", ".", "a/..", "%2e"],
)
def test_a_relative_path_never_leaves_the_table(path: str) -> None:
    for allowed in (False, True):
        with pytest.raises(UnsafePath):
            resolve_data_path("/data/t1", path, allow_outside=allowed)


@pytest.mark.parametrize("table", ["/data/t1", "/data/t1/", "file:/data/t1", "file:///data/t1/"])
@pytest.mark.parametrize("path", ["/data/t1/p=1/f", "file:/data/t1/p=1/f", "file:///data/t1//p=1/./f"])
def test_an_absolute_path_into_the_table_is_a_key_of_it(table: str, path: str) -> None:
    assert resolve_data_path(table, path) == DataPath(key="p=1/f")


def test_an_absolute_path_into_a_table_with_a_blank_or_percent_is_a_key_of_it() -> None:
    assert resolve_data_path("/data/a b", "file:/data/a%20b/f") == DataPath(key="f")
    assert resolve_data_path("file:///data/a%20b", "file:/data/a%20b/f") == DataPath(key="f")
    assert resolve_data_path("/data/a%20b", "file:/data/a%2520b/f") == DataPath(key="f")


@pytest.mark.parametrize(
    ("table", "path", "root", "key"),
    [
        ("/data/t1", "/data/t10/f", "file:///", "data/t10/f"),
        ("/data/t1", "/data/t1/../t2/f", "file:///", "data/t2/f"),
        ("/data/t1", "/data/t1", "file:///", "data/t1"),
        ("s3://bucket/t", "s3://bucket/t2/f", "s3://bucket/", "t2/f"),
        ("s3://bucket/t", "s3://other/t/f", "s3://other/", "t/f"),
        ("s3://bucket/t", "/etc/f", "file:///", "etc/f"),
        ("/bucket/t", "s3a://bucket/t/f", "s3://bucket/", "t/f"),
    ],
)
def test_a_path_beyond_the_table_is_followed_only_when_allowed(table: str, path: str, root: str, key: str) -> None:
    with pytest.raises(UnsafePath) as caught:
        resolve_data_path(table, path)
    assert (caught.value.table, caught.value.file) == (table, path)
    assert resolve_data_path(table, path, allow_outside=True) == DataPath(root=root, key=key)


@pytest.mark.parametrize("path", ["/", "file:///", "s3://bucket", "s3://bucket/", "/..", "/a/../../b", "/a\0"])
def test_an_absolute_path_that_names_no_object_is_refused_always(path: str) -> None:
    with pytest.raises(UnsafePath):
        resolve_data_path("/data/t1", path, allow_outside=True)


def test_a_table_at_the_root_of_its_store_owns_everything_in_it() -> None:
    assert resolve_data_path("s3://bucket", "s3://bucket/a/f") == DataPath(key="a/f")
