"""What a table is, in the words of DESCRIBE DETAIL."""

from __future__ import annotations

import datetime
from typing import Any

from lakeseal.commit.clustering import clustered_by
from lakeseal.log.snapshot import Snapshot


def detail(snapshot: Snapshot, *, last_modified: datetime.datetime | None) -> dict[str, Any]:
    metadata, protocol = snapshot.metadata, snapshot.protocol
    return {
        "format": metadata.format.provider if metadata.format.provider != "parquet" else "delta",
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "location": snapshot.table,
        "createdAt": _moment(metadata.created_time),
        "lastModified": last_modified,
        "partitionColumns": list(metadata.partition_columns),
        "clusteringColumns": list(clustered_by(snapshot)),
        "numFiles": snapshot.files.num_rows,
        "sizeInBytes": snapshot.size_in_bytes,
        "properties": {key: text for key, text in metadata.configuration.items() if text is not None},
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "tableFeatures": sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())}),
    }


def _moment(ms: int | None) -> datetime.datetime | None:
    if ms is None:
        return None
    return datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(milliseconds=ms)
