"""Write the pages of docs/reference that are made from the code: `make docs`. A test keeps the two the same.

A property, an option, a variable or a number that is new in the code and has no words here stops the script, and
with it the test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from lakeseal.ingest.metrics import ENDED, GAUGES
from lakeseal.protocol import properties
from lakeseal.protocol.properties import Property
from lakeseal.service.finished_calls import BACKLOG, FinishedCalls
from lakeseal.spark import read_options, sink_options, tree_options

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"
MADE = "\nThis page is made from the code by `make docs`.\n"
DAY_MS = 86_400_000

PROPERTIES = {
    "delta.appendOnly": "Rows can be added, and neither changed nor deleted.",
    "delta.enableChangeDataFeed": "Changes are kept for `changes`, and for streams of them.",
    "delta.enableChangeDataCapture": "The older name of `delta.enableChangeDataFeed`.",
    "delta.enableDeletionVectors": "Deletes and updates mark rows as gone instead of writing their files anew.",
    "delta.isolationLevel": "How much of what others do meanwhile a command may ignore.",
    "delta.setTransactionRetentionDuration": "How long the numbers of `txn` are remembered; for ever if it is not set.",
    "delta.checkpointInterval": "A checkpoint is written every so many commits.",
    "delta.checkpointPolicy": "`v2` is for logs of very many files.",
    "delta.checkpoint.writeStatsAsJson": "Statistics in checkpoints as text.",
    "delta.checkpoint.writeStatsAsStruct": "Statistics in checkpoints as columns, which are read faster.",
    "delta.logRetentionDuration": "How long old versions can be read and restored, as far as their files are there.",
    "delta.deletedFileRetentionDuration": "How long `vacuum` leaves files that no newer version needs.",
    "delta.dropFeatureTruncateHistory.retentionDuration": "How long versions that need a dropped feature stay.",
    "delta.enableExpiredLogCleanup": "Old commits are cleaned up behind checkpoints.",
    "delta.columnMapping.mode": "`name` lets columns be renamed and dropped without writing files anew.",
    "delta.dataSkippingNumIndexedCols": "Statistics for so many first columns; -1 for all.",
    "delta.dataSkippingStatsColumns": "Statistics for these columns instead.",
    "delta.dataSkippingStringPrefixLength": "Characters of texts that statistics keep.",
    "delta.targetFileSize": "Bytes that files should have (`128mb`).",
    "delta.autoOptimize.autoCompact": "Small files are put together behind commits that add some.",
    "delta.autoOptimize.optimizeWrite": "Rows of a partition are brought together before they are written.",
    "delta.randomizeFilePrefixes": "Files go below random prefixes instead of partition directories.",
    "delta.randomPrefixLength": "How long these prefixes are.",
    "delta.parquet.compression.codec": "How data files are compressed; snappy where it is not set.",
    "delta.enableInCommitTimestamps": "Commits say themselves when they happened. On for tables that have an owner.",
    "delta.enableRowTracking": "Every row has an id for life.",
    "delta.rowTrackingSuspended": "No new ids for now.",
    "delta.enableTypeWidening": "Types of columns can become wider.",
    "delta.enableVariantShredding": "Writers may keep parts of variants in columns of their own. Lakeseal reads these, "
    "and writes variants whole.",
}
OPTIONS = {
    "path": "where the table or the repository is; what `load`, `save` and `start` are given",
    "table": "the table's name in the catalog, instead of a path",
    "catalog": "where names are looked up: a ledger's URL, a service's, or a name in `LAKESEAL_OWNERS`",
    "owner": "who decides on the table's commits, said the same way",
    "versionAsOf": "read this version",
    "timestampAsOf": "read what was current then",
    "columns": "read these only, as Spark does not tell which a query needs: `a,b`",
    "where": "read rows for which this condition is true; files that have none are not opened",
    "readChangeFeed": "changes instead of rows",
    "startingVersion": "of changes and of streams: the first version; `latest` for what comes",
    "startingTimestamp": "the same by a moment",
    "endingVersion": "of changes: the last version",
    "endingTimestamp": "the same by a moment",
    "maxFilesPerTrigger": "of streams: files in a batch, at most",
    "maxBytesPerTrigger": "of streams: bytes in a batch, about (`500m`)",
    "ignoreDeletes": "of streams: commits that only delete are passed over",
    "ignoreChanges": "of streams: of commits that change rows, all rows of the files that they wrote are given",
    "skipChangeCommits": "of streams: commits that delete or change are passed over",
    "failOnDataLoss": "of streams: `false` goes on where versions are gone",
    "schemaTrackingLocation": "of streams: a directory in which the query keeps the schema that it is at",
    "schemaLocation": "the same, by the other name that Delta has for it",
    "partitionBy": "columns that a new table, or a directory, is partitioned by",
    "clusterBy": "columns that a new table is clustered by",
    "replaceWhere": "with mode overwrite: only rows that match are replaced",
    "partitionOverwriteMode": "with mode overwrite: `dynamic` replaces partitions that get rows",
    "mergeSchema": "new columns are added to the table",
    "overwriteSchema": "with mode overwrite: columns are replaced, too",
    "txnAppId": "with `txnVersion`: a write that the table has seen does nothing",
    "txnVersion": "with `txnAppId`: its number",
    "userMetadata": "a text that the history keeps",
    "maxRecordsPerFile": "rows in a file, at most",
    "targetFileSize": "bytes in a file, about",
    "compression": "of the files",
    "ledger": "the repository's ledger, where it is not inside it; else that of `LAKESEAL_LEDGER`",
    "directory": "the path on the branch",
    "ref": "read this branch, tag or commit of a repository",
    "branch": "write to this branch of a repository",
    "fileFormat": "parquet, csv, json or orc",
    "header": "of CSV: the first line has names",
    "timeZone": "of moments in texts that name none; UTC where it is not given",
    "message": "of the commit on the branch",
    "jobId": "a write that is tried again under this id happens once",
}
VARIABLES = {
    "LAKESEAL_CATALOG": "the catalog in which names are looked up",
    "LAKESEAL_CATALOG_ROOT": "where tables go that are created without a location",
    "LAKESEAL_OWNERS": "JSON: names of owners and how each is reached",
    "LAKESEAL_OWNER": "the owner's name, where a command of the terminal is about none in particular",
    "LAKESEAL_LEDGER": "the ledger, for commands that take `--ledger`",
    "LAKESEAL_TOKEN": "sent to the service",
    "LAKESEAL_UNITY_TOKEN": "sent to a catalog of the kind `unity`",
    "LAKESEAL_ALLOW_HTTP": "`1`: a token may go over plain http to other machines",
    "LAKESEAL_MAX_DECODED_BYTES": "what a small file, or a line of text, may unfold to",
    "LAKESEAL_INSIST_ON_CHECKSUMS": "`1`: a version checksum that does not fit stops the reader",
    "LAKESEAL_PLACES": "beyond a table, where files may be that its log names",
    "LAKESEAL_PROGRESS": "`0`: no bars",
    "LAKESEAL_DEBUG": "whole tracebacks in notebooks and at the terminal",
    "LAKESEAL_TRACES": "`0`: no spans, though OpenTelemetry is installed",
    "LAKESEAL_LAKEFS_ENDPOINT": "the address of a lakeFS server",
    "LAKESEAL_LAKEFS_ACCESS_KEY_ID": "its key",
    "LAKESEAL_LAKEFS_SECRET_ACCESS_KEY": "and its secret",
    "LAKESEAL_LAKEFS_LOCAL_PATH": "the directory of a server's block store of the kind `local`",
}


def properties_page() -> str:
    rows: list[str] = []
    kept: list[str] = []
    refused: list[str] = []
    for one in properties.KNOWN:
        if one.instead is not None:
            refused.append(f"| `{one.key}` | {one.instead} |")
        elif not one.settable:
            kept.append(f"`{one.key}`")
        else:
            rows.append(f"| `{one.key}` | {_default(one)} | {_words(PROPERTIES, one.key)} |")
    _nothing_else(PROPERTIES, [one.key for one in properties.KNOWN])
    return (
        "# Properties\n\nOf tables: `Table.set_properties`, `lakeseal properties`, `ALTER TABLE … SET TBLPROPERTIES`. "
        "Names match in any\ncase, values are checked when they are set, and a name of your own must not start with "
        "`delta.`.\n\n## Carried out\n\n| property | unless set | |\n| --- | --- | --- |\n"
        + "\n".join(rows)
        + "\n\nFeatures are asked for as `delta.feature.NAME=supported`, versions of the protocol as "
        "`delta.minReaderVersion` and\n`delta.minWriterVersion`, constraints are `delta.constraints.NAME`.\n\n"
        "## Refused, with what to do instead\n\n| property | |\n| --- | --- |\n"
        + "\n".join(refused)
        + "\n\nA table that has one of these from another client keeps it.\n\n"
        "## Kept by Lakeseal, and not to be set\n\n" + ",\n".join(kept) + ".\n" + MADE
    )


def _default(one: Property[Any]) -> str:
    value = one.default
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if one.key.endswith("Duration"):
        return f"{value // DAY_MS} days"
    return str(value)


def options_page() -> str:
    parts = ['# Options of `format("lakeseal")`\n\nNames match in any case; one that is not known is refused.\n']
    groups = {
        "Reading a table": read_options.NAMES,
        "Writing a table": sink_options.NAMES,
        "Reading a repository": tree_options.READ,
        "Writing to a repository": tree_options.WRITE,
    }
    for heading, names in groups.items():
        rows = [f"| `{name}` | {_words(OPTIONS, name)} |" for name in names]
        parts.append(f"\n## {heading}\n\n| option | |\n| --- | --- |\n" + "\n".join(rows) + "\n")
    _nothing_else(OPTIONS, [name for names in groups.values() for name in names])
    parts.append(
        "\n`delta.NAME` is a [property](properties.md) of a table that a write creates. Options of the store are "
        "`storage.NAME`, and\nthose that begin with `aws_`, `google_` or `azure_` by their own names.\n\n"
        "## Of a session\n\n`spark.lakeseal.localMerge=false`: merges of small DataFrames are left to Spark.\n"
    )
    return "".join(parts) + MADE


def metrics_page() -> str:
    served = [
        (one.name + ("_total" if one.type == "counter" else ""), one.type, one.documentation)
        for one in FinishedCalls(["any"]).families()
    ]
    served += [(name, "gauge", words) for name, words in BACKLOG.items()]
    ran = [(f"lakeseal_ingest_{name}", "gauge", words) for name, words, _ in GAUGES]
    ran.append((*ENDED[:1], "gauge", ENDED[1]))
    head = "| name | type | |\n| --- | --- | --- |\n"
    return (
        "# Metrics\n\nIn Prometheus' format. A [dashboard for Grafana](../operations.md#grafana) shows them.\n\n"
        "## Of a service, at `/metrics`\n\n"
        + head
        + "".join(f"| `{name}` | {kind} | {words} |\n" for name, kind, words in served)
        + "\n`call` and `status` are labels of requests, `kind` of refusals: that of the [error](../errors.md).\n"
        "\n## Of a pipeline, in the file that `metrics: {file: …}` names\n\n"
        + head
        + "".join(f"| `{name}` | {kind} | {words} |\n" for name, kind, words in ran)
        + "\nEach has the labels `pipeline` and `dataset`, the last one `pipeline` and `state`.\n"
        + MADE
    )


def environment_page() -> str:
    source = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "src").rglob("*.py")))
    found = sorted(set(re.findall(r"(?<![A-Z_])LAKESEAL_[A-Z_]+[A-Z]", source)))
    rows = [f"| `{name}` | {_words(VARIABLES, name)} |\n" for name in found]
    _nothing_else(VARIABLES, found)
    return (
        "# Variables of the environment\n\nWhat is said in a call, or as an option of a command, goes before them. "
        "Stores read those of their vendors\n(`AWS_REGION`, `GOOGLE_APPLICATION_CREDENTIALS`, …) beside them.\n\n"
        "| variable | |\n| --- | --- |\n" + "".join(rows) + MADE
    )


def _words(known: Mapping[str, str], name: str) -> str:
    if name not in known:
        raise SystemExit(f"scripts/reference_docs.py has no words for {name}")
    return known[name]


def _nothing_else(known: Mapping[str, str], names: Iterable[str]) -> None:
    if unknown := set(known) - set(names):
        raise SystemExit(f"scripts/reference_docs.py has words for {sorted(unknown)}, which the code does not know")


PAGES: dict[str, Callable[[], str]] = {
    "properties": properties_page,
    "options": options_page,
    "metrics": metrics_page,
    "environment": environment_page,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / f"{name}.md").write_text(page(), encoding="utf-8")
