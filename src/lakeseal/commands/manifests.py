"""Symlink manifests: lists of a version's files, for engines that read Parquet and not Delta (Hive, Presto, Athena).

One list per partition, below `_symlink_format_manifest/`, named as Delta names them. Each is replaced at once, all of
them one after the other: an engine that reads several meanwhile may see two versions. Lists of partitions that are gone
are deleted. What such engines cannot see must not be there: deletion vectors, mapped columns.
"""

from __future__ import annotations

from lakeseal.errors import InvalidArgument
from lakeseal.log.files import add_actions
from lakeseal.log.snapshot import Snapshot
from lakeseal.protocol.data_paths import resolve_data_path
from lakeseal.protocol.partitions import NULL_DIRECTORY, escape_path_name
from lakeseal.storage.base import Store

DIRECTORY = "_symlink_format_manifest/"


def write_manifests(snapshot: Snapshot, store: Store) -> tuple[str, ...]:
    """The keys of all that there are now."""
    if snapshot.properties.column_mapping_mode != "none":
        raise InvalidArgument(
            "Engines that read manifests know nothing of mapped columns",
            hint="Write a copy of the table without mapping",
        )
    lists: dict[str, list[str]] = {} if snapshot.partition_columns else {"": []}
    for add in add_actions(snapshot.files):
        if add.deletion_vector is not None:
            raise InvalidArgument(
                "A file has rows that only its deletion vector hides, which engines that read manifests would show",
                file=add.path,
                hint="Run optimize() first, and set delta.enableDeletionVectors=false",
            )
        lists.setdefault(_partition(snapshot, add.partition_values), []).append(_uri(snapshot.table, add.path))
    keys = {f"{DIRECTORY}{partition}manifest": files for partition, files in lists.items()}
    for key, files in keys.items():
        store.put(key, "".join(f"{file}\n" for file in sorted(files)).encode())
    stale = [meta.key for meta in store.list(DIRECTORY, recursive=True) if meta.key not in keys]
    if stale:
        store.delete(stale)
    return tuple(sorted(keys))


def _partition(snapshot: Snapshot, values: dict[str, str | None]) -> str:
    names = [
        f"{escape_path_name(n)}={escape_path_name(values[n] or NULL_DIRECTORY)}/" for n in snapshot.partition_columns
    ]
    return "".join(names)


def _uri(table: str, path: str) -> str:
    found = resolve_data_path(table, path, allow_outside=True)
    return path if found.root is not None else f"{table.rstrip('/')}/{found.key}"
