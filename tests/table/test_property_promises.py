"""A property that can be set does what it says; one that would do nothing is refused by its name, with what to do."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeseal
from lakeseal import LakesealError, Table, errors
from lakeseal.protocol.features import FEATURES as KNOWN_FEATURES
from lakeseal.protocol.features import supports
from table.delta_properties import FEATURES, PROPERTIES

TEXT = "a long text, longer than the beginning of it that statistics keep"
ROWS = pa.table({"n": pa.array([1, 2, 3], pa.int64()), "s": [TEXT, TEXT + "z", TEXT + "b"]})


class Made:
    """A table with the properties, after two writes."""

    def __init__(self, folder: Path, properties: dict[str, str]) -> None:
        self.folder = folder
        self.table = lakeseal.create(folder, ROWS.schema, properties=properties)
        self.table.write(ROWS, txn=("app", 1))
        self.table.write(ROWS)

    def actions(self, kind: str) -> list[dict[str, Any]]:
        found = []
        for file in sorted((self.folder / "_delta_log").glob("*.json")):
            found += [json.loads(line) for line in file.read_text().splitlines()]
        return [action[kind] for action in found if kind in action]

    def stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = json.loads(self.actions("add")[0]["stats"])
        return stats

    def checkpoint(self) -> pa.Table:
        self.table.checkpoint()
        return pq.read_table(sorted((self.folder / "_delta_log").glob("*.checkpoint.parquet"))[-1])

    def has(self, feature: str) -> bool:
        return supports(self.table.snapshot().protocol, feature)


def _refuses_removal(made: Made) -> bool:
    with pytest.raises(errors.AppendOnlyTable):
        made.table.delete("n = 1")
    return True


def _add_fields(made: Made) -> list[str]:
    return [field.name for field in made.checkpoint().schema.field("add").type]


def _path(made: Made) -> str:
    path: str = made.actions("add")[0]["path"]
    return path


def _deletes_at_once(made: Made) -> bool:
    made.table.delete()
    time.sleep(0.01)  # a file of this very millisecond is not older than it
    return bool(made.table.vacuum(dry_run=True).deleted)


def _changed(made: Made) -> bool:
    made.table.delete("n = 1")
    return made.table.changes(1).num_rows == 8


def _hides_rows(made: Made) -> bool:
    made.table.delete("n = 1")
    return any("deletionVector" in add for add in made.actions("add"))


def _expired(made: Made, **properties: str) -> int:
    """Files of the log that clean-up deletes, once the table is five days old and has these properties too."""
    if properties:
        made.table.set_properties({f"delta.{name}": value for name, value in properties.items()})
    made.table.checkpoint()
    days_ago = time.time() - 5 * 86400
    for file in (made.folder / "_delta_log").iterdir():
        os.utime(file, (days_ago, days_ago))
    return len(Table(made.folder).cleanup(dry_run=True).deleted)


def _conflicts(made: Made, meanwhile: Callable[[Table], Any]) -> bool:
    """Whether an overwrite meets what another client commits while it writes."""

    def rows() -> Iterator[pa.RecordBatch]:
        meanwhile(Table(made.folder))
        yield from ROWS.to_batches()

    try:
        made.table.write(pa.RecordBatchReader.from_batches(ROWS.schema, rows()), mode="overwrite")
    except errors.ConcurrentAppendException:
        return True
    return False


def _says_what_conflicts(made: Made) -> bool:
    append = lambda table: table.write(ROWS)  # noqa: E731
    look_and_add = lambda table: table.write(  # noqa: E731
        pa.table({"n": [9], "s": ["new"]}), mode="overwrite", replace_where="n = 9"
    )
    found = [_conflicts(made, append)]
    for level in ("WriteSerializable", "SnapshotIsolation"):
        made.table.set_properties({"delta.isolationLevel": level})
        found += [_conflicts(made, append), _conflicts(made, look_and_add)]
    return found == [True, False, True, False, False]


def _comes_to_be(look: Callable[[], bool]) -> bool:
    """What is done behind a commit is there a moment later."""
    for _ in range(600):
        if look():
            return True
        time.sleep(0.05)
    return False


Check = Callable[[Made], Any]


def _widens(made: Made) -> bool:
    made.table.change_type("n", "decimal(20,0)")
    return made.table.to_arrow()["n"].type == pa.decimal128(20, 0)


def _compacts(made: Made) -> bool:
    for _ in range(48):
        made.table.write(ROWS)
    return made.table.files().num_rows == 1


def _writes_few_files(made: Made) -> bool:
    many = pa.repeat(pa.scalar(0, pa.int64()), 10_000_000)
    made.table.write(pa.table({"n": many}))
    return made.table.files().num_rows == 3


def _drops_at_once(made: Made) -> bool:
    made.table.drop_feature("deletionVectors", truncate_history=True)
    return not made.has("deletionVectors")


CARRIED_OUT: dict[str, tuple[dict[str, str], Check]] = {
    # A writer may shred, and need not (tests/table/test_variant.py writes to such a table).
    "enablevariantshredding": ({"delta.enableVariantShredding": "true"}, lambda made: made.has("variantShredding")),
    "enabletypewidening": ({"delta.enableTypeWidening": "true"}, _widens),
    "autooptimize.autocompact": ({"delta.autoOptimize.autoCompact": "true"}, _compacts),
    "autooptimize.optimizewrite": ({"delta.autoOptimize.optimizeWrite": "true"}, _writes_few_files),
    "appendonly": ({"delta.appendOnly": "true"}, _refuses_removal),
    "checkpoint.writestatsasjson": (
        {"delta.checkpoint.writeStatsAsJson": "false"},
        lambda made: (
            "stats" not in _add_fields(made)
            or made.checkpoint()["add"].combine_chunks().field("stats").null_count == len(made.checkpoint())
        ),
    ),
    "checkpoint.writestatsasstruct": (
        {"delta.checkpoint.writeStatsAsStruct": "false"},
        lambda made: "stats_parsed" not in _add_fields(made),
    ),
    "checkpointinterval": (
        {"delta.checkpointInterval": "1"},
        lambda made: _comes_to_be(lambda: any((made.folder / "_delta_log").glob("*.checkpoint.parquet"))),
    ),
    "checkpointpolicy": ({"delta.checkpointPolicy": "v2"}, lambda made: made.has("v2Checkpoint")),
    "columnmapping.mode": (
        {"delta.columnMapping.mode": "name"},
        lambda made: all(
            name.startswith("col-") for name in pq.read_schema(next(made.folder.rglob("*.parquet"))).names
        ),
    ),
    "dataskippingnumindexedcols": (
        {"delta.dataSkippingNumIndexedCols": "1"},
        lambda made: list(made.stats()["minValues"]) == ["n"],
    ),
    "dataskippingstatscolumns": (
        {"delta.dataSkippingStatsColumns": "s"},
        lambda made: list(made.stats()["minValues"]) == ["s"],
    ),
    "dataskippingstringprefixlength": (
        {"delta.dataSkippingStringPrefixLength": "5"},
        lambda made: made.stats()["minValues"]["s"] == TEXT[:5] and len(made.stats()["maxValues"]["s"]) == 6,
    ),
    "deletedfileretentionduration": ({"delta.deletedFileRetentionDuration": "interval 0 hours"}, _deletes_at_once),
    "dropfeaturetruncatehistory.retentionduration": (
        {
            "delta.dropFeatureTruncateHistory.retentionDuration": "interval 0 hours",
            "delta.enableDeletionVectors": "true",
        },
        _drops_at_once,
    ),
    "enablechangedatacapture": ({"delta.enableChangeDataCapture": "true"}, _changed),
    "enablechangedatafeed": ({"delta.enableChangeDataFeed": "true"}, _changed),
    "enabledeletionvectors": ({"delta.enableDeletionVectors": "true"}, _hides_rows),
    "enableexpiredlogcleanup": (
        {"delta.enableExpiredLogCleanup": "false", "delta.logRetentionDuration": "interval 2 days"},
        lambda made: _expired(made) == 0 and _expired(made, enableExpiredLogCleanup="true") > 0,
    ),
    "enableincommittimestamps": (
        {"delta.enableInCommitTimestamps": "true"},
        lambda made: all("inCommitTimestamp" in info for info in made.actions("commitInfo")),
    ),
    "enablerowtracking": (
        {"delta.enableRowTracking": "true"},
        lambda made: [add["baseRowId"] for add in made.actions("add")] == [0, 3],
    ),
    "isolationlevel": (
        {"delta.isolationLevel": "Serializable"},
        _says_what_conflicts,
    ),
    "logretentionduration": (
        {"delta.logRetentionDuration": "interval 2 days"},
        lambda made: _expired(made) > 0 and _expired(made, logRetentionDuration="interval 9 days") == 0,
    ),
    "minreaderversion": (
        {"delta.minReaderVersion": "2", "delta.minWriterVersion": "5"},
        lambda made: made.actions("protocol") == [{"minReaderVersion": 2, "minWriterVersion": 5}],
    ),
    "minwriterversion": (
        {"delta.minWriterVersion": "7"},
        lambda made: (
            made.actions("protocol")
            == [{"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly", "invariants"]}]
        ),
    ),
    "randomizefileprefixes": ({"delta.randomizeFilePrefixes": "true"}, lambda made: _path(made).find("/") == 2),
    "randomprefixlength": (
        {"delta.randomizeFilePrefixes": "true", "delta.randomPrefixLength": "7"},
        lambda made: _path(made).find("/") == 7,
    ),
    "rowtrackingsuspended": (
        {"delta.feature.rowTracking": "supported", "delta.rowTrackingSuspended": "true"},
        lambda made: not any("baseRowId" in add for add in made.actions("add")),
    ),
    "settransactionretentionduration": (
        {"delta.setTransactionRetentionDuration": "interval 0 seconds"},
        lambda made: made.checkpoint()["txn"].null_count == len(made.checkpoint()),
    ),
}

KEPT_BY_LAKESEAL = (
    "columnmapping.maxcolumnid",
    "incommittimestampenablementtimestamp",
    "incommittimestampenablementversion",
    "requirecheckpointprotectionbeforeversion",
)
ASKING = {
    "checkpointretentionduration": "interval 9 days",
    "dropfeaturetruncatehistory.retentionduration": "interval 9 days",
    "sampleretentionduration": "interval 9 days",
    "enablefullretentionrollback": "false",
    "universalformat.enabledformats": "iceberg",
    "parquet.format.version": "2.12.0",
    "redirectreaderwriter-preview": "{}",
    "redirectwriteronly-preview": "{}",
    "coordinatedcommits.commitcoordinator-preview": "somebody",
    "coordinatedcommits.commitcoordinatorconf-preview": "{}",
    "coordinatedcommits.tableconf-preview": "{}",
}


REFUSED = [name for name in PROPERTIES if name not in CARRIED_OUT]


def asked_for(name: str) -> dict[str, str]:
    return {f"delta.{name}": "1" if name in KEPT_BY_LAKESEAL else ASKING.get(name, "true")}


@pytest.mark.parametrize("name", PROPERTIES)
def test_every_property_that_delta_spark_knows_is_carried_out_or_refused_by_name(name: str, tmp_path: Path) -> None:
    if name in CARRIED_OUT:
        properties, does = CARRIED_OUT[name]
        assert name in {key.lower().removeprefix("delta.") for key in properties}
        assert does(Made(tmp_path, properties))
        return
    table = lakeseal.create(tmp_path, ROWS.schema)
    with pytest.raises(LakesealError) as caught:
        table.set_properties(asked_for(name))
    assert name in str(caught.value).lower()
    assert caught.value.hint or name in KEPT_BY_LAKESEAL
    assert "Did you mean" not in caught.value.hint
    assert table.version() == 0


def _said(properties: dict[str, str]) -> str:
    return "TBLPROPERTIES (" + ", ".join(f"'{key}' = '{value}'" for key, value in properties.items()) + ")"


# What would make or change the table at a place by these properties, and whether that place has one before.
WAYS: dict[str, tuple[bool, Callable[[Path, dict[str, str]], Any]]] = {
    "create": (False, lambda at, given: lakeseal.create(at, ROWS.schema, properties=given)),
    "create anew": (True, lambda at, given: lakeseal.create(at, ROWS.schema, properties=given, replace=True)),
    "write": (False, lambda at, given: Table(at).write(ROWS, properties=given)),
    "convert": (False, lambda at, given: lakeseal.convert(at, properties=given)),
    "clone": (False, lambda at, given: Table(at.parent / "source").clone(at, properties=given)),
    "deep clone": (False, lambda at, given: Table(at.parent / "source").clone(at, deep=True, properties=given)),
    "CREATE TABLE": (False, lambda at, given: lakeseal.sql(f"CREATE TABLE delta.`{at}` (n BIGINT) {_said(given)}")),
    "CREATE TABLE AS": (False, lambda at, given: lakeseal.sql(f"CREATE TABLE delta.`{at}` {_said(given)} AS SELECT 1")),
    "ALTER TABLE": (True, lambda at, given: lakeseal.sql(f"ALTER TABLE delta.`{at}` SET {_said(given)}")),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_refused_is_refused_wherever_properties_are_given(way: str, tmp_path: Path) -> None:
    is_there, give = WAYS[way]
    at = tmp_path / "t"
    at.mkdir()
    lakeseal.create(tmp_path / "source", ROWS.schema)
    if is_there:
        lakeseal.create(at, ROWS.schema)
    if way == "convert":
        pq.write_table(ROWS, at / "a.parquet")
    unknown = {"delta.nobodyKnowsThis": "true"}, {"delta.feature.nobodyKnowsThis": "supported"}
    for given in (*map(asked_for, REFUSED), *unknown):
        (name,) = given
        with pytest.raises((errors.InvalidArgument, errors.Unsupported)) as caught:
            give(at, given)
        assert name.removeprefix("delta.").removeprefix("feature.").lower() in str(caught.value).lower(), given
        assert lakeseal.is_delta_table(at) == is_there, given
    if is_there:
        assert Table(at).version() == 0
    give(at, {"delta.appendOnly": "true"})
    assert Table(at).snapshot().properties.append_only


@pytest.mark.parametrize("name", FEATURES)
def test_every_feature_that_delta_spark_knows_is_set_or_refused_by_name(name: str, tmp_path: Path) -> None:
    table = lakeseal.create(tmp_path, ROWS.schema)
    known = {feature.lower(): feature for feature in KNOWN_FEATURES}
    try:
        table.set_properties({f"delta.feature.{name}": "supported"})
    except LakesealError as error:
        assert name in str(error).lower()
        assert table.version() == 0
        return
    assert supports(Table(tmp_path).snapshot().protocol, known[name])
    assert not any(key.startswith("delta.feature") for key in Table(tmp_path).snapshot().metadata.configuration)
    table.write(ROWS)
    assert Table(tmp_path).to_arrow().num_rows == 3


@pytest.mark.parametrize("by", ["create", "write", "convert"])
def test_a_feature_can_be_asked_for_wherever_properties_are_given(by: str, tmp_path: Path) -> None:
    asked = {"delta.feature.domainMetadata": "supported", "delta.minReaderVersion": "2", "delta.minWriterVersion": "5"}
    match by:
        case "create":
            lakeseal.create(tmp_path, ROWS.schema, properties=asked)
        case "write":
            Table(tmp_path).write(ROWS, properties=asked)
        case _:
            pq.write_table(ROWS, tmp_path / "a.parquet")
            lakeseal.convert(tmp_path, properties=asked)
    found = Table(tmp_path).snapshot()
    assert supports(found.protocol, "domainMetadata")
    assert found.protocol.min_reader_version == 2
    assert not set(asked) & set(found.metadata.configuration)


def test_an_unknown_feature_is_refused_and_nothing_is_committed(tmp_path: Path) -> None:
    table = lakeseal.create(tmp_path, ROWS.schema)
    with pytest.raises(
        errors.InvalidArgument, match=r"no table feature deletionVector\b.*Did you mean deletionVectors"
    ):
        table.set_properties({"delta.feature.deletionVector": "supported"})
    assert table.version() == 0


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"delta.minReaderVersion": "4"}, "up to reader version 3"),
        ({"delta.minWriterVersion": "8"}, "writer version 7"),
        ({"delta.minWriterVersion": "1"}, "cannot be lowered"),
        ({"delta.minReaderVersion": "2"}, "goes with writer version 5"),
        ({"delta.minReaderVersion": "3", "delta.minWriterVersion": "6"}, "goes with writer version 7"),
        ({"delta.minReaderVersion": "two"}, "must be a version"),
        ({"delta.minReaderVersion": None}, "must be a version"),
    ],
)
def test_a_protocol_that_cannot_be_is_refused(asked: dict[str, Any], said: str, tmp_path: Path) -> None:
    table = lakeseal.create(tmp_path, ROWS.schema)
    with pytest.raises(LakesealError, match=said):
        table.set_properties(asked)
    assert table.version() == 0


def test_a_property_of_another_client_is_kept_and_can_be_turned_off(tmp_path: Path) -> None:
    table = lakeseal.create(tmp_path, ROWS.schema)
    commit = tmp_path / "_delta_log" / f"{0:020d}.json"
    commit.write_text(
        commit.read_text().replace('"configuration":{}', '"configuration":{"delta.autoOptimize.optimizeWrite":"true"}')
    )
    for checksum in (tmp_path / "_delta_log").glob("*.crc"):
        checksum.unlink()
    table = Table(tmp_path)
    assert table.snapshot().metadata.configuration == {"delta.autoOptimize.optimizeWrite": "true"}
    table.write(ROWS)
    table.set_properties({"delta.appendOnly": "true"})
    assert table.snapshot().metadata.configuration["delta.autoOptimize.optimizeWrite"] == "true"
    table.set_properties({"delta.autoOptimize.optimizeWrite": "false"})
    table.set_properties({"delta.autoOptimize.optimizeWrite": None})
    assert table.snapshot().metadata.configuration == {"delta.appendOnly": "true"}


def test_files_are_not_converted_to_columns_of_other_names(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "a.parquet")
    with pytest.raises(errors.InvalidArgument, match="mapping"):
        lakeseal.convert(tmp_path, properties={"delta.columnMapping.mode": "name"})
    converted = lakeseal.convert(tmp_path, properties={"delta.dataSkippingStatsColumns": "n"})
    assert list(json.loads(converted.files()["stats"][0].as_py())["minValues"]) == ["n"]
    converted.set_properties({"delta.columnMapping.mode": "name"})
    assert converted.to_arrow().to_pylist() == ROWS.to_pylist()
