"""`merge_schema` of a MERGE: the table's schema, with columns of the source that a clause brings in.

"*" brings all columns of the source. A clause that names what it sets brings what the source has under these names:
`fresh = s.fresh` adds the column `fresh`, `s = source.s` the fields that only the source's struct has. Clauses for rows
without a match in the source bring nothing.
"""

from __future__ import annotations

from lakeseal.commands.merge.clauses import MergeCommand
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.files.assignments import Path, column_path
from lakeseal.files.schema_merge import merge_schema
from lakeseal.protocol.feed_columns import check_feed_columns
from lakeseal.protocol.schema import StructField, StructType


def evolved(command: MergeCommand, txn: OptimisticTransaction, source: StructType) -> StructType:
    """The schema after the merge; the transaction gets it where it is another."""
    if command.merge_schema:
        merged = merge_schema(txn.metadata, _brought(command, source))
        if merged != txn.metadata:
            check_feed_columns(merged)
            txn.update_metadata(merged)
    return txn.metadata.schema


def own_path(name: str, command: MergeCommand, table: StructType) -> Path:
    """What a clause sets, without the name of the target in front."""
    path = column_path(name)
    qualified = len(path) > 1 and path[0].lower() in {n.lower() for n in command.target_names}
    return path[1:] if qualified and (table.field(path[1]) is not None or table.field(path[0]) is None) else path


def _brought(command: MergeCommand, source: StructType) -> StructType:
    paths: list[Path] = []
    for clause in command.clauses:
        if clause.action == "delete" or clause.kind == "not_matched_by_source":
            continue  # what is set there is nothing of the source's
        if clause.values is None:
            return source
        paths += (own_path(name, command, source) for name in clause.values)
    return _only(source, paths)


def _only(source: StructType, paths: list[Path]) -> StructType:
    """The fields at these paths, with all that is in them."""
    fields = []
    for field in source.fields:
        inner = [path[1:] for path in paths if path[0].lower() == field.name.lower()]
        if not inner:
            continue
        if () in inner or not isinstance(field.type, StructType):
            fields.append(field)
        else:
            fields.append(StructField(field.name, _only(field.type, inner), field.nullable, field.metadata))
    return StructType(tuple(fields))
