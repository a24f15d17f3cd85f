"""What tests of change capture share: a table of a real PostgreSQL, and a pipeline that captures it."""

from __future__ import annotations

from typing import Any

import psycopg
from msgspec.structs import replace

from lakeseal.ingest import Dataset, Pipeline, PostgresSource, Retries


class Captured:
    """A table of the database, and a pipeline that captures it."""

    def __init__(self, lake: Any, database: str, columns: str, *, quality: tuple[Any, ...] = (), **target: Any) -> None:
        self.lake = lake
        self.connection = psycopg.connect(database, autocommit=True)
        self.connection.execute(f"CREATE TABLE t ({columns})")
        self.source = PostgresSource(url=database, table="t", slot="cap")
        self.target = lake.to_table(**{"mode": "cdc", "keys": ("id",), **target})
        self.quality = quality
        self.on_bad_record: Any = "fail"
        self.limit()

    def bad_records_go(self, where: str) -> None:
        self.on_bad_record = where
        self.limit()

    def limit(self, max_changes: int | None = None) -> None:
        """What a run takes from now on."""
        self.pipeline: Pipeline = self.lake.pipeline(
            Dataset(
                name="t",
                source=replace(self.source, max_changes=max_changes),
                target=self.target,
                quality=self.quality,
                on_bad_record=self.on_bad_record,
                retries=Retries(times=5, first_pause_seconds=0.05),
            )
        )

    def do(self, *statements: str) -> None:
        with self.connection.transaction():
            for statement in statements:
                self.connection.execute(statement)

    def rows(self) -> list[dict[str, Any]]:
        self.pipeline.run()
        return self.lake.table().to_arrow().sort_by("id").to_pylist()  # type: ignore[no-any-return]

    def confirmed(self) -> str:
        asked = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = 'cap'"
        found = self.connection.execute(asked).fetchone()
        assert found is not None
        return str(found[0])
