"""Targets that rows change: whatever comes, late, twice or as a delete, in whatever runs, the table is what a
dictionary is that was given the rows one after the other."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from lakeseal.errors import InvalidArgument, RunFailed
from lakeseal.ingest import Dataset, Pipeline, TableTarget
from lakeseal.table import Table
from oracles.seeds import cases
from support.row_histories import SCHEMA, Row, historized, in_order, random_rows, upserted

UPSERT = {"mode": "upsert", "keys": ("id",), "delete_when": "gone"}
BY_N = {**UPSERT, "sequence_by": "n"}


class Landed:
    """A pipeline over files of rows, and all rows that have landed, in the order of the files."""

    def __init__(self, lake: Any, owner: str, **target: Any) -> None:
        self.lake, self.rows, self.files = lake, list[Row](), 0
        dataset = Dataset(name="d", source=lake.files(schema=SCHEMA), target=lake.to_table(owner=owner, **target))
        self.pipeline: Pipeline = lake.pipeline(dataset)

    def land(self, rows: list[Row]) -> None:
        self.lake.land(f"{self.files:05}.json", rows)
        self.files += 1
        self.rows += rows

    def run(self) -> None:
        self.pipeline.run()

    def table(self) -> Table:
        return self.lake.table()  # type: ignore[no-any-return]

    def found(self) -> list[Row]:
        return in_order(self.table().to_arrow().to_pylist())


def in_runs(landed: Landed, rng: random.Random, rows: list[Row]) -> None:
    """Some files at a time, some rows in each."""
    while rows:
        for _ in range(rng.randrange(1, 4)):
            cut = rng.randrange(1, 15)
            landed.land(rows[:cut])
            rows = rows[cut:]
        landed.run()


@pytest.mark.parametrize("owner", ["ledger", "none"])
@pytest.mark.parametrize("seed", cases(3, 100))
def test_upserts_by_a_sequence_are_a_dictionary(lake: Any, owner: str, seed: int) -> None:
    rng = random.Random(seed)
    landed = Landed(lake, owner, **BY_N)
    in_runs(landed, rng, random_rows(rng, 120))
    assert landed.found() == upserted(landed.rows)


@pytest.mark.parametrize("owner", ["ledger", "none"])
@pytest.mark.parametrize("seed", cases(2, 100))
def test_partial_upserts_are_a_dictionary(lake: Any, owner: str, seed: int) -> None:
    rng = random.Random(seed)
    landed = Landed(lake, owner, partial=True, **BY_N)
    in_runs(landed, rng, random_rows(rng, 120, partial=True))
    # A null is no value: `gone` itself stays as it was, too.
    assert landed.found() == upserted(landed.rows, partial=True)


@pytest.mark.parametrize("order", ["n", "n DESC"])
def test_behind_a_transform_partial_rows_are_laid_over_each_other_by_their_sequence(lake: Any, order: str) -> None:
    """Where the query gave the newer row first, what the older one said was lost."""
    lake.land("1.json", [{"id": 1, "n": 1, "a": "x"}, {"id": 1, "n": 2, "b": 7}])
    target = lake.to_table(mode="upsert", keys=("id",), sequence_by="n", partial=True)
    query = f"SELECT id, n, a, b FROM input ORDER BY {order}"
    lake.pipeline(Dataset(name="d", source=lake.files(schema=SCHEMA), target=target, transform=query)).run()
    assert lake.table().to_arrow().to_pylist() == [{"id": 1, "n": 2, "a": "x", "b": 7}]


@pytest.mark.parametrize(
    ("target", "rows"),
    [
        ({"mode": "upsert", "partial": True}, [{"id": 1, "a": "x"}, {"id": 1, "b": 7}]),
        ({"mode": "scd2", "sequence_by": "n"}, [{"id": 1, "n": 1}, {"id": 1, "n": 1, "gone": True}]),
        ({"mode": "upsert", "sequence_by": "n"}, [{"id": 1, "n": 1}, {"id": 1, "n": 1, "gone": True}]),
    ],
)
def test_behind_a_transform_rows_of_which_nothing_says_which_counts_are_refused(
    lake: Any, target: dict[str, Any], rows: list[Row]
) -> None:
    lake.land("1.json", rows)
    to = lake.to_table(keys=("id",), delete_when="gone", **target)
    dataset = Dataset(name="d", source=lake.files(schema=SCHEMA), target=to, transform="SELECT * FROM input")
    with pytest.raises(RunFailed, match="nothing says which of them is the last"):
        lake.pipeline(dataset).run()


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        (("insert", "truncate", "insert"), "it is not known which rows came before"),
        (("update_postimage", "update_postimage"), "nothing says which of them is the last"),
    ],
)
def test_behind_a_transform_changes_of_which_nothing_says_which_was_last_are_refused(
    lake: Any, kinds: tuple[str, ...], told: str
) -> None:
    """Two changes of a row in one transaction have one version: any of them was taken."""
    rows = [{"id": 1, "v": 5, "a": f"{n}", "_change_type": kind} for n, kind in enumerate(kinds)]
    lake.land("1.json", rows)
    source = lake.files(schema="id long, v long, a string, _change_type string")
    target = lake.to_table(mode="cdc", keys=("id",), sequence_by="v")
    with pytest.raises(RunFailed, match=told):
        lake.pipeline(Dataset(name="d", source=source, target=target, transform="SELECT * FROM input")).run()


@pytest.mark.parametrize("owner", ["ledger", "none"])
def test_without_a_sequence_the_last_row_to_come_wins(lake: Any, owner: str) -> None:
    rng = random.Random(7)
    landed = Landed(lake, owner, **UPSERT)
    in_runs(landed, rng, random_rows(rng, 100))
    assert landed.found() == upserted(landed.rows, by_sequence=False)


@pytest.mark.parametrize("owner", ["ledger", "none"])
@pytest.mark.parametrize("seed", cases(2, 100))
def test_a_history_has_every_version_in_its_place(lake: Any, owner: str, seed: int) -> None:
    rng = random.Random(seed)
    landed = Landed(lake, owner, mode="scd2", keys=("id",), sequence_by="n", delete_when="gone")
    in_runs(landed, rng, random_rows(rng, 120))
    assert landed.found() == historized(landed.rows)


@pytest.mark.parametrize("owner", ["ledger", "none"])
def test_replace_leaves_the_rows_of_the_last_run_only(lake: Any, owner: str) -> None:
    landed = Landed(lake, owner, mode="replace")
    rows = random_rows(random.Random(1), 30)
    for part in (rows[:20], rows[20:]):
        landed.land(part)
        landed.run()
    assert sorted(map(str, landed.found())) == sorted(map(str, in_order(rows[20:])))
    landed.run()  # nothing new replaces nothing
    assert len(landed.found()) == 10


def test_a_late_row_does_not_bring_back_what_was_deleted(lake: Any) -> None:
    landed = Landed(lake, "ledger", **BY_N)
    for row in ({"id": 1, "n": 1}, {"id": 1, "n": 5, "gone": True}, {"id": 1, "n": 3, "a": "late"}):
        landed.land([row])
        landed.run()
    assert landed.found() == []
    beside = lake.table("t_deletes").to_arrow()
    assert beside.select(["id", "n"]).to_pylist() == [{"id": 1, "n": 5}]
    landed.land([{"id": 1, "n": 6, "a": "new", "b": None, "gone": None}])
    landed.run()
    assert landed.found() == [{"id": 1, "n": 6, "a": "new", "b": None, "gone": None}]
    assert lake.table("t_deletes").to_arrow().num_rows == 0


def test_deletes_are_forgotten_when_nobody_can_be_late_any_more(lake: Any) -> None:
    landed = Landed(lake, "ledger", remember_deletes_seconds=0, **BY_N)
    landed.land([{"id": 1, "n": 5, "gone": True}])
    landed.run()
    assert lake.table("t_deletes").to_arrow().num_rows == 1
    landed.land([{"id": 2, "n": 1}])
    landed.run()
    assert lake.table("t_deletes").to_arrow().num_rows == 0


def test_rows_that_are_all_late_move_the_watermarks_and_nothing_else(lake: Any) -> None:
    landed = Landed(lake, "ledger", **BY_N)
    landed.land([{"id": 1, "n": 5, "a": "x"}])
    landed.run()
    version = landed.table().version()
    landed.land([{"id": 1, "n": 5, "a": "again"}, {"id": 1, "n": 2, "a": "late"}])
    landed.run()
    assert landed.table().version() == version
    assert len(landed.pipeline.watermarks()) == 2
    assert landed.pipeline.run().state == "nothing_new"


def test_a_row_without_a_key_goes_to_the_error_table_with_itself(lake: Any) -> None:
    target = lake.to_table(**BY_N)
    dataset = Dataset(name="d", source=lake.files(schema=SCHEMA), target=target, on_bad_record="error_table")
    lake.land("1.json", [{"id": 1, "n": 1}, {"n": 2, "a": "whose?"}])
    lake.pipeline(dataset).run()
    assert lake.table().to_arrow()["id"].to_pylist() == [1]
    (told,) = lake.table("t_errors").to_arrow()["record"].to_pylist()
    assert '"a":"whose?"' in told
    assert "lakeseal" not in told


@pytest.mark.parametrize("mode", [{"mode": "upsert"}, {"mode": "scd2"}])
def test_an_empty_text_that_would_be_a_partitions_null_is_no_key(lake: Any, mode: dict[str, str]) -> None:
    """It was written as null, never found again, and doubled by the next run."""
    target = lake.to_table(keys=("a", "id"), sequence_by="n", partition_by=("a",), **mode)
    dataset = Dataset(name="d", source=lake.files(schema=SCHEMA), target=target, on_bad_record="error_table")
    for n in (1, 2):
        lake.land(f"{n}.json", [{"id": 1, "n": n, "a": ""}, {"id": 1, "n": n, "a": "x"}])
        lake.pipeline(dataset).run()
    found = lake.table().to_arrow().to_pylist()
    assert {row["a"] for row in found} == {"x"}
    assert len(found) == (1 if mode["mode"] == "upsert" else 2)
    assert lake.table("t_errors").to_arrow().num_rows == 2


def test_an_empty_key_is_refused_by_a_table_that_was_partitioned_by_it_before(lake: Any) -> None:
    landed = Landed(lake, "ledger", mode="upsert", keys=("a",), sequence_by="n", partition_by=("a",))
    landed.land([{"id": 1, "n": 1, "a": "x"}])
    landed.run()
    other = Landed(lake, "ledger", mode="upsert", keys=("a",), sequence_by="n")
    other.files = landed.files
    other.land([{"id": 2, "n": 2, "a": ""}])
    with pytest.raises(RunFailed, match="An empty text is null as a partition's value"):
        other.run()
    assert landed.table().to_arrow()["a"].to_pylist() == ["x"]


def test_a_row_without_a_key_fails_the_dataset_by_its_words(lake: Any) -> None:
    landed = Landed(lake, "ledger", **BY_N)
    landed.land([{"n": 2, "a": "whose?"}])
    with pytest.raises(RunFailed, match="whose"):
        landed.run()


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ({"mode": "upsert"}, "keys"),
        ({"mode": "append", "keys": ("id",)}, "keys says nothing"),
        ({"mode": "scd2", "keys": ("id",)}, "sequence_by"),
        ({"mode": "cdc", "keys": ("id",), "delete_when": "gone"}, "delete_when says nothing"),
        ({"mode": "scd2", "keys": ("id",), "sequence_by": "n", "partial": True}, "partial says nothing"),
        ({"mode": "upsert", "keys": ("id",), "remember_deletes_seconds": 1.0}, "remember_deletes_seconds says nothing"),
    ],
)
def test_what_a_mode_does_not_know_is_refused(target: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        TableTarget(uri="x", **target)


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ({**BY_N, "keys": ("idd",)}, "'idd', which the rows do not have"),
        ({**BY_N, "sequence_by": "gone"}, "gone is a boolean"),
        ({**BY_N, "delete_when": "no_such"}, "no_such"),
        ({"mode": "cdc", "keys": ("id",)}, "_change_type"),
    ],
)
def test_what_the_rows_do_not_have_is_told_by_name(lake: Any, target: dict[str, Any], told: str) -> None:
    landed = Landed(lake, "ledger", **target)
    landed.land([{"id": 1, "n": 1}])
    with pytest.raises(RunFailed, match=told):
        landed.run()


def test_names_are_found_in_any_case_and_new_columns_come_with_merge_schema(lake: Any) -> None:
    landed = Landed(lake, "ledger", mode="upsert", keys=("ID",), sequence_by="N")
    landed.land([{"id": 1, "n": 1, "a": "x", "b": 1}])
    landed.run()
    wider = lake.files(schema="id long, n long, a string, c double")
    target = lake.to_table(mode="upsert", keys=("ID",), sequence_by="N", merge_schema=True)
    lake.land("9.json", [{"id": 1, "n": 2, "a": "y", "c": 0.5}, {"id": 2, "n": 1, "c": 1.5}])
    lake.pipeline(Dataset(name="d", source=wider, target=target)).run()
    found = lake.table().to_arrow().select(["id", "n", "a", "b", "c"]).sort_by("id").to_pylist()
    assert found == [
        {"id": 1, "n": 2, "a": "y", "b": 1, "c": 0.5},
        {"id": 2, "n": 1, "a": None, "b": None, "c": 1.5},
    ]


@pytest.mark.parametrize("mode", ["upsert", "partial", "scd2"])
def test_a_table_that_spells_its_columns_otherwise_is_the_same_table(lake: Any, mode: str) -> None:
    """One that was there before: its names are in another case, in another order, and wider."""
    ends = [pa.field("VALID_FROM", pa.int64()), pa.field("VALID_TO", pa.int64())] if mode == "scd2" else []
    names = [("GONE", pa.bool_()), ("B", pa.int64()), ("N", pa.int64()), ("A", pa.string()), ("ID", pa.int64())]
    lakeseal.create(lake.table().uri, pa.schema([*(pa.field(*one) for one in names), *ends]), owner=lake.ledger)
    how = {"mode": "upsert", "partial": True} if mode == "partial" else {"mode": mode}
    schema = "id int, n int, a string, b long, gone boolean"
    target = lake.to_table(keys=("id",), sequence_by="n", delete_when="gone", **how)
    pipeline = lake.pipeline(Dataset(name="d", source=lake.files(schema=schema), target=target))
    rng = random.Random(5)
    rows = random_rows(rng, 60, partial=mode == "partial")
    for n, start in enumerate(range(0, 60, 20)):
        lake.land(f"{n}.json", rows[start : start + 20])
        pipeline.run()
    wanted = historized(rows) if mode == "scd2" else upserted(rows, partial=mode == "partial")
    found = [{name.lower(): value for name, value in row.items()} for row in lake.table().to_arrow().to_pylist()]
    assert in_order(found) == wanted


def test_deletes_are_remembered_of_keys_that_grew(lake: Any) -> None:
    how = {**BY_N, "merge_schema": True, "properties": {"delta.enableTypeWidening": "true"}}
    for n, (schema, rows) in enumerate(
        [
            ("id int, n int, gone boolean", [{"id": 1, "n": 5, "gone": True}]),
            ("id long, n long, gone boolean", [{"id": 1, "n": 3}, {"id": 2**40, "n": 2**41, "gone": True}]),
            ("id long, n long, gone boolean", [{"id": 2**40, "n": 2**40}, {"id": 2, "n": 1}]),
        ]
    ):
        lake.land(f"{n}.json", rows)
        lake.pipeline(Dataset(name="d", source=lake.files(schema=schema), target=lake.to_table(**how))).run()
    assert lake.table().to_arrow()["id"].to_pylist() == [2]


def test_a_key_may_be_the_sequence_and_names_of_ours_are_refused(lake: Any) -> None:
    lake.land("1.json", [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}, {"id": 2, "name": "c"}])
    lake.pipeline(
        Dataset(name="d", source=lake.files(), target=lake.to_table(mode="scd2", keys=("id",), sequence_by="id"))
    ).run()
    assert sorted(lake.table().to_arrow()["name"].to_pylist()) == ["a", "c"]
    taken = lake.files(schema="id long, __lakeseal_deleted long")
    with pytest.raises(RunFailed, match="can't have a column __lakeseal_deleted"):
        lake.pipeline(Dataset(name="e", source=taken, target=lake.to_table("u", mode="upsert", keys=("id",)))).run()


@pytest.mark.parametrize("owner", ["ledger", "none"])
def test_runs_that_merge_leave_nothing_in_the_staging_area(lake: Any, owner: str) -> None:
    pipeline = lake.pipeline(
        Dataset(name="t", source=lake.files(), target=lake.to_table(mode="upsert", keys=("id",), owner=owner))
    )
    for number in range(3):
        lake.land(f"{number}.json", [{"id": 1}])
        pipeline.run()
    assert not list((lake.place / "t").glob("_lakeseal_staging/*"))
