"""Row ids: given once, kept for life by rows that stay, that move and that change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeseal
from lakeseal import Table, errors

TRACKED = {"delta.enableRowTracking": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}
ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
VERSION_COLUMN = "delta.rowTracking.materializedRowCommitVersionColumnName"
PRESERVED = "delta.rowTracking.preserved"


def ids_of_files(table: Table) -> dict[str, tuple[range, int]]:
    """The row ids that each live file stands for, and the version that it came with."""
    found = {}
    for file in table.files().to_pylist():
        records = json.loads(file["stats"])["numRecords"]
        base = file["baseRowId"]
        found[file["path"]] = (range(base, base + records), file["defaultRowCommitVersion"])
    return found


def mark(table: Table) -> int:
    return int(json.loads(table.snapshot().domains["delta.rowTracking"].configuration)["rowIdHighWaterMark"])


def preserved(table: Table) -> str:
    return str(table.history(1)[0]["tags"][PRESERVED])


@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["files", "vectors"])
def test_no_id_is_ever_given_twice_and_files_that_stay_keep_theirs(tables: Any, properties: Any) -> None:
    table = tables(range(10), range(10, 20), range(20, 30), properties=TRACKED | properties)
    given: dict[str, range] = {}

    def check(expected: str = "true") -> None:
        for path, (ids, version) in ids_of_files(table).items():
            assert given.setdefault(path, ids) == ids, "a file that stays keeps its ids"
            assert version <= table.version()
        everything = sorted(number for ids in given.values() for number in ids)
        assert len(everything) == len(set(everything)), "no id was given to two rows"
        assert mark(table) == max(everything)
        assert preserved(table) == expected

    check()
    table.delete("id < 10")
    check()
    table.delete("id = 11")
    check()
    table.update({"name": "'x'"}, "id = 25")
    check()
    news = tables.people(14, 40)
    table.merge(news, "t.id = s.id").when_not_matched_insert().execute()
    check()
    table.merge(news, "t.id = s.id").when_matched_update().execute()
    check()
    table.optimize()
    check()
    table.restore(2)
    check()
    table.write(tables.people(1), mode="overwrite")
    check()
    tables.vacuum(table)
    table.checkpoint()
    table = Table(table.uri)
    table.write(tables.people(2))
    check()
    tables.check(table)


def tracked(table: Any, **how: Any) -> dict[int, tuple[int, int]]:
    """The id and the version of each row, by the number in it."""
    found = table.to_arrow(row_ids=True, **how).to_pylist()
    return {row["id"]: (row["_row_id"], row["_row_commit_version"]) for row in found}


@pytest.mark.parametrize("feed", [{}, {"delta.enableChangeDataFeed": "true"}], ids=["plain", "feed"])
@pytest.mark.parametrize("mapping", ["none", "name", "id"])
@pytest.mark.parametrize("vectors", [{}, VECTORS], ids=["files", "vectors"])
def test_a_row_keeps_its_id_for_life(tables: Any, vectors: Any, mapping: str, feed: Any) -> None:
    properties = TRACKED | vectors | feed | {"delta.columnMapping.mode": mapping}
    table = tables(range(10), range(10, 20), partition_by=["part"], properties=properties)
    known = tracked(table)
    assert sorted(row_id for row_id, _ in known.values()) == list(range(20))

    def check(*, changed: tuple[int, ...] = (), gone: tuple[int, ...] = (), new: tuple[int, ...] = ()) -> None:
        now, version = tracked(table), table.version()
        expected = {number: place for number, place in known.items() if number not in gone}
        expected |= {number: (known[number][0], version) for number in changed}
        taken = {row_id for row_id, _ in known.values()}
        for number in new:
            row_id, since = now[number]
            assert (row_id in taken, since) == (False, version)
            expected[number] = now[number]
        assert now == expected
        known.clear()
        known.update(now)
        assert preserved(table) == "true"
        tables.check(table)

    table.delete("id = 3")
    check(gone=(3,))
    table.update({"name": "'x'"}, "id IN (4, 5)")
    check(changed=(4, 5))
    table.update({"part": "'p9'"}, "id = 4")
    check(changed=(4,))
    merge = table.merge(tables.people(6, 7, 8, 30), "t.id = s.id").when_matched_delete("t.id = 6")
    merge.when_matched_update(condition="t.id = 7").when_not_matched_insert().execute()
    check(gone=(6,), changed=(7,), new=(30,))
    table.optimize()
    check()
    table.optimize(zorder_by=["id"])
    check()
    table.write(tables.people(9, 31), mode="overwrite", replace_where="id IN (9, 31)")
    known.pop(9)
    check(new=(9, 31))
    assert tracked(table, columns=["id"], where="id = 12") == {12: known[12]}
    assert (
        tracked(table, version=1)[3]
        == tracked(tables(range(10), range(10, 20), partition_by=["part"], properties=properties, name="twin"))[3]
    )


def test_ids_of_rows_are_to_be_had_only_where_rows_are_tracked(tables: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="enableRowTracking"):
        tables(range(3)).to_arrow(row_ids=True)
    taken = Table(tables.root / "taken")
    taken.write(pa.table({"_row_id": [1]}), properties=TRACKED)
    with pytest.raises(errors.InvalidArgument, match="_row_id"):
        taken.to_arrow(row_ids=True)
    assert taken.to_arrow().num_rows == 1


def test_a_table_that_supports_row_tracking_without_it_says_that_rows_moved(tables: Any) -> None:
    table = tables(range(10), properties={"delta.feature.rowTracking": "supported"})
    table.delete("id = 1")
    assert preserved(table) == "false"
    assert ID_COLUMN not in table.snapshot().metadata.configuration


def test_files_keep_ids_where_no_schema_has_them(tables: Any) -> None:
    """Statistics, the change feed and other clients see the table's own columns."""
    table = tables(range(10), properties=TRACKED | {"delta.enableChangeDataFeed": "true"})
    names = [table.snapshot().metadata.configuration[key] for key in (ID_COLUMN, VERSION_COLUMN)]
    table.update({"name": "'x'"}, "id < 3")
    (file,) = table.files().to_pylist()
    stored = pq.read_schema(tables.root / "table" / file["path"])
    assert stored.names == ["id", "name", "part", "score", *names]
    assert set(json.loads(file["stats"])["minValues"]) == {"id", "name", "part", "score"}
    for change in (tables.root / "table" / "_change_data").iterdir():
        assert pq.read_schema(change).names == ["id", "name", "part", "score", "_change_type"]


def test_statements_of_a_transaction_keep_ids_and_give_none_twice(tmp_path: Path) -> None:
    owner = f"sqlite:///{tmp_path}/ledger.db"
    table = Table(tmp_path / "t", owner=owner)
    table.write(pa.table({"id": [1, 2, 3], "n": [0, 0, 0]}), properties=TRACKED)
    before = tracked(table)

    with lakeseal.transaction(owner) as txn:
        part = txn.table(table)
        part.write(pa.table({"id": [4, 5], "n": [0, 0]}))
        part.update({"n": "n + 1"}, "id IN (2, 4)")
        # Another writer takes the ids that the new rows would have had.
        table.write(pa.table({"id": [6, 7, 8], "n": [0, 0, 0]}))

    after = tracked(table)
    assert len({row_id for row_id, _ in after.values()}) == len(after) == 8
    assert {n: after[n] for n in (1, 3)} == {n: before[n] for n in (1, 3)}
    assert after[2] == (before[2][0], table.version())
    assert {after[n][1] for n in (4, 5)} == {table.version()}


def test_columns_for_ids_that_others_carry_over_are_named_once(tables: Any) -> None:
    table = tables(range(3), properties=TRACKED)
    names = [table.snapshot().metadata.configuration[key] for key in (ID_COLUMN, VERSION_COLUMN)]
    assert len(set(names)) == 2
    table.set_properties({"note": "x"})
    assert [table.snapshot().metadata.configuration[key] for key in (ID_COLUMN, VERSION_COLUMN)] == names
    with pytest.raises(errors.InvalidArgument):
        table.set_properties({ID_COLUMN: "id"})
    clone = table.clone(tables.root / "clone")
    assert clone.snapshot().metadata.configuration[ID_COLUMN] not in names
    assert [ids for ids, _ in ids_of_files(clone).values()] == [range(3)]


def test_row_tracking_that_is_suspended_gives_no_ids(tables: Any) -> None:
    table = tables(range(3), properties=TRACKED)
    table.set_properties({"delta.enableRowTracking": "false", "delta.rowTrackingSuspended": "true"})
    table.write(tables.people(7))
    assert sorted(table.files()["baseRowId"].to_pylist(), key=str) == [0, None]
    with pytest.raises(errors.InvalidArgument, match="suspended"):
        table.set_properties({"delta.enableRowTracking": "true"})
    with pytest.raises(errors.InvalidArgument, match="row ids"):
        table.set_properties({"delta.enableRowTracking": "true", "delta.rowTrackingSuspended": None})


def test_ids_that_other_clients_carry_in_files_are_no_columns_of_the_table(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    table.write(pa.table({"id": [1, 2]}), properties=TRACKED)
    assert table.schema().names == ["id"]
    (file,) = table.files()["path"].to_pylist()
    name = table.snapshot().metadata.configuration[ID_COLUMN]
    stored = pq.read_table(tmp_path / "t" / file)
    pq.write_table(stored.append_column(name, pa.array([7, 8])), tmp_path / "t" / file)
    assert table.to_arrow().to_pylist() == [{"id": 1}, {"id": 2}]
    assert tracked(table) == {1: (7, 0), 2: (8, 0)}
    table.update({"id": "id + 2"}, "id = 1")
    assert tracked(table) == {3: (7, 1), 2: (8, 0)}
