"""The same commands by another client on a twin table give the same rows and the same change feed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakeseal import Table
from support.rows import rows

FEED = {"delta.enableChangeDataFeed": "true"}


class Twin:
    """One command on both tables."""

    def __init__(self, root: Path, partition_by: list[str]) -> None:
        self.ours = Table(root / "ours")
        self._path = str(root / "theirs")
        self._partition_by = partition_by

    @property
    def theirs(self) -> DeltaTable:
        return DeltaTable(self._path)

    def create(self, data: pa.Table) -> None:
        self.ours.write(data, partition_by=self._partition_by, properties=FEED)
        write_deltalake(self._path, data, partition_by=self._partition_by, configuration=FEED)

    def append(self, data: pa.Table) -> None:
        self.ours.write(data)
        write_deltalake(self._path, data, mode="append")

    def overwrite(self, data: pa.Table) -> None:
        self.ours.write(data, mode="overwrite")
        write_deltalake(self._path, data, mode="overwrite")

    def delete(self, where: str) -> None:
        self.ours.delete(where)
        self.theirs.delete(where)

    def update(self, values: dict[str, str], where: str) -> None:
        self.ours.update(values, where)
        self.theirs.update(updates=values, predicate=where)

    def upsert(self, source: pa.Table) -> None:
        on = "t.id = s.id"
        self.ours.merge(source, on).when_matched_update().when_not_matched_insert().execute()
        merge = self.theirs.merge(source, on, source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def sync(self, source: pa.Table) -> None:
        on = "t.id = s.id"
        merge = self.ours.merge(source, on).when_matched_update({"name": "s.name"}, "s.id > 4").when_matched_delete()
        merge.when_not_matched_by_source_update({"score": "t.score + 1"}, "t.id > 6").execute()
        other = self.theirs.merge(source, on, source_alias="s", target_alias="t")
        other = other.when_matched_update({"name": "s.name"}, "s.id > 4").when_matched_delete()
        other.when_not_matched_by_source_update({"score": "t.score + 1"}, "t.id > 6").execute()

    def compact(self) -> None:
        self.ours.optimize()
        self.theirs.optimize.compact()

    def restore(self, version: int) -> None:
        self.ours.restore(version)
        self.theirs.restore(version)

    def check(self) -> None:
        assert rows(self.ours.to_arrow()) == rows(pa.table(self.theirs.to_pyarrow_table()))
        assert rows(pa.table(DeltaTable(self.ours.uri).to_pyarrow_table())) == rows(self.ours.to_arrow())
        ours, theirs = changes(self.ours.changes(0)), changes(pa.table(self.theirs.load_cdf(0).read_all()))
        assert ours == theirs
        # Each also reads the feed that the other wrote.
        assert changes(pa.table(DeltaTable(self.ours.uri).load_cdf(0).read_all())) == ours
        assert changes(Table(self._path).changes(0)) == ours


def changes(feed: pa.Table) -> dict[int, Counter[Any]]:
    found: dict[int, Counter[Any]] = {}
    for row in feed.to_pylist():
        key = (row["_change_type"], row["id"], row["name"], row["part"], row["score"])
        found.setdefault(row["_commit_version"], Counter())[key] += 1
    return found


@pytest.mark.parametrize("partition_by", [[], ["part"]], ids=["whole", "partitioned"])
def test_the_same_commands_give_the_same_table(tables: Any, tmp_path: Path, partition_by: list[str]) -> None:
    twin = Twin(tmp_path, partition_by)
    twin.create(tables.people(*range(10)))
    twin.append(tables.people(*range(10, 20)))
    twin.delete("id % 4 = 1")
    twin.update({"name": "'updated'", "score": "score * 2"}, "id > 12")
    twin.upsert(tables.people(3, 5, 14, 40))
    twin.delete("id >= 10 AND id <= 19")
    twin.sync(tables.people(2, 3, 6, 7))
    twin.append(tables.people(50))
    twin.compact()
    twin.update({"part": "'moved'"}, "id = 8")
    twin.check()
    assert twin.ours.version() == twin.theirs.version()
    twin.overwrite(tables.people(70, 71))
    twin.restore(3)
    assert rows(twin.ours.to_arrow()) == rows(pa.table(twin.theirs.to_pyarrow_table()))
