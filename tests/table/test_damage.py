"""Damaged tables: whatever happens to the bytes of a log or of its files, the answer is right or a typed error.

"Right" is the undamaged table's rows. Where damage happens to be valid (a digit of a partition value, say) no reader
could tell; then the rows must be those that the plainest possible reader finds in the same bytes. So it is for data
files that change places, which a log does not describe by their content; for commits that do, where they do not say
their time; and for an action that stands in a commit twice, which means what it means once. A version checksum that
does not fit is a warning, and stops only readers that insist.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeseal import LakesealError, Table
from lakeseal.commit.post_commit import flush
from lakeseal.errors import BrokenDataFile
from support.examples import examples
from support.rows import rows

VERSIONS = 13


def _batch(number: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(number * 10, number * 10 + 10), pa.int64()),
            "name": [f"row {number} {n}" for n in range(10)],
            "day": [f"2024-01-{1 + (number + n) % 3:02d}" for n in range(10)],
        }
    )


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partitioned table with commits above and below a checkpoint, overwritten partitions, and checksums."""
    folder = tmp_path_factory.mktemp("sound") / "table"
    table = Table(folder)
    for number in range(VERSIONS):
        if number == 6:
            table.write(_batch(number).slice(0, 3), mode="overwrite", partition_overwrite="dynamic")
        else:
            table.write(_batch(number), partition_by="day")
        flush()
    assert table.version() == VERSIONS - 1
    assert (folder / "_delta_log" / f"{10:020d}.checkpoint.parquet").exists()
    return folder


Damage = tuple[str, int, int]
damages = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "delete", "empty", "insert", "double line", "drop line", "swap"]),
        st.integers(0, 2**32 - 1),
        st.integers(0, 2**32 - 1),
    ),
    min_size=1,
    max_size=2,
)


def damage(folder: Path, what: str, where: int, how: int) -> list[Path]:
    """Damages one file, or two that change places, and says which."""
    log = sorted(p for p in (folder / "_delta_log").iterdir() if p.is_file())
    data = sorted(folder.glob("day=*/*.parquet"))
    # Three of four hits go to the log: that is where a wrong answer could come from.
    files = data if where % 4 == 0 and data else log
    file = files[(where // 4) % len(files)]
    content = file.read_bytes()
    touched = [file]
    at = how % max(len(content), 1)
    lines = content.split(b"\n")
    line = how % len(lines)
    match what:
        case "flip":
            content = content[:at] + bytes([content[at] ^ (1 << how % 8)]) + content[at + 1 :] if content else b"x"
        case "cut":
            content = content[:at]
        case "empty":
            content = b""
        case "insert":
            content = content[:at] + bytes([how % 256]) + content[at:]
        case "double line":
            content = b"\n".join([*lines[: line + 1], *lines[line:]])
        case "drop line":
            content = b"\n".join([*lines[:line], *lines[line + 1 :]])
        case "swap":
            other = files[how % len(files)]
            content, swapped = other.read_bytes(), content
            other.write_bytes(swapped)
            touched.append(other)
    if what == "delete":
        file.unlink()
    else:
        file.write_bytes(content)
    return touched


def plain_readers(folder: Path) -> Iterator[Counter[Any]]:
    """What the plainest readers find: all JSON commits in turn, or those above a checkpoint. Where damage is valid by
    itself but makes the two differ (commits changed places, say), nobody can tell which of them is right."""
    log = folder / "_delta_log"
    for first, start in ((0, None), (11, log / f"{10:020d}.checkpoint.parquet")):
        # A damaged log may be beyond these readers.
        with suppress(Exception):
            live: dict[str, dict[str, Any]] = {}
            if start is not None:
                adds = pq.read_table(start, columns=["add"])["add"].drop_null().to_pylist(maps_as_pydicts="lossy")
                live = {add["path"]: add for add in adds}
            yield _plain_rows(folder, live, first)


def _plain_rows(folder: Path, live: dict[str, dict[str, Any]], version: int) -> Counter[Any]:
    while (commit := folder / "_delta_log" / f"{version:020d}.json").exists():
        # Blank lines mean nothing, to any reader.
        for text in filter(str.strip, commit.read_text().splitlines()):
            action = json.loads(text)
            if action.get("add"):
                live[action["add"]["path"]] = action["add"]
            elif action.get("remove"):
                live.pop(action["remove"]["path"], None)
        version += 1
    found: Counter[Any] = Counter()
    for path, add in live.items():
        part = pq.ParquetFile(folder / unquote(path)).read()
        # To a reader of this format, a column that a file does not have is null there.
        columns = {
            name: part[name].cast(kind) if name in part.column_names else pa.nulls(part.num_rows, kind)
            for name, kind in (("id", pa.int64()), ("name", pa.string()))
        }
        day = add["partitionValues"].get("day") or None
        found += rows(pa.table({**columns, "day": pa.array([day] * part.num_rows, pa.string())}))
    return found


@pytest.fixture(scope="module")
def copy(sound: Path) -> Path:
    """Where damage is done, and mended after each case."""
    folder = sound.parent / "copy"
    shutil.copytree(sound, folder)
    return folder


def test_a_bit_of_a_value_that_changed_in_a_written_file_is_noticed(tmp_path: Path) -> None:
    """Numbers by dice are no smaller when they are compressed: with one bit changed they are other numbers, and
    only the checksum of their page tells."""
    dice = random.Random(1)
    table = Table(tmp_path)
    table.write(pa.table({"n": [dice.getrandbits(63) for _ in range(4000)]}))
    file = next(tmp_path.glob("*.parquet"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(BrokenDataFile):
        table.to_arrow()


@examples(300, 5000)
@given(hits=damages)
def test_a_damaged_table_gives_the_right_rows_or_a_typed_error(sound: Path, copy: Path, hits: list[Damage]) -> None:
    touched = [file for hit in hits for file in damage(copy, *hit)]
    try:
        _check(sound, copy)
    finally:
        for file in touched:
            shutil.copyfile(sound / file.relative_to(copy), file)


def _check(sound: Path, copy: Path) -> None:
    try:
        found = rows(Table(copy).to_arrow())
    except LakesealError as error:
        assert error.table
        assert error.hint
        return
    assert found == _expected(sound) or found in list(plain_readers(copy))


@cache
def _expected(sound: Path) -> Counter[Any]:
    return rows(Table(sound).to_arrow())
