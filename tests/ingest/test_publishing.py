"""The one path from reports to published, whoever calls it: the driver, or the task that reports last."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from lakeseal.expr.schema_text import parse_schema
from lakeseal.ingest import Chunk, Dataset, Plan, Retries, Source, WorkUnit, delegation
from lakeseal.ingest.publishing import Publishing
from lakeseal.ingest.targets import Tables
from lakeseal.ingest.turn import HeldTurn
from lakeseal.ledger import open as open_ledger
from lakeseal.owner.connect import connect
from lakeseal.protocol.schema import StructType
from lakeseal.steps.leases import Leases, of_pipeline
from lakeseal.table import Table

NOW = Retries(times=0)


class Meddling(Source, frozen=True, kw_only=True, tag="meddling"):
    """One row; while it is read, somebody changes the table that it goes to."""

    changes: ClassVar[list[Any]] = []

    def row_schema(self) -> StructType:
        return parse_schema("id long")

    def plan(self, watermarks: Mapping[str, Any]) -> Plan:
        return Plan() if watermarks else Plan(units=(WorkUnit(partition="", high={"n": 1}),))

    def read(self, unit: WorkUnit) -> Iterator[Chunk]:
        while self.changes:
            self.changes.pop()()
        yield Chunk(rows=pa.RecordBatch.from_pydict({"id": [1]}))


@pytest.fixture(params=["driver", "tasks"])
def publishes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "tasks":
        monkeypatch.setattr(delegation, "FROM", 1)
    return str(request.param)


@pytest.mark.usefixtures("publishes")
def test_files_of_a_table_that_has_changed_meanwhile_are_not_recorded_and_the_next_run_writes_others(lake: Any) -> None:
    target = lake.to_table(owner="none")
    table = lake.table(owner=False)
    table.write(pa.table({"id": [0]}))
    Meddling.changes.append(lambda: Table(table.uri).add_columns(pa.schema([("name", pa.string())])))
    pipeline = lake.pipeline(Dataset(name="a", source=Meddling(), target=target, retries=NOW))
    result = pipeline.run(check=False).datasets[0]
    assert (result.error or {})["kind"] == "metadata-changed"
    assert result.state == "failed", "it is not set aside: there is nothing that a person would have to abort"
    assert (pipeline.open_sequences(), pipeline.watermarks()) == ({}, [])
    assert pipeline.run().rows == 1
    assert lake.ids() == Counter([0, 1])


@pytest.mark.usefixtures("publishes")
def test_what_files_do_not_depend_on_may_change_while_they_are_written(lake: Any) -> None:
    table = lake.table(owner=False)
    table.write(pa.table({"id": [0]}))
    kept = {"delta.logRetentionDuration": "interval 60 days"}
    Meddling.changes.append(lambda: Table(table.uri).set_properties(kept))
    pipeline = lake.pipeline(Dataset(name="a", source=Meddling(), target=lake.to_table(owner="none"), retries=NOW))
    assert pipeline.run().rows == 1
    assert lake.ids() == Counter([0, 1])
    assert kept.items() <= Table(table.uri).snapshot().metadata.configuration.items()


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_a_table_that_gets_columns_is_published_by_tasks_too(
    lake: Any, monkeypatch: pytest.MonkeyPatch, mapping: str
) -> None:
    def nothing_left(self: Publishing, decisions: Any, derivations: Any) -> list[Any]:
        assert not [*decisions, *derivations], "the driver has nothing to publish"
        return []

    monkeypatch.setattr(delegation, "FROM", 1)
    monkeypatch.setattr(Publishing, "publish", nothing_left)
    lake.land("1.json", [{"id": 1, "name": "a"}])
    table = lake.table(owner=False)
    table.write(pa.table({"id": [0]}))
    if mapping == "name":
        table.set_properties({"delta.columnMapping.mode": "name"})
    target = lake.to_table(owner="none", merge_schema=True)
    assert lake.pipeline(Dataset(name="a", source=lake.files(), target=target)).run().rows == 1
    rows = sorted(Table(table.uri).to_arrow().to_pylist(), key=lambda row: row["id"])
    assert rows == [{"id": 0, "name": None}, {"id": 1, "name": "a"}]


@pytest.mark.usefixtures("publishes")
@pytest.mark.parametrize("owner", ["none", "ledger"])
def test_the_version_of_a_result_is_the_targets_and_never_the_error_tables(lake: Any, owner: str) -> None:
    lake.land("1.json", ["{broken"])
    target = lake.to_table(owner=owner)
    dataset = Dataset(name="a", source=lake.files(), target=target, on_bad_record="error_table")
    pipeline = lake.pipeline(dataset)
    result = pipeline.run().datasets[0]
    assert (result.rows, result.to_error_table) == (0, 1)
    assert lake.table("t_errors").version() == 1
    assert result.version in (None, lake.table().version()), "nothing was added to the target"
    lake.land("2.json", [{"id": 1}])
    assert pipeline.run().datasets[0].version == lake.table().version() == 1


@pytest.mark.usefixtures("publishes")
@pytest.mark.parametrize("owner", ["none", "ledger"])
def test_datasets_may_share_an_error_table(lake: Any, owner: str) -> None:
    names = ["a", "b", "c"]
    for name in names:
        lake.land("1.json", [{"id": 1}, "{broken"], folder=name)
    datasets = [
        Dataset(
            name=name,
            source=lake.files(name),
            target=lake.to_table(f"to {name}", owner=owner),
            on_bad_record="error_table",
            error_table=f"{lake.root}/errors",
        )
        for name in names
    ]
    assert lake.pipeline(*datasets).run().rows == 3
    errors = lake.table("errors")
    assert Counter(errors.to_arrow()["dataset"].to_pylist()) == Counter(names)
    [newest, *_] = errors.history()
    told = json.loads(newest["userMetadata"])
    assert told["pipeline"] == "test"
    assert ("dataset" in told) == (owner == "none"), "one commit is of one dataset, or of all three"


def test_what_is_only_constructed_creates_nothing(lake: Any) -> None:
    before = threading.active_count()
    with open_ledger(lake.ledger) as ledger:
        turn = HeldTurn(Leases(ledger), "test", "a run", 60)
        Tables(connect(lake.ledger))
        assert Leases(ledger).look(of_pipeline("test")) is None
        assert threading.active_count() == before
        with turn:
            assert Leases(ledger).look(of_pipeline("test")) is not None
        assert Leases(ledger).look(of_pipeline("test")) is None
    assert {path.name.partition(".db")[0] for path in lake.place.iterdir()} == {"ledger"}
