"""What a MERGE tells of itself, under the names that Delta's history has for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lakeseal.commands.file_changes import Metrics, file_metrics
from lakeseal.commands.merge.clauses import MergeCommand
from lakeseal.commit.proposal import Operation
from lakeseal.protocol.actions import Action

_SHOWN = {"matched": "matched", "not_matched": "notMatched", "not_matched_by_source": "notMatchedBySource"}


def merge_metrics(actions: Sequence[Action], counts: Counter[str], sources: int) -> Metrics:
    """`counts` are rows by the name of the clause that they fell under, and those `copied`."""
    files = file_metrics(actions)
    updated = {kind: counts[f"when_{kind}_update"] for kind in ("matched", "not_matched_by_source")}
    deleted = {kind: counts[f"when_{kind}_delete"] for kind in ("matched", "not_matched_by_source")}
    inserted = counts["when_not_matched_insert"]
    return {
        "numSourceRows": sources,
        "numTargetRowsInserted": inserted,
        "numTargetRowsUpdated": sum(updated.values()),
        "numTargetRowsDeleted": sum(deleted.values()),
        "numTargetRowsCopied": counts["copied"],
        "numTargetRowsMatchedUpdated": updated["matched"],
        "numTargetRowsMatchedDeleted": deleted["matched"],
        "numTargetRowsNotMatchedBySourceUpdated": updated["not_matched_by_source"],
        "numTargetRowsNotMatchedBySourceDeleted": deleted["not_matched_by_source"],
        "numOutputRows": inserted + sum(updated.values()) + counts["copied"],
        "numTargetFilesAdded": files["numAddedFiles"],
        "numTargetFilesRemoved": files["numRemovedFiles"],
        "numTargetBytesAdded": files["numAddedBytes"],
        "numTargetBytesRemoved": files["numRemovedBytes"],
        "numTargetChangeFilesAdded": files["numAddedChangeFiles"],
        "numTargetDeletionVectorsAdded": files["numDeletionVectorsAdded"],
        "numTargetDeletionVectorsRemoved": files["numDeletionVectorsRemoved"],
        "numTargetDeletionVectorsUpdated": files["numDeletionVectorsUpdated"],
    }


def merge_operation(command: MergeCommand, metrics: Metrics) -> Operation:
    shown = {f"{name}Predicates": [clause.to_json() for clause in command.of(kind)] for kind, name in _SHOWN.items()}
    return Operation(
        name="MERGE",
        parameters={"predicate": command.on, **shown},
        metrics=metrics,
        user_metadata=command.user_metadata,
    )
