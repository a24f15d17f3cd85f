"""Row ids: given once, kept by files that stay, and told honestly where rows moved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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

    def check(expected: str) -> None:
        for path, (ids, version) in ids_of_files(table).items():
            assert given.setdefault(path, ids) == ids, "a file that stays keeps its ids"
            assert version <= table.version()
        everything = sorted(number for ids in given.values() for number in ids)
        assert len(everything) == len(set(everything)), "no id was given to two rows"
        assert mark(table) == max(everything)
        assert preserved(table) == expected

    check("true")
    table.delete("id < 10")
    check("true")
    table.delete("id = 11")
    check("true" if properties else "false")
    table.update({"name": "'x'"}, "id = 25")
    check("false")
    news = tables.people(14, 40)
    table.merge(news, "t.id = s.id").when_not_matched_insert().execute()
    check("true")
    table.merge(news, "t.id = s.id").when_matched_update().execute()
    check("false")
    table.optimize()
    check("false")
    table.restore(2)
    check("true")
    table.write(tables.people(1), mode="overwrite")
    check("true")
    tables.vacuum(table)
    table.checkpoint()
    table = Table(table.uri)
    table.write(tables.people(2))
    check("true")
    tables.check(table)


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
    table.update({"id": "id + 1"}, "id = 1")
    assert sorted(table.to_arrow()["id"].to_pylist()) == [2, 2]
