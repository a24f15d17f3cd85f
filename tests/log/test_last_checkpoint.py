from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.log.last_checkpoint import LastCheckpoint, canonical, checksum, parse

# The sample of the format's specification.
SAMPLE: dict[str, Any] = {
    "k0": "'v 0'",
    "checksum": "adsaskfljadfkjadfkj",
    "k1": {"k2": 2, "k3": ["v3", [1, 2], {"k4": "v4", "k5": ["v5", "v6", "v7"]}]},
}
CANONICAL = (
    '"k0"="%27v%200%27","k1"+"k2"=2,"k1"+"k3"+0="v3","k1"+"k3"+1+0=1,"k1"+"k3"+1+1=2,"k1"+"k3"+2+"k4"="v4",'
    '"k1"+"k3"+2+"k5"+0="v5","k1"+"k3"+2+"k5"+1="v6","k1"+"k3"+2+"k5"+2="v7"'
)


def test_the_canonical_form_is_the_one_of_the_format() -> None:
    assert canonical(SAMPLE) == CANONICAL


def test_the_checksum_is_the_one_of_the_format() -> None:
    assert checksum(SAMPLE) == "6a92d155a59bf2eecbd4b4ec7fd1f875"


def test_pairs_are_sorted_by_path_alone() -> None:
    """By whole pairs, element 10 would come before element 1."""
    value = {"a": list(range(11))}
    assert canonical(value).startswith('"a"+0=0,"a"+1=1,"a"+10=10,"a"+2=2')


def test_literals_are_their_own_form() -> None:
    assert (
        canonical({"a": None, "b": True, "c": False, "d": 1.5, "e": {}, "f": []})
        == '"a"=null,"b"=true,"c"=false,"d"=1.5'
    )


def test_a_pointer_comes_back() -> None:
    pointer = LastCheckpoint(
        version=10, size=5, parts=2, size_in_bytes=7, num_of_add_files=3, checkpoint_schema={"type": "struct"}
    )
    assert parse(pointer.to_bytes()) == pointer


def test_parts_are_left_out_where_there_are_none() -> None:
    assert set(msgspec.json.decode(LastCheckpoint(version=1, size=2).to_bytes())) == {"version", "size", "checksum"}


def test_one_without_a_checksum_is_trusted_and_what_others_add_is_passed_over() -> None:
    assert parse(b'{"version":3,"size":1,"v2Checkpoint":{"path":"x"}}') == LastCheckpoint(version=3, size=1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff",
        b'{"size":1}',
        b'{"version":"1","size":1}',
        b'{"version":-1,"size":1}',
        b'{"version":9223372036854775808,"size":1}',
        b'{"version":1,"size":1,"checksum":"00000000000000000000000000000000"}',
        b'{"version":1,"size":1}{',
        b"[" * 100_000,
        b'{"version":1,"size":1,"a":' + b'{"a":' * 5000 + b"1" + b"}" * 5001,
    ],
)
def test_field_bug_19_what_cannot_be_trusted_is_no_pointer(data: bytes) -> None:
    assert parse(data) is None


@given(st.integers(0, 200))
def test_field_bug_19_a_torn_pointer_is_none_or_whole(length: int) -> None:
    whole = LastCheckpoint(version=12, size=3, size_in_bytes=99, num_of_add_files=2).to_bytes()
    assert parse(whole[:length]) == (parse(whole) if length >= len(whole) else None)


@given(st.data())
def test_field_bug_19_a_pointer_with_another_byte_is_none_or_says_the_same(data: st.DataObject) -> None:
    pointer = LastCheckpoint(version=12, size=3, size_in_bytes=99, num_of_add_files=2)
    whole = bytearray(pointer.to_bytes())
    place = data.draw(st.integers(0, whole.index(b'"checksum"') - 1))
    whole[place] = data.draw(st.integers(0, 255))
    assert parse(bytes(whole)) in (None, pointer)


def test_checksums_of_other_clients_fit(shared_tables: Path) -> None:
    checked = 0
    for path in shared_tables.rglob("_last_checkpoint"):
        data = path.read_bytes()
        if b'"checksum"' in data:
            assert parse(data) is not None, path
            checked += 1
    assert checked >= 5
