from __future__ import annotations

import io
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeseal.errors import (
    BrokenCheckpoint,
    ChecksumMismatch,
    LogGap,
    NotBackfilled,
    UnsupportedFeature,
    VersionNotFound,
)
from lakeseal.log import last_checkpoint
from lakeseal.log.checkpoint_writer import write_checkpoint
from lakeseal.log.checksum import ChecksumWarning
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.last_checkpoint import LastCheckpoint
from lakeseal.log.ratified_commit import RatifiedCommit, Told
from lakeseal.protocol import codec
from lakeseal.protocol.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CheckpointMetadata,
    CommitInfo,
    DeletionVectorDescriptor,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    SidecarFile,
    UnknownAction,
)
from lakeseal.protocol.paths import (
    LAST_CHECKPOINT,
    LOG_DIR,
    SIDECARS_DIR,
    checkpoint_path,
    checksum_path,
    commit_path,
    staged_commit_path,
)
from lakeseal.protocol.schema import StructType
from lakeseal.storage import Store, open_store
from lakeseal.testing.faults import FaultyStore
from lakeseal.testing.s3 import S3Server
from models.histories import schema, write_history
from models.reference import described, replayed

DAY = 86_400_000
NOW = 1_800_000_000_000

PLAIN = Protocol(min_reader_version=1, min_writer_version=2)
V2 = Protocol(
    min_reader_version=3, min_writer_version=7, reader_features=("v2Checkpoint",), writer_features=("v2Checkpoint",)
)


@pytest.fixture
def store() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}/table")


def metadata(
    configuration: Mapping[str, str | None] | None = None,
    *,
    of: StructType | None = None,
    partition_columns: tuple[str, ...] = (),
    **more: Any,
) -> Metadata:
    return Metadata(
        id="m",
        schema_string=(of or schema()).to_json(),
        configuration=dict(configuration or {}),
        partition_columns=partition_columns,
        **more,
    )


def columns(**types: Any) -> StructType:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
    return StructType.from_json({"type": "struct", "fields": fields})


def add(path: str, **more: Any) -> AddFile:
    known = {"partition_values": {}, "size": 1, "modification_time": 2, "data_change": True}
    return AddFile(path=path, **{**known, **more})


def remove(path: str, at: int | None = NOW, **more: Any) -> RemoveFile:
    return RemoveFile(path=path, data_change=True, deletion_timestamp=at, **more)


def write(store: Store, *actions: Action, version: int = 0, **options: Any) -> Any:
    write_history(store, [list(actions)], start=version)
    return write_checkpoint(DeltaLog(store), version, now_ms=NOW, **options)


def content(store: Store, key: str = checkpoint_path(0)) -> pa.Table:
    return pq.read_table(io.BytesIO(store.get(key)))


def rows(store: Store, column: str, key: str = checkpoint_path(0)) -> list[Any]:
    return content(store, key)[column].drop_null().to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]


def only_checkpoint(store: Store, version: int = 0) -> DeltaLog:
    """The log as it reads with that checkpoint alone."""
    store.delete(commit_path(v) for v in range(version + 1))
    return DeltaLog(store)


class TestClassic:
    def test_columns_are_the_ones_that_delta_has(self, store: Store) -> None:
        write(store, PLAIN, metadata(partition_columns=("day",)), add("f", partition_values={"day": "2024-01-01"}))
        kind = content(store).schema
        assert kind.names == ["txn", "metaData", "protocol", "domainMetadata", "add", "remove"]
        assert [f.name for f in kind.field("add").type] == [
            "path",
            "partitionValues",
            "size",
            "modificationTime",
            "dataChange",
            "tags",
            "deletionVector",
            "baseRowId",
            "defaultRowCommitVersion",
            "clusteringProvider",
            "stats",
            "partitionValues_parsed",
            "stats_parsed",
        ]
        assert [f.name for f in kind.field("protocol").type][:2] == ["minReaderVersion", "minWriterVersion"]
        assert kind.field("protocol").type[0].type == pa.int32()

    def test_it_holds_what_stands_and_nothing_of_single_commits(self, store: Store) -> None:
        write(
            store,
            CommitInfo(operation="WRITE"),
            PLAIN,
            metadata(name="t", description="d"),
            add("f"),
            add("g"),
            remove("x"),
            SetTransaction(app_id="b", version=1),
            SetTransaction(app_id="a", version=2, last_updated=3),
            DomainMetadata(domain="gone", configuration="", removed=True),
            DomainMetadata(domain="d", configuration="c", removed=False),
            AddCDCFile(path="c", partition_values={}, size=1, data_change=False),
            UnknownAction(name="fromTheFuture", value={"a": 1}),
        )
        assert [f["path"] for f in rows(store, "add")] == ["f", "g"]
        assert [f["path"] for f in rows(store, "remove")] == ["x"]
        assert [t["appId"] for t in rows(store, "txn")] == ["a", "b"]
        assert rows(store, "domainMetadata") == [{"domain": "d", "configuration": "c", "removed": False}]
        assert content(store).num_rows == 2 + 1 + 2 + 1 + 2

    def test_files_in_it_change_no_data(self, store: Store) -> None:
        write(store, PLAIN, metadata(), add("f"), remove("x"))
        assert [f["dataChange"] for f in rows(store, "add") + rows(store, "remove")] == [False, False]

    def test_files_keep_the_order_of_the_log_whatever_way_they_came(self, store: Store) -> None:
        commits: list[list[Action]] = [[PLAIN, metadata(), add("z"), add("a")], [add("m"), remove("z")], [add("z")]]
        write_history(store, commits)
        one = store.get(write_checkpoint(DeltaLog(store), 2, now_ms=NOW).files[0])
        write_checkpoint(DeltaLog(store), 1, now_ms=NOW)
        other = store.get(write_checkpoint(DeltaLog(store), 2, now_ms=NOW).files[0])
        assert [f["path"] for f in rows(store, "add", checkpoint_path(2))] == ["a", "m", "z"]
        assert one == other

    def test_expired_tombstones_are_left_out(self, store: Store) -> None:
        since = NOW - 7 * DAY
        write(store, PLAIN, metadata(), remove("old", since - 1), remove("new", since), remove("ever", None))
        assert [f["path"] for f in rows(store, "remove")] == ["new"]

    def test_how_long_tombstones_last_is_up_to_the_table(self, store: Store) -> None:
        kept = metadata({"delta.deletedFileRetentionDuration": "interval 30 days"})
        write(store, PLAIN, kept, remove("f", NOW - 29 * DAY), remove("g", NOW - 31 * DAY))
        assert [f["path"] for f in rows(store, "remove")] == ["f"]

    def test_transactions_last_for_ever_unless_the_table_says_otherwise(self, store: Store) -> None:
        old = SetTransaction(app_id="old", version=1, last_updated=1)
        write(store, PLAIN, metadata(), old)
        assert [t["appId"] for t in rows(store, "txn")] == ["old"]

    def test_expired_transactions_are_left_out_and_those_without_a_time_are_not(self, store: Store) -> None:
        write(
            store,
            PLAIN,
            metadata({"delta.setTransactionRetentionDuration": "interval 1 day"}),
            SetTransaction(app_id="old", version=1, last_updated=NOW - DAY - 1),
            SetTransaction(app_id="new", version=1, last_updated=NOW - DAY),
            SetTransaction(app_id="timeless", version=1),
        )
        assert [t["appId"] for t in rows(store, "txn")] == ["new", "timeless"]

    def test_a_table_without_files_has_a_checkpoint_too(self, store: Store) -> None:
        info = write(store, PLAIN, metadata())
        assert (info.num_adds, info.num_removes, info.size) == (0, 0, 2)
        assert only_checkpoint(store).snapshot().files.num_rows == 0

    def test_what_is_said_of_the_checkpoint_fits_it(self, store: Store) -> None:
        info = write(store, PLAIN, metadata(), add("f"), add("g"), remove("x"))
        assert info.files == (checkpoint_path(0),)
        assert info.size_in_bytes == len(store.get(checkpoint_path(0)))
        assert (info.num_adds, info.num_removes, info.size) == (2, 1, 5)
        assert info.pointer_moved

    def test_small_actions_and_files_are_in_different_row_groups(self, store: Store) -> None:
        write(store, PLAIN, metadata(), add("f"), remove("x"))
        footer = pq.ParquetFile(io.BytesIO(store.get(checkpoint_path(0)))).metadata
        assert [footer.row_group(n).num_rows for n in range(footer.num_row_groups)] == [2, 1, 1]


class TestUnknownFields:
    def test_they_come_back_from_every_action(self, store: Store) -> None:
        vector = DeletionVectorDescriptor(
            storage_type="i", path_or_inline_dv="x", size_in_bytes=1, cardinality=1, unknown={"maxRowIndex": 9}
        )
        actions: list[Action] = [
            Protocol(min_reader_version=1, min_writer_version=2, unknown={"p": 1}),
            metadata(format=Format(unknown={"deep": [1, {"a": None}]}), unknown={"m": "text"}),
            SetTransaction(app_id="a", version=1, unknown={"t": True}),
            DomainMetadata(domain="d", configuration="", removed=False, unknown={"d": {}}),
            add("f", unknown={"n": {"x": [1, 2]}}),
            add("g", deletion_vector=vector),
            add("h"),
            remove("x", unknown={"r": 1.5}),
        ]
        write(store, *actions)
        assert described(only_checkpoint(store).state(0, with_removes=True)) == replayed([actions])

    def test_the_column_for_them_is_there_only_if_it_is_needed(self, store: Store) -> None:
        write(store, PLAIN, metadata(), add("f"))
        assert not any("unknown" in field.name for column in content(store).schema for field in column.type)


class TestStatistics:
    STATS = (
        '{"numRecords":3,"minValues":{"id":1,"at":"2024-01-01T00:00:00.123Z"},'
        '"maxValues":{"id":9},"nullCount":{"id":0}}'
    )

    def test_as_text_and_as_a_struct_by_default(self, store: Store) -> None:
        write(store, PLAIN, metadata(), add("f", stats=self.STATS))
        (row,) = rows(store, "add")
        assert row["stats"] == self.STATS
        parsed = row["stats_parsed"]
        assert (parsed["numRecords"], parsed["minValues"]["id"], parsed["maxValues"]["id"]) == (3, 1, 9)
        assert parsed["minValues"]["name"] is None
        assert parsed["minValues"]["at"].isoformat() == "2024-01-01T00:00:00.123000+00:00"

    def test_a_maximum_in_the_struct_is_the_one_that_was_stated(self, store: Store) -> None:
        write(store, PLAIN, metadata(), add("f", stats='{"maxValues":{"at":"2024-01-01T00:00:00.123Z"}}'))
        assert rows(store, "add")[0]["stats_parsed"]["maxValues"]["at"].microsecond == 123_000

    @pytest.mark.parametrize(
        ("as_json", "as_struct", "expected"),
        [
            ("true", "false", {"stats"}),
            ("false", "true", {"stats_parsed", "partitionValues_parsed"}),
            ("true", "true", {"stats", "stats_parsed", "partitionValues_parsed"}),
            ("false", "false", set()),
        ],
    )
    def test_in_the_forms_that_the_table_wants(
        self, store: Store, as_json: str, as_struct: str, expected: set[str]
    ) -> None:
        wanted = {"delta.checkpoint.writeStatsAsJson": as_json, "delta.checkpoint.writeStatsAsStruct": as_struct}
        partition = {"day": "2024-01-01"}
        write(
            store,
            PLAIN,
            metadata(wanted, partition_columns=("day",)),
            add("f", stats=self.STATS, partition_values=partition),
        )
        found = {f.name for f in content(store).schema.field("add").type}
        assert found & {"stats", "stats_parsed", "partitionValues_parsed"} == expected

    def test_a_struct_alone_is_enough_to_get_the_text_back(self, store: Store) -> None:
        struct_only = metadata({"delta.checkpoint.writeStatsAsJson": "false"})
        write(store, PLAIN, struct_only, add("f", stats=self.STATS), add("bare"))
        log = only_checkpoint(store)
        write_history(store, [[metadata({})]], start=1)
        write_checkpoint(log, 1, now_ms=NOW)
        texts = [row["stats"] for row in rows(store, "add", checkpoint_path(1))]
        assert msgspec.json.decode(texts[0]) == msgspec.json.decode(self.STATS)
        assert texts[1] is None

    def test_a_struct_alone_lasts_through_any_number_of_checkpoints(self, store: Store) -> None:
        struct_only = metadata({"delta.checkpoint.writeStatsAsJson": "false"})
        write(store, PLAIN, struct_only, add("f", stats=self.STATS))
        log = only_checkpoint(store)
        for version in (1, 2, 3):
            text = self.STATS if version == 2 else None
            write_history(store, [[add(f"g{version}", stats=text)]], start=version)
            write_checkpoint(log, version, now_ms=NOW)
            store.delete([checkpoint_path(version - 1)])
        expected = replayed([[PLAIN, struct_only, add("f", stats=self.STATS), add("g1"), add("g3")]])
        found = described(DeltaLog(store).state(3))["files"]
        assert found.pop("g2 ")["stats"] == msgspec.json.decode(self.STATS)
        assert found == expected["files"]

    def test_columns_are_the_ones_that_the_table_indexes(self, store: Store) -> None:
        narrow = metadata({"delta.dataSkippingStatsColumns": "name"})
        write(store, PLAIN, narrow, add("f", stats='{"minValues":{"id":1,"name":"a"}}'))
        assert rows(store, "add")[0]["stats_parsed"]["minValues"] == {"name": "a"}

    def test_column_mapping_has_physical_names(self, store: Store) -> None:
        mapped = metadata(
            {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "6"},
            of=schema(mapped=True),
            partition_columns=("day",),
        )
        protocol = Protocol(min_reader_version=2, min_writer_version=5)
        stats = '{"numRecords":1,"minValues":{"col-1":7}}'
        write(store, protocol, mapped, add("f", stats=stats, partition_values={"col-5": "2024-01-01"}))
        (row,) = rows(store, "add")
        assert row["stats_parsed"]["minValues"]["col-1"] == 7
        assert row["partitionValues_parsed"]["col-5"].isoformat() == "2024-01-01"

    def test_types_without_bounds_leave_no_empty_struct(self, store: Store) -> None:
        flags = columns(flag="boolean", raw="binary", inner={"type": "struct", "fields": []})
        write(store, PLAIN, metadata(of=flags), add("f", stats='{"numRecords":1,"nullCount":{"flag":0}}'))
        parsed = rows(store, "add")[0]["stats_parsed"]
        assert parsed == {"numRecords": 1, "nullCount": {"flag": 0, "raw": None}, "tightBounds": None}

    def test_a_file_with_a_deletion_vector_keeps_its_number_of_records(self, store: Store) -> None:
        neither = {"delta.checkpoint.writeStatsAsJson": "false", "delta.checkpoint.writeStatsAsStruct": "false"}
        vector = DeletionVectorDescriptor(storage_type="i", path_or_inline_dv="x", size_in_bytes=1, cardinality=1)
        write(store, PLAIN, metadata(neither), add("f", stats='{"numRecords":3}', deletion_vector=vector))
        assert rows(store, "add")[0]["stats"] == '{"numRecords":3}'


class TestPartitionValues:
    def test_are_typed_beside_their_texts(self, store: Store) -> None:
        table = metadata(partition_columns=("day", "kind"))
        files = [{"day": "2024-01-02", "kind": "a"}, {"day": "", "kind": None}]
        write(store, PLAIN, table, *(add(f"f{n}", partition_values=values) for n, values in enumerate(files)))
        found = rows(store, "add")
        assert [row["partitionValues"] for row in found] == files
        assert found[0]["partitionValues_parsed"]["day"].isoformat() == "2024-01-02"
        assert found[1]["partitionValues_parsed"] == {"day": None, "kind": None}

    def test_a_text_that_is_no_value_leaves_out_the_typed_ones(self, store: Store) -> None:
        write(store, PLAIN, metadata(partition_columns=("day",)), add("f", partition_values={"day": "soon"}))
        assert "partitionValues_parsed" not in rows(store, "add")[0]
        assert only_checkpoint(store).snapshot().files.num_rows == 1


class TestV2:
    def write(self, store: Store, files: int, **options: Any) -> Any:
        table = metadata({"delta.checkpointPolicy": "v2"})
        made = [add(f"f{n}", stats=f'{{"numRecords":{n}}}') for n in range(files)]
        return write(store, V2, table, SetTransaction(app_id="a", version=1), remove("x"), *made, **options)

    def test_sidecars_have_a_bounded_number_of_rows_and_nothing_but_files(self, store: Store) -> None:
        info = self.write(store, 7, sidecar_rows=3)
        assert [content(store, key).num_rows for key in info.files[1:]] == [3, 3, 2]
        assert all(content(store, key).schema.names == ["add", "remove"] for key in info.files[1:])

    @pytest.mark.parametrize("v2_format", ["parquet", "json"])
    def test_the_checkpoint_names_its_version_and_its_sidecars(self, store: Store, v2_format: Any) -> None:
        info = self.write(store, 4, sidecar_rows=2, v2_format=v2_format)
        top, *sidecars = info.files
        assert top.endswith(f".{v2_format}")
        if v2_format == "json":
            actions = codec.decode(store.get(top))
        else:
            actions = [CheckpointMetadata.from_json(row) for row in rows(store, "checkpointMetadata", top)]
            actions += [SidecarFile.from_json(row) for row in rows(store, "sidecar", top)]
        assert CheckpointMetadata(version=0) in actions
        named = [a for a in actions if isinstance(a, SidecarFile)]
        assert [SIDECARS_DIR + a.path for a in named] == sidecars
        assert [a.size_in_bytes for a in named] == [len(store.get(key)) for key in sidecars]
        assert only_checkpoint(store).snapshot().files.num_rows == 4

    def test_the_checkpoint_has_columns_for_files_though_none_is_in_them(self, store: Store) -> None:
        """Delta Spark looks for them."""
        top = content(store, self.write(store, 4).files[0])
        for name in ("add", "remove"):
            assert top.schema.get_field_index(name) >= 0
            assert top[name].null_count == top.num_rows

    def test_sidecars_are_there_before_the_checkpoint_and_the_pointer_comes_last(self, store: Store) -> None:
        recording = FaultyStore(store)
        self.write(recording, 4, sidecar_rows=2)
        written = [call.keys[0] for call in recording.calls if call.name in ("close", "put")]
        assert [key.startswith(SIDECARS_DIR) for key in written[:3]] == [True] * 3
        assert ".checkpoint." in written[3]
        assert written[4:] == [LAST_CHECKPOINT]

    def test_the_policy_counts_only_if_the_protocol_has_the_feature(self, store: Store) -> None:
        info = write(store, PLAIN, metadata({"delta.checkpointPolicy": "v2"}), add("f"))
        assert info.files == (checkpoint_path(0),)

    def test_a_table_without_files_needs_no_sidecar(self, store: Store) -> None:
        info = write(store, V2, metadata({"delta.checkpointPolicy": "v2"}))
        assert len(info.files) == 1
        assert only_checkpoint(store).snapshot().files.num_rows == 0


class TestPointer:
    def test_it_says_what_was_written_and_has_a_checksum(self, store: Store) -> None:
        info = write(store, PLAIN, metadata(), add("f"))
        said = msgspec.json.decode(store.get(LAST_CHECKPOINT))
        checksum = said.pop("checksum")
        assert checksum == last_checkpoint.checksum(said)
        assert said == {"version": 0, "size": 3, "sizeInBytes": info.size_in_bytes, "numOfAddFiles": 1}

    def test_it_does_not_go_back(self, store: Store) -> None:
        write_history(store, [[PLAIN, metadata()], [add("f")], [add("g")]])
        assert write_checkpoint(DeltaLog(store), 2, now_ms=NOW).pointer_moved
        newer = store.get(LAST_CHECKPOINT)
        assert not write_checkpoint(DeltaLog(store), 1, now_ms=NOW).pointer_moved
        assert store.get(LAST_CHECKPOINT) == newer

    @pytest.mark.parametrize("there", [b"", b"{", b'{"version":9,"size":1,"checksum":"no"}'])
    def test_field_bug_19_a_torn_one_is_replaced(self, store: Store, there: bytes) -> None:
        store.put(LAST_CHECKPOINT, there)
        assert write(store, PLAIN, metadata()).pointer_moved
        assert last_checkpoint.parse(store.get(LAST_CHECKPOINT)) is not None

    def test_one_that_points_beyond_the_end_of_the_log_is_replaced(self, store: Store) -> None:
        store.put(LAST_CHECKPOINT, LastCheckpoint(version=77, size=1).to_bytes())
        assert write(store, PLAIN, metadata()).pointer_moved


class TestRefusals:
    def test_a_version_that_is_not_there(self, store: Store) -> None:
        write_history(store, [[PLAIN, metadata()]])
        with pytest.raises(VersionNotFound) as caught:
            write_checkpoint(DeltaLog(store), 1, now_ms=NOW)
        assert caught.value.table == store.uri

    def test_b4_a_version_that_is_not_backfilled(self, store: Store) -> None:
        write_history(store, [[PLAIN, metadata()]])
        key = staged_commit_path(1, "3a0d65cd-4056-49b8-937b-95f9e3ee90e5")
        store.put(key, codec.encode([add("f")]))

        class Owner:
            def unbackfilled(self, start_version: int) -> Told:
                return Told(commits={1: RatifiedCommit(version=1, key=key)})

        log = DeltaLog(store, commit_source=Owner())
        assert log.snapshot().version == 1
        with pytest.raises(NotBackfilled) as caught:
            write_checkpoint(log, 1, now_ms=NOW)
        assert caught.value.version == 1
        assert write_checkpoint(log, 0, now_ms=NOW).version == 0

    def test_a_table_that_needs_a_feature_that_is_not_known(self, store: Store) -> None:
        protocol = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("fromTheFuture",))
        with pytest.raises(UnsupportedFeature, match="fromTheFuture"):
            write(store, protocol, metadata())
        assert not store.list_keys(LOG_DIR, after=commit_path(0))

    def test_a_table_whose_commits_a_catalog_manages(self, store: Store) -> None:
        names = ("catalogManaged", "inCommitTimestamp", "vacuumProtocolCheck")
        readers = ("catalogManaged", "vacuumProtocolCheck")
        protocol = Protocol(min_reader_version=3, min_writer_version=7, reader_features=readers, writer_features=names)
        with pytest.raises(UnsupportedFeature, match="catalogManaged"):
            write(store, protocol, metadata())

    def test_field_bug_22_a_log_that_lost_files_is_not_made_permanent(self, store: Store) -> None:
        write_history(store, [[PLAIN, metadata(), add("f")]])
        store.put(checksum_path(0), b'{"tableSizeBytes":2,"numFiles":2,"numMetadata":1,"numProtocol":1}')
        log = DeltaLog(store)
        with pytest.warns(ChecksumWarning):
            log.snapshot()
        with pytest.raises(ChecksumMismatch):
            write_checkpoint(log, 0, now_ms=NOW)
        assert store.list_keys(LOG_DIR) == [checksum_path(0), commit_path(0)]

    def test_field_bug_22_a_snapshot_in_memory_that_lacks_files_is_not_used(self, store: Store) -> None:
        write_history(store, [[PLAIN, metadata(), add("f"), add("g")]])
        log = DeltaLog(store)
        partial = log.snapshot()
        log._latest = type(partial)(
            table=partial.table,
            state=msgspec.structs.replace(
                partial.state, live_files=type(partial.state.live_files)(partial.files.slice(1))
            ),
            trust=log.trust,
        )
        assert log.snapshot().files.num_rows == 1
        assert write_checkpoint(log, 0, now_ms=NOW).num_adds == 2

    def test_field_bug_22_what_was_written_is_counted_before_the_pointer_moves(self, store: Store) -> None:
        class Lossy(FaultyStore):
            """Gives an older object back than the one that was written, as a cache in between might."""

            def open_read(self, key: str) -> pa.NativeFile:
                return super().open_read(checkpoint_path(0))

        write(store, PLAIN, metadata(), add("f"))
        pointer = store.get(LAST_CHECKPOINT)
        write_history(store, [[add("g")]], start=1)
        with pytest.raises(BrokenCheckpoint, match="3 rows instead of 4"):
            write_checkpoint(DeltaLog(Lossy(store)), 1, now_ms=NOW)
        assert store.get(LAST_CHECKPOINT) == pointer

    def test_a_log_with_a_gap(self, store: Store) -> None:
        write_history(store, [[PLAIN, metadata()], [add("f")], [add("g")]])
        store.delete([commit_path(1)])
        with pytest.raises(LogGap):
            write_checkpoint(DeltaLog(store), 2, now_ms=NOW)


def test_field_bug_21_another_byte_in_a_page_is_noticed(store: Store) -> None:
    paths = [f"file-{n}" for n in range(50)]
    write(store, PLAIN, metadata(), *(add(path, stats='{"numRecords":1}') for path in paths))
    whole = store.get(checkpoint_path(0))
    footer = int.from_bytes(whole[-8:-4], "little")
    for place in range(4, len(whole) - footer - 8, 61):
        other = bytearray(whole)
        other[place] ^= 0x20
        store.put(checkpoint_path(0), bytes(other))
        # Where the checkpoint is found to be broken, this comes from the commit.
        assert DeltaLog(store).snapshot().files["path"].to_pylist() == paths


def test_field_bug_21_a_corrupt_checkpoint_is_mended_by_the_next_one_of_its_version(store: Store) -> None:
    write(store, PLAIN, metadata(), add("f"))
    store.put(checkpoint_path(0), b"PAR1 but not really")
    write_checkpoint(DeltaLog(store), 0, now_ms=NOW)
    assert only_checkpoint(store).snapshot().files.num_rows == 1


def test_a_log_with_a_broken_commit_below_the_checkpoint_still_gets_newer_ones(store: Store) -> None:
    write(store, PLAIN, metadata(), add("f"))
    store.put(commit_path(0), b"{broken")
    write_history(store, [[add("g")]], start=1)
    info = write_checkpoint(DeltaLog(store), 1, now_ms=NOW)
    assert info.num_adds == 2


@pytest.mark.parametrize("kind", ["local", "memory", "s3"])
@pytest.mark.parametrize("protocol", [PLAIN, V2])
def test_on_every_store(request: pytest.FixtureRequest, tmp_path: Path, kind: str, protocol: Protocol) -> None:
    match kind:
        case "local":
            store = open_store(tmp_path)
        case "memory":
            store = open_store(f"memory://{uuid.uuid4().hex}/table")
        case _:
            server: S3Server = request.getfixturevalue("s3")
            store = open_store(server.uri(f"{uuid.uuid4().hex}/table"), server.storage_options)
    table = metadata({"delta.checkpointPolicy": "v2"})
    info = write(store, protocol, table, *(add(f"f{n}") for n in range(9)), sidecar_rows=4)
    assert info.size_in_bytes == sum(store.head(key).size for key in info.files)
    assert only_checkpoint(store).snapshot().files.num_rows == 9


def test_more_files_than_fit_into_one_batch(store: Store) -> None:
    count = 70_000
    write_history(store, [[PLAIN, metadata(), *(add(f"f{n}", stats=f'{{"numRecords":{n}}}') for n in range(count))]])
    assert write_checkpoint(DeltaLog(store), 0, now_ms=NOW).num_adds == count
    files = only_checkpoint(store).snapshot().files
    assert files["path"].to_pylist() == [f"f{n}" for n in range(count)]
    assert files["stats"][count - 1].as_py() == f'{{"numRecords":{count - 1}}}'
