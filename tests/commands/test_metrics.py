"""What commands tell of themselves has the names that Delta's history has for it."""

from __future__ import annotations

from typing import Any

from lakeseal import Table

FILES = {"numAddedFiles", "numRemovedFiles", "numAddedBytes", "numRemovedBytes"}
TIMES = {"executionTimeMs", "scanTimeMs", "rewriteTimeMs"}
VECTORS = {"numDeletionVectorsAdded", "numDeletionVectorsRemoved", "numDeletionVectorsUpdated"}
NAMES = {
    "DELETE": FILES | TIMES | VECTORS | {"numDeletedRows", "numCopiedRows", "numAddedChangeFiles"},
    "UPDATE": FILES | TIMES | VECTORS | {"numUpdatedRows", "numCopiedRows", "numAddedChangeFiles"},
    "MERGE": TIMES
    | {"numSourceRows", "numOutputRows"}
    | {f"numTargetRows{what}" for what in ("Inserted", "Updated", "Deleted", "Copied")}
    | {f"numTargetRowsMatched{what}" for what in ("Updated", "Deleted")}
    | {f"numTargetRowsNotMatchedBySource{what}" for what in ("Updated", "Deleted")}
    | {f"numTarget{what}" for what in ("FilesAdded", "FilesRemoved", "BytesAdded", "BytesRemoved", "ChangeFilesAdded")}
    | {f"numTargetDeletionVectors{what}" for what in ("Added", "Removed", "Updated")},
    "OPTIMIZE": FILES
    | {"numDeletionVectorsRemoved"}
    | {"minFileSize", "p25FileSize", "p50FileSize", "p75FileSize", "maxFileSize"},
    "RESTORE": {
        "tableSizeAfterRestore",
        "numOfFilesAfterRestore",
        "numRemovedFiles",
        "removedFilesSize",
        "numRestoredFiles",
        "restoredFilesSize",
    },
    "VACUUM START": {"numFilesToDelete", "sizeOfDataToDelete"},
    "VACUUM END": {"numDeletedFiles", "numVacuumedDirectories"},
    "WRITE": {"numFiles", "numOutputBytes", "numOutputRows"},
}


def test_metrics_have_deltas_names_in_the_history_and_in_results(tables: Any) -> None:
    table: Table = tables(range(10), range(10, 20))
    results = [
        table.delete("id = 1"),
        table.update({"name": "'x'"}, "id = 2"),
        table.merge(tables.people(3, 30), "t.id = s.id").when_matched_update().when_not_matched_insert().execute(),
        table.optimize(),
        table.restore(2),
    ]
    tables.vacuum(table)
    entries = {entry["operation"]: entry["operationMetrics"] for entry in table.history()}
    assert entries.keys() == NAMES.keys()
    for operation, metrics in entries.items():
        assert NAMES[operation] <= metrics.keys(), operation
        assert all(value.isdigit() for value in metrics.values()), "texts, as Delta writes them"
    for result in results:
        assert {name: str(value) for name, value in result.metrics.items()} in entries.values()
