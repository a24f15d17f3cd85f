from __future__ import annotations

import contextlib
import random
import struct
import zlib
from pathlib import Path
from uuid import UUID

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal.errors import BrokenDeletionVector
from lakeseal.protocol.actions import DeletionVectorDescriptor
from lakeseal.protocol.deletion_vectors import (
    decode,
    encode,
    frame,
    framed_range,
    inline_descriptor,
    inline_positions,
    relative_descriptor,
    relative_path,
    unframe,
    z85_decode,
    z85_encode,
)

positions = st.one_of(
    st.lists(st.integers(0, 200), unique=True),
    st.lists(st.integers(0, 2**63 - 1), unique=True),
    st.builds(
        lambda start, count, step: list(range(start, start + count * step, step)),
        st.integers(0, 2**40),
        st.integers(0, 9000),
        st.integers(1, 3),
    ),
)


def descriptor(kind: str, text: str, *, size: int, rows: int, offset: int | None = None) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor(
        storage_type=kind, path_or_inline_dv=text, offset=offset, size_in_bytes=size, cardinality=rows
    )


def test_the_inline_vector_of_the_protocol_text_gives_its_rows() -> None:
    vector = descriptor("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", size=40, rows=6)
    assert inline_positions(vector).tolist() == [3, 4, 7, 11, 18, 29]


def test_the_relative_path_of_the_protocol_text_gives_its_file() -> None:
    vector = descriptor("u", "ab^-aqEH.-t@S}K{vb[*k^", offset=4, size=40, rows=6)
    assert relative_path(vector) == "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"


@pytest.mark.parametrize("prefix", ["", "xY"])
def test_a_relative_descriptor_names_the_file_of_its_uuid(prefix: str) -> None:
    uuid = UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")
    vector = relative_descriptor(uuid, prefix=prefix, offset=1, size=40, cardinality=6)
    assert relative_path(vector) == f"{prefix}/deletion_vector_{uuid}.bin".lstrip("/")


@given(st.binary(max_size=50))
def test_z85_gives_the_bytes_back_when_told_their_size(data: bytes) -> None:
    assert z85_decode(z85_encode(data), len(data)) == data


@pytest.mark.parametrize("text", ["abcd", "abc d", "abc\u00e9", "%%%%%", '""""~', "#####"])
def test_text_that_is_not_z85_is_refused(text: str) -> None:
    with pytest.raises(BrokenDeletionVector):
        z85_decode(text)


def z85_filled_in_the_text(data: bytes) -> str:
    """As writers in Rust do: a last group of n bytes is n + 1 digits behind 4 - n times `#`."""
    whole = len(data) // 4 * 4
    rest, digits = data[whole:], ""
    if rest:
        digits = "#" * (4 - len(rest)) + z85_encode(bytes(4 - len(rest)) + rest)[4 - len(rest) :]
    return z85_encode(data[:whole]) + digits


@given(st.binary(max_size=50))
def test_z85_text_filled_with_hashes_gives_the_bytes_back_with_and_without_their_size(data: bytes) -> None:
    text = z85_filled_in_the_text(data)
    assert z85_decode(text) == data
    assert z85_decode(text, len(data)) == data


@pytest.mark.parametrize(
    "text", ["#%nSc", "##%nS", "###3i", "####0", "#####", "#0000" + "00000", "0#000" * 2 + "##%%%"]
)
def test_z85_text_with_hashes_that_state_no_bytes_is_refused(text: str) -> None:
    with pytest.raises(BrokenDeletionVector):
        z85_decode(text)


@pytest.mark.parametrize("size", [4, 5, 7, 8])
def test_an_inline_vector_filled_with_hashes_of_another_size_than_stated_is_refused(size: int) -> None:
    with pytest.raises(BrokenDeletionVector):
        z85_decode(z85_filled_in_the_text(b"123456"), size)


@pytest.mark.parametrize("rows", [[0], [1, 5], list(range(0, 40, 3)), [7, 2**20], list(range(1000))])
def test_an_inline_vector_filled_with_hashes_holds_its_rows(rows: list[int]) -> None:
    data = encode(rows)
    vector = descriptor("i", z85_filled_in_the_text(data), size=len(data), rows=len(rows))
    assert inline_positions(vector).tolist() == rows


@pytest.mark.parametrize("size", [-1, 0, 4, 9, 2**40])
def test_an_inline_vector_of_another_size_than_stated_is_refused(size: int) -> None:
    with pytest.raises(BrokenDeletionVector):
        z85_decode(z85_encode(b"12345678"), size)


@pytest.mark.parametrize("text", ["", "short", "é" * 20, "~" * 20])
def test_a_relative_path_without_a_uuid_is_refused(text: str) -> None:
    with pytest.raises(BrokenDeletionVector):
        relative_path(descriptor("u", text, size=1, rows=1))


@given(positions, st.randoms(use_true_random=False))
def test_positions_come_back_in_order_whatever_order_they_came_in(rows: list[int], rng: random.Random) -> None:
    shuffled = list(rows)
    rng.shuffle(shuffled)
    assert decode(encode(shuffled), len(rows)).tolist() == sorted(rows)


@given(positions)
def test_an_inline_descriptor_holds_its_rows(rows: list[int]) -> None:
    assert inline_positions(inline_descriptor(encode(rows), len(rows))).tolist() == sorted(rows)


def test_a_vector_over_many_buckets_is_in_the_portable_layout() -> None:
    data = encode([5, (3 << 32) + 7])
    assert struct.unpack_from("<IQI", data) == (1681511377, 2, 0)
    assert decode(data, 2).tolist() == [5, (3 << 32) + 7]


@pytest.mark.parametrize("order", ["<", ">"])
def test_the_early_native_layout_is_read_in_both_byte_orders(order: str) -> None:
    first, second = encode([1, 9])[16:], encode([4])[16:]
    data = struct.pack(f"{order}III", 1681511376, 2, len(first)) + first
    data += struct.pack(f"{order}I", len(second)) + second
    assert decode(data, 3).tolist() == [1, 9, (1 << 32) + 4]


def test_a_position_that_java_would_read_as_negative_is_refused() -> None:
    with pytest.raises(BrokenDeletionVector):
        encode([2**63])
    bucket = struct.pack("<I", 0x80000000) + encode([1])[16:]
    with pytest.raises(BrokenDeletionVector, match="2\\^63"):
        decode(struct.pack("<IQ", 1681511377, 1) + bucket, 1)


@pytest.mark.parametrize("rows", [0, 1, 3, 2**62])
def test_another_number_of_rows_than_the_descriptor_states_is_refused(rows: int) -> None:
    with pytest.raises(BrokenDeletionVector, match="2 rows"):
        decode(encode([1, 2]), rows)


def test_a_few_bytes_that_claim_billions_of_rows_are_refused_before_they_fill_memory() -> None:
    # Full run containers: nine bytes each stand for 65,536 rows.
    containers = 2**16
    cookie = struct.pack("<I", 12347 | (containers - 1) << 16) + b"\xff" * (containers // 8)
    keys = b"".join(struct.pack("<HH", key, 0xFFFF) for key in range(containers))
    runs = struct.pack("<HHH", 1, 0, 0xFFFF) * containers
    offsets = np.cumsum(np.full(containers, 6, dtype=np.uint32), dtype=np.uint32)
    bitmap = cookie + keys + (offsets + len(cookie) + len(keys) + 4 * containers - 6).astype("<u4").tobytes() + runs
    portable = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    with pytest.raises(BrokenDeletionVector, match="4294967296 rows"):
        decode(portable, 10)
    native = struct.pack("<III", 1681511376, 1, len(bitmap)) + bitmap
    with pytest.raises(BrokenDeletionVector, match="more rows"):
        decode(native, 10)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_vectors_raise_or_give_as_many_rows_as_stated(seed: int) -> None:
    rng = random.Random(seed)
    rows = sorted({rng.randrange(300_000) for _ in range(200)} | set(range(70_000, 80_000)) | {1 << 33})
    for magic in (1681511377, 1681511376):
        whole = encode(rows) if magic == 1681511377 else native(rows)
        refused = 0
        for _ in range(1500):
            data = damaged(whole, rng)
            try:
                assert len(decode(data, len(rows))) == len(rows)
            except BrokenDeletionVector:
                refused += 1
        assert refused > 500


def native(rows: list[int]) -> bytes:
    parts = []
    for high in range(3):
        part = encode([row & 0xFFFFFFFF for row in rows if row >> 32 == high])
        bitmap = part[16:] or struct.pack("<II", 12346, 0)
        parts.append(struct.pack("<I", len(bitmap)) + bitmap)
    return struct.pack("<II", 1681511376, len(parts)) + b"".join(parts)


def damaged(whole: bytes, rng: random.Random) -> bytes:
    data = bytearray(whole)
    for _ in range(rng.randint(1, 4)):
        place = min(int(rng.expovariate(1 / 40)), len(data))
        match rng.randrange(4):
            case 0:
                del data[rng.randint(0, len(data)) :]
            case 1:
                data[place:place] = rng.randbytes(rng.randint(1, 6))
            case _ if place < len(data):
                data[place] = rng.choice([0, 1, 0x7F, 0xFF, rng.randrange(256)])
    return bytes(data)


@given(st.binary(max_size=80), st.integers(0, 100))
def test_arbitrary_bytes_are_never_taken_for_rows_they_do_not_hold(data: bytes, rows: int) -> None:
    for prefix in (b"", struct.pack("<I", 1681511377), struct.pack("<I", 1681511376), struct.pack(">I", 1681511376)):
        with contextlib.suppress(BrokenDeletionVector):
            assert len(decode(prefix + data, rows)) == rows


def test_several_vectors_share_a_file_and_come_back_by_offset() -> None:
    vectors = [encode([1]), encode(range(500)), encode([])]
    content, offsets = frame(vectors)
    assert content[0] == 1
    for data, offset in zip(vectors, offsets, strict=True):
        found = descriptor("u", "", offset=offset, size=len(data), rows=0)
        start, length = framed_range(found)
        assert unframe(content[start : start + length], found) == data


@pytest.mark.parametrize("offset", [None, 0])
def test_a_descriptor_without_an_offset_means_the_first_vector(offset: int | None) -> None:
    data = encode([7])
    content, _ = frame([data])
    first = descriptor("u", "", offset=offset, size=len(data), rows=1)
    start, length = framed_range(first)
    assert unframe(content[start : start + length], first) == data


def test_a_file_with_a_wrong_checksum_size_or_end_is_refused() -> None:
    data = encode([7, 8])
    content, _ = frame([data])
    good = content[1:]
    stated = descriptor("u", "", offset=1, size=len(data), rows=2)
    for broken in (
        good[:-1],
        good[:4] + b"\x00" + good[5:],
        good[:-1] + bytes([good[-1] ^ 1]),
        b"\x01" + good[1:],
        b"",
    ):
        with pytest.raises(BrokenDeletionVector):
            unframe(broken, stated)
    with pytest.raises(BrokenDeletionVector):
        unframe(good, msgspec.structs.replace(stated, size_in_bytes=len(data) - 1))


@pytest.mark.parametrize(("offset", "size"), [(-1, 8), (1, -1), (1, 2**31)])
def test_an_impossible_range_is_refused(offset: int, size: int) -> None:
    with pytest.raises(BrokenDeletionVector):
        framed_range(descriptor("u", "", offset=offset, size=size, rows=1))


def test_every_vector_of_other_clients_is_read(shared_tables: Path) -> None:
    read = 0
    for log in shared_tables.rglob("_delta_log"):
        for commit in log.glob("*.json"):
            for line in commit.read_bytes().splitlines():
                action = next(iter(msgspec.json.decode(line).values()))
                if not isinstance(action, dict) or not action.get("deletionVector"):
                    continue
                found = msgspec.convert(action["deletionVector"], DeletionVectorDescriptor)
                if found.storage_type != "u":
                    continue
                content = (log.parent / relative_path(found)).read_bytes()
                start, length = framed_range(found)
                data = unframe(content[start : start + length], found)
                rows = decode(data, found.cardinality)
                assert zlib.crc32(data) == struct.unpack(">I", content[start + length - 4 : start + length])[0]
                assert decode(encode(rows), len(rows)).tolist() == rows.tolist()
                read += 1
    assert read >= 30
