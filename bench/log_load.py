"""log-load: from a table's location to its list of live files, beside deltalake.

Three tables, each partitioned by day, each file with statistics of four columns, as Spark writes them:

- `json-300k`: 30 commits of 10,000 adds, no checkpoint;
- `checkpoint-1m`: a checkpoint of 1,000,000 files, older commits cleaned up;
- `commits-10k`: 10,000 commits of one add with a checkpoint each 10.

`open`: what is timed starts with the location and ends when path, size, partition values and statistics of all live
files are in memory. Ours is `Table(uri).snapshot().files`; deltalake's is `DeltaTable(uri).get_add_actions()`, the one
way it has to give them. It parses the statistics while it does so, which we do when a predicate needs them, so
`open, paths only` compares with `DeltaTable(uri).file_uris()` as well, where neither touches them.

Both have opened a small table before, but in `first open of a process`, where a process that has imported its library
opens a table of 100 commits and nothing else: what is loaded on the way counts.

`refresh`: the table is open, one commit arrives, what is timed is the way to the list of files of the new version:
`table.snapshot().files` again, `update_incremental()` and the same call again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import Subject, Timer, data_folder

if TYPE_CHECKING:
    import pyarrow as pa
    from harness import Report

DAYS = 365
SCATTER = 0x9E3779B97F4A7C15F39CC0605CEDC835  # odd, so that file numbers become distinct ids that share no prefix
TABLES: dict[str, dict[str, int]] = {
    "json-300k": {"commits": 30, "adds": 10_000},
    "checkpoint-1m": {"commits": 100, "adds": 10_000, "checkpoint_every": 99, "oldest_commit": 99},
    "commits-10k": {"commits": 10_000, "adds": 1, "checkpoint_every": 10},
}


def main(report: Report) -> None:
    small = str(data_folder("log-load-small", build, commits=100, adds=1, checkpoint_every=10))
    for name, shape in TABLES.items():
        report.say(f"table {name}: {shape}")
        uri = str(data_folder(f"log-load-{name}", build, **shape))
        for case, ours, peer in (
            ("open", open_lakeseal, open_deltalake),
            ("open, paths only", paths_lakeseal, paths_deltalake),
            ("refresh", refresh_lakeseal, refresh_deltalake),
        ):
            _compare(report, f"{name}: {case}", ours, peer, 2.0, uri=uri, small=small)
    _compare(report, "first open of a process", open_lakeseal, open_deltalake, 1 / 1.5, uri=small, small="")


def _compare(report: Report, case: str, ours: Any, peer: Any, target: float, **arguments: str) -> None:
    subjects = [
        Subject(name=name, function=function, arguments=arguments)
        for name, function in (("lakeseal", ours), ("deltalake", peer))
    ]
    report.compare(case, subjects, targets={"deltalake": target})


def open_lakeseal(timer: Timer, uri: str, small: str) -> dict[str, int]:
    from lakeseal import Table

    if small:
        Table(small).snapshot().files  # noqa: B018  loads what is loaded once
    with timer:
        files = Table(uri).snapshot().files
        files = files.select(["path", "size", "partitionValues", "stats"])
    return _facts(files.column("path"), files.column("size"))


def open_deltalake(timer: Timer, uri: str, small: str) -> dict[str, int]:
    import deltalake

    if small:
        deltalake.DeltaTable(small).get_add_actions()
    with timer:
        files = deltalake.DeltaTable(uri).get_add_actions()
    return _facts(files["path"], files["size_bytes"])


def paths_lakeseal(timer: Timer, uri: str, small: str) -> int:
    from lakeseal import Table

    Table(small).snapshot().files  # noqa: B018
    with timer:
        paths = Table(uri).snapshot().files.column("path").to_pylist()
    return len(paths)


def paths_deltalake(timer: Timer, uri: str, small: str) -> int:
    import deltalake

    deltalake.DeltaTable(small).get_add_actions()
    with timer:
        paths = deltalake.DeltaTable(uri).file_uris()
    return len(paths)


def refresh_lakeseal(timer: Timer, uri: str, small: str) -> dict[str, int]:
    from lakeseal import Table

    with own_copy(uri) as copy:
        table = Table(copy)
        assert table.snapshot().files.num_rows
        commit_one_more(copy, table.version() + 1)
        with timer:
            files = table.snapshot().files
    return _facts(files.column("path"), files.column("size"))


def refresh_deltalake(timer: Timer, uri: str, small: str) -> dict[str, int]:
    import deltalake

    with own_copy(uri) as copy:
        table = deltalake.DeltaTable(copy)
        assert len(table.get_add_actions())
        commit_one_more(copy, table.version() + 1)
        with timer:
            table.update_incremental()
            files = table.get_add_actions()
    return _facts(files["path"], files["size_bytes"])


def _facts(paths: Any, sizes: Any) -> dict[str, int]:
    import numpy as np

    return {"files": len(paths), "bytes": int(np.asarray(sizes).sum())}


@contextlib.contextmanager
def own_copy(uri: str) -> Iterator[str]:
    """The same files under other names, so that a new commit is in nobody else's way."""
    with tempfile.TemporaryDirectory(dir=Path(uri).parent, prefix="refresh-") as folder:
        shutil.copytree(Path(uri) / "_delta_log", Path(folder) / "_delta_log", copy_function=os.link)
        yield folder


def commit_one_more(uri: str, version: int) -> None:
    path = Path(uri) / "_delta_log" / f"{version:020d}.json"
    path.write_text(_commit_info(version) + _add_line(_columns(10**7, 1), 0))


def build(folder: Path, commits: int, adds: int, checkpoint_every: int = 0, oldest_commit: int = 0) -> None:
    """A table of `commits` × `adds` files; the data files themselves are not there, since nobody reads them here."""
    import pyarrow as pa

    log = folder / "_delta_log"
    log.mkdir()
    live: list[pa.StructArray] = []
    for version in range(commits):
        columns = _columns(version * adds, adds)
        text = [_commit_info(version)]
        if version == 0:
            text += [json.dumps({"protocol": PROTOCOL}) + "\n", json.dumps({"metaData": METADATA}) + "\n"]
        if version >= oldest_commit:
            text += [_add_line(columns, row) for row in range(adds)]
            (log / f"{version:020d}.json").write_text("".join(text))
        if checkpoint_every:
            live.append(_add_array(columns))
            if version and version % checkpoint_every == 0:
                live = [pa.concat_arrays(live)]
                _write_checkpoint(log, version, live[0])


PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (
            ("id", "long"),
            ("at", "timestamp"),
            ("name", "string"),
            ("amount", "double"),
            ("day", "date"),
        )
    ],
}
METADATA = {
    "id": "6b1e4d57-3f0c-4a3b-9a54-9d5a1d0c7c10",
    "format": {"provider": "parquet", "options": {}},
    "schemaString": json.dumps(SCHEMA),
    "partitionColumns": ["day"],
    "configuration": {},
    "createdTime": 1_700_000_000_000,
}


def _commit_info(version: int) -> str:
    info = {
        "timestamp": 1_700_000_000_000 + version * 1000,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": '["day"]'},
        "engineInfo": "lakeseal-bench",
    }
    return json.dumps({"commitInfo": info}) + "\n"


def _columns(first: int, count: int) -> dict[str, list[Any]]:
    """The files `first … first + count - 1`, always the same for the same numbers."""
    numbers = range(first, first + count)
    days = [f"2024-{1 + n % DAYS // 31:02d}-{1 + n % 28:02d}" for n in numbers]
    return {
        "path": [
            f"day={day}/part-{n % 200:05d}-{uuid.UUID(int=n * SCATTER % 2**128)}.c000.snappy.parquet"
            for n, day in zip(numbers, days, strict=True)
        ],
        "day": days,
        "size": [1_000_000 + n * 7919 % 4_000_000 for n in numbers],
        "modificationTime": [1_700_000_000_000 + n for n in numbers],
        "stats": [
            f'{{"numRecords":{10_000 + n % 997},"minValues":{{"id":{n * 10_000},"at":"{day}T00:00:{n % 60:02d}.000Z",'
            f'"name":"customer-{n % 9973:06d}","amount":{n % 89}.25}},"maxValues":{{"id":{n * 10_000 + 9_999},'
            f'"at":"{day}T23:59:{n % 60:02d}.999Z","name":"customer-{n % 9973 + 20_000:06d}",'
            f'"amount":{n % 89 + 900}.75}},"nullCount":{{"id":0,"at":0,"name":{n % 13},"amount":0}}}}'
            for n, day in zip(numbers, days, strict=True)
        ],
    }


def _add_line(columns: dict[str, list[Any]], row: int) -> str:
    # Written out by hand, since most of building is here; `stats` is JSON inside of JSON.
    stats = columns["stats"][row].replace('"', '\\"')
    return (
        f'{{"add":{{"path":"{columns["path"][row]}","partitionValues":{{"day":"{columns["day"][row]}"}},'
        f'"size":{columns["size"][row]},"modificationTime":{columns["modificationTime"][row]},"dataChange":true,'
        f'"stats":"{stats}"}}}}\n'
    )


def _add_array(columns: dict[str, list[Any]]) -> pa.StructArray:
    import pyarrow as pa

    count = len(columns["path"])
    values = pa.MapArray.from_arrays(
        pa.array(range(count + 1), pa.int32()), pa.array(["day"] * count), pa.array(columns["day"])
    )
    parts = {
        "path": pa.array(columns["path"]),
        "partitionValues": values,
        "size": pa.array(columns["size"], pa.int64()),
        "modificationTime": pa.array(columns["modificationTime"], pa.int64()),
        "dataChange": pa.array([False] * count),
        "stats": pa.array(columns["stats"]),
    }
    return pa.StructArray.from_arrays(list(parts.values()), list(parts))


def _write_checkpoint(log: Path, version: int, adds: pa.StructArray) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    strings = pa.map_(pa.string(), pa.string())
    schema = pa.schema(
        {
            "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
            "metaData": pa.struct(
                {
                    "id": pa.string(),
                    "name": pa.string(),
                    "description": pa.string(),
                    "format": pa.struct({"provider": pa.string(), "options": strings}),
                    "schemaString": pa.string(),
                    "partitionColumns": pa.list_(pa.string()),
                    "configuration": strings,
                    "createdTime": pa.int64(),
                }
            ),
            "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
            "add": adds.type,
            "remove": pa.struct({"path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_()}),
        }
    )
    format_ = {**METADATA["format"], "options": []}  # type: ignore[dict-item]
    metadata = {**METADATA, "format": format_, "configuration": []}
    head = pa.Table.from_pylist([{"protocol": PROTOCOL}, {"metaData": metadata}], schema=schema)
    nulls = {name: pa.nulls(len(adds), schema.field(name).type) for name in schema.names}
    body = pa.table({**nulls, "add": adds}, schema=schema)
    path = log / f"{version:020d}.checkpoint.parquet"
    pq.write_table(pa.concat_tables([head, body]), path, compression="snappy", row_group_size=200_000)
    (log / "_last_checkpoint").write_text(json.dumps({"version": version, "size": len(adds) + 2}))
