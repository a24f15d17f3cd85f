from __future__ import annotations

import io
import uuid
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeseal.errors import BrokenCheckpoint, StorageUnavailable
from lakeseal.log.checkpoint_reader import UNKNOWN, check_checkpoint, read_checkpoint, read_sidecar_keys
from lakeseal.log.files import ADDS, REMOVES, add_actions
from lakeseal.log.replay import TableState
from lakeseal.protocol import codec
from lakeseal.protocol.actions import (
    Action,
    AddFile,
    CheckpointMetadata,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    SidecarFile,
    UnknownAction,
)
from lakeseal.protocol.paths import SIDECARS_DIR, LogFile, checkpoint_path, parse, v2_checkpoint_path
from lakeseal.storage import Store, open_store
from lakeseal.testing.faults import Fault, FaultyStore

PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
METADATA = {"id": "m", "schemaString": "{}", "partitionColumns": [], "format": {"provider": "parquet", "options": []}}
KEY = checkpoint_path(7)
JSON_KEY = v2_checkpoint_path(7, "3a0d65cd-4056-49b8-937b-95f9e3ee90e5", "json")


@pytest.fixture
def store() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}/table")


def file(path: str, **more: Any) -> dict[str, Any]:
    return {"path": path, "partitionValues": [], "size": 1, "modificationTime": 2, "dataChange": False, **more}


def put(
    store: Store, rows: list[dict[str, Any]], key: str = KEY, schema: pa.Schema | None = None, **options: Any
) -> None:
    content = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema) if schema else columns(rows), content, **options)
    store.put(key, content.getvalue())


def columns(rows: list[dict[str, Any]]) -> pa.Table:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: pa.array([row.get(name) for row in rows], KINDS.get(name)) for name in names})


MAP = pa.map_(pa.string(), pa.string())
KINDS = {
    "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
    "metaData": pa.struct(
        {
            "id": pa.string(),
            "schemaString": pa.string(),
            "format": pa.struct({"provider": pa.string(), "options": MAP}),
            "configuration": MAP,
            "partitionColumns": pa.list_(pa.string()),
        }
    ),
    "add": pa.struct(
        {
            "path": pa.string(),
            "partitionValues": MAP,
            "size": pa.int64(),
            "modificationTime": pa.int64(),
            "dataChange": pa.bool_(),
            "stats": pa.string(),
        }
    ),
    "remove": pa.struct({"path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_()}),
}
HEAD: list[dict[str, Any]] = [{"protocol": PROTOCOL}, {"metaData": METADATA}]


def named(*keys: str) -> tuple[LogFile, ...]:
    found = [parse(key) for key in keys]
    assert all(found)
    return tuple(file for file in found if file is not None)


def read(store: Store, *keys: str, **options: Any) -> TableState:
    return read_checkpoint(store, 7, named(*(keys or (KEY,))), **options)


def paths(state: TableState) -> list[str]:
    found: list[str] = state.files["path"].to_pylist()
    return found


def with_stats(kind: pa.DataType | None, *, text: bool) -> pa.StructType:
    fields = [f for f in KINDS["add"] if f.name != "stats" or text]
    return pa.struct([*fields, *([pa.field("stats_parsed", kind)] if kind else [])])


class TestFormsOfOtherWriters:
    def test_columns_that_are_not_there_are_null(self, store: Store) -> None:
        put(store, [*HEAD, {"add": file("a")}])
        state = read(store)
        assert state.files.schema == ADDS
        assert (state.txns, state.domains, state.commit_info) == ({}, {}, None)
        assert list(add_actions(state.files)) == [
            AddFile(path="a", partition_values={}, size=1, modification_time=2, data_change=False)
        ]

    def test_columns_that_nobody_knows_are_passed_over(self, store: Store) -> None:
        put(store, [*HEAD, {"add": file("a")}, {"fromTheFuture": {"x": 1}}, {"scalar": 3}])
        assert paths(read(store)) == ["a"]

    def test_rows_in_any_order_and_any_number_of_row_groups(self, store: Store) -> None:
        rows = [{"add": file(f"f{n}")} for n in range(20)]
        put(store, [rows[0], HEAD[1], *rows[1:], HEAD[0]], row_group_size=3)
        assert len(paths(read(store))) == 20

    def test_without_statistics_of_columns_everything_is_looked_at(self, store: Store) -> None:
        put(store, [*HEAD, {"add": file("a", stats="{}")}, {"remove": {"path": "x"}}], write_statistics=False)
        state = read(store, with_removes=True)
        assert paths(state) == ["a"]
        assert state.removes.num_rows == 1

    def test_other_types_for_the_same_values(self, store: Store) -> None:
        kind = pa.struct(
            {
                "path": pa.large_string(),
                "partitionValues": pa.map_(pa.large_string(), pa.large_string()),
                "size": pa.int32(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "deletionVector": pa.struct(
                    {
                        "storageType": pa.string(),
                        "pathOrInlineDv": pa.string(),
                        "sizeInBytes": pa.int64(),
                        "cardinality": pa.int64(),
                        "maxRowIndex": pa.int64(),
                    }
                ),
            }
        )
        vector = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 3, "cardinality": 1}
        schema = pa.schema({**KINDS, "add": kind})
        put(store, [*HEAD, {"add": file("a", partitionValues=[("p", "1")], deletionVector=vector)}], schema=schema)
        (action,) = add_actions(read(store).files)
        assert action.partition_values == {"p": "1"}
        assert action.deletion_vector is not None
        assert (action.deletion_vector.size_in_bytes, action.deletion_vector.offset) == (3, None)

    def test_tombstones_only_if_they_are_asked_for(self, store: Store) -> None:
        put(store, [*HEAD, {"remove": {"path": "x", "deletionTimestamp": 5, "dataChange": True}}])
        assert read(store).removes is None
        removes = read(store, with_removes=True).removes
        assert removes.schema == REMOVES
        assert removes["deletionTimestamp"].to_pylist() == [5]

    def test_a_removed_domain_is_gone(self, store: Store) -> None:
        domain = {"domain": "d", "configuration": "", "removed": True}
        put(store, [*HEAD, {"domainMetadata": domain}, {"domainMetadata": {**domain, "domain": "e", "removed": False}}])
        assert list(read(store).domains) == ["e"]

    def test_parts_make_one_state(self, store: Store) -> None:
        keys = [f"_delta_log/{7:020d}.checkpoint.{n:010d}.{3:010d}.parquet" for n in (1, 2, 3)]
        put(store, HEAD, keys[0])
        put(store, [{"add": file("a")}], keys[1])
        put(store, [{"add": file("b")}, {"txn": {"appId": "x", "version": 1}}], keys[2])
        state = read(store, *keys)
        assert paths(state) == ["a", "b"]
        assert state.txns == {"x": SetTransaction(app_id="x", version=1)}

    def test_parts_whose_statistics_have_other_types_make_one_state(self, store: Store) -> None:
        keys = [f"_delta_log/{7:020d}.checkpoint.{n:010d}.{3:010d}.parquet" for n in (1, 2, 3)]
        put(store, HEAD, keys[0])
        for key, count in zip(keys[1:], (pa.int32(), pa.int64()), strict=True):
            kind = with_stats(pa.struct({"numRecords": count}), text=False)
            put(store, [{"add": file(key, stats_parsed={"numRecords": 3})}], key, pa.schema({"add": kind}))
        assert [a.stats for a in add_actions(read(store, *keys).files)] == ['{"numRecords":3}'] * 2

    def test_parts_whose_statistics_contradict_each_other_are_a_typed_error(self, store: Store) -> None:
        keys = [f"_delta_log/{7:020d}.checkpoint.{n:010d}.{3:010d}.parquet" for n in (1, 2, 3)]
        put(store, HEAD, keys[0])
        for key, count, value in ((keys[1], pa.bool_(), True), (keys[2], pa.string(), "x")):
            kind = with_stats(pa.struct({"numRecords": count}), text=False)
            put(store, [{"add": file(key, stats_parsed={"numRecords": value})}], key, pa.schema({"add": kind}))
        with pytest.raises(BrokenCheckpoint):
            read(store, *keys)


class TestStatistics:
    PARSED = pa.struct({"numRecords": pa.int64()})

    def test_a_struct_alone_is_kept(self, store: Store) -> None:
        kind = with_stats(self.PARSED, text=False)
        put(
            store, [*HEAD, {"add": file("a", stats_parsed={"numRecords": 3})}], schema=pa.schema({**KINDS, "add": kind})
        )
        assert [a.stats for a in add_actions(read(store).files)] == ['{"numRecords":3}']

    def test_where_the_text_is_null_the_struct_is_kept(self, store: Store) -> None:
        kind = with_stats(self.PARSED, text=True)
        rows = [
            {"add": file("a", stats='{"numRecords":1}', stats_parsed={"numRecords": 9})},
            {"add": file("b", stats_parsed={"numRecords": 2})},
            {"add": file("c")},
        ]
        for statistics in (True, False):
            put(store, [*HEAD, *rows], schema=pa.schema({**KINDS, "add": kind}), write_statistics=statistics)
            texts = [a.stats for a in add_actions(read(store).files)]
            assert texts == ['{"numRecords":1}', '{"numRecords":2}', None]

    def test_where_every_file_has_a_text_the_struct_is_not_read(self, store: Store) -> None:
        kind = with_stats(self.PARSED, text=True)
        row = {"add": file("a", stats="{}", stats_parsed={"numRecords": 9})}
        put(store, [*HEAD, row], schema=pa.schema({**KINDS, "add": kind}))
        assert "stats_parsed" not in read(store).files.column_names

    def test_only_keys_reads_nothing_else_of_files(self, store: Store) -> None:
        put(store, [*HEAD, {"add": file("a", stats="{}")}, {"remove": {"path": "x", "deletionTimestamp": 5}}])
        state = read(store, with_removes=True, only_keys=True)
        assert paths(state) == ["a"]
        assert state.files["stats"].null_count == state.files["size"].null_count == 1
        assert state.removes["deletionTimestamp"].to_pylist() == [5]


def write_json(store: Store, *actions: Action, key: str = JSON_KEY) -> None:
    store.put(key, codec.encode(actions))


TOP: tuple[Action, ...] = (
    CheckpointMetadata(version=7),
    Protocol(min_reader_version=1, min_writer_version=2),
    Metadata(id="m", schema_string="{}"),
)


def sidecar(path: str) -> SidecarFile:
    return SidecarFile(path=path, size_in_bytes=1, modification_time=1)


class TestV2:
    @pytest.mark.parametrize(
        "path",
        [
            "s%20one.parquet",
            "_sidecars/s%20one.parquet",
            "_delta_log/_sidecars/s%20one.parquet",
            "file:///where/it/was/_delta_log/_sidecars/s%20one.parquet",
        ],
    )
    def test_sidecars_are_found_in_the_logs_own_folder_however_they_are_named(self, store: Store, path: str) -> None:
        write_json(store, *TOP, sidecar(path))
        put(store, [{"add": file("a")}], f"{SIDECARS_DIR}s one.parquet")
        assert paths(read(store, JSON_KEY)) == ["a"]

    @pytest.mark.parametrize(
        "path", ["../x.parquet", "/etc/passwd", "other/x.parquet", "", "..", "s3://b/x.parquet", "a/"]
    )
    def test_a_sidecar_from_elsewhere_is_refused(self, store: Store, path: str) -> None:
        write_json(store, *TOP, sidecar(path))
        with pytest.raises(BrokenCheckpoint):
            read(store, JSON_KEY)

    def test_files_may_be_in_the_checkpoint_itself(self, store: Store) -> None:
        add = AddFile(path="a", partition_values={}, size=1, modification_time=1, data_change=False, unknown={"x": 1})
        remove = RemoveFile(path="r", data_change=False)
        write_json(store, *TOP, add, remove, DomainMetadata(domain="d", configuration="", removed=False))
        state = read(store, JSON_KEY, with_removes=True)
        assert list(add_actions(state.files)) == [add]
        assert state.removes.num_rows == 1
        assert list(state.domains) == ["d"]

    def test_unknown_actions_are_passed_over(self, store: Store) -> None:
        write_json(store, *TOP, UnknownAction(name="later", value=1))
        assert read(store, JSON_KEY).files.num_rows == 0

    def test_a_missing_sidecar_is_named(self, store: Store) -> None:
        write_json(store, *TOP, sidecar("gone.parquet"))
        with pytest.raises(BrokenCheckpoint, match="missing") as caught:
            read(store, JSON_KEY)
        assert caught.value.file == f"{SIDECARS_DIR}gone.parquet"

    def test_a_checkpoint_that_says_it_is_of_another_version(self, store: Store) -> None:
        write_json(store, CheckpointMetadata(version=8), *TOP[1:])
        with pytest.raises(BrokenCheckpoint, match="version 8"):
            read(store, JSON_KEY)

    def test_which_sidecars_it_needs(self, store: Store) -> None:
        write_json(store, *TOP, sidecar("a.parquet"), sidecar("_sidecars/b.parquet"))
        assert read_sidecar_keys(store, named(JSON_KEY)) == [f"{SIDECARS_DIR}{n}.parquet" for n in "ab"]
        put(store, HEAD)
        assert read_sidecar_keys(store, named(KEY)) == []


class TestBroken:
    @pytest.mark.parametrize(
        "rows",
        [
            [HEAD[0]],
            [HEAD[1]],
            [*HEAD, HEAD[0]],
            [*HEAD, HEAD[1]],
            [*HEAD, {"add": {**file("a"), "path": None}}],
        ],
    )
    def test_what_it_must_have_is_missing_or_there_twice(self, store: Store, rows: list[dict[str, Any]]) -> None:
        put(store, rows)
        with pytest.raises(BrokenCheckpoint) as caught:
            read(store)
        assert caught.value.file in (KEY, KEY.removeprefix("_delta_log/"))

    @pytest.mark.parametrize(
        "kind",
        [
            {"add": pa.struct({"path": pa.int64()})},
            {"add": pa.struct({"path": pa.string(), "size": pa.string()})},
            {"add": pa.struct({"path": pa.string(), "partitionValues": pa.string()})},
            {"add": pa.struct({"path": pa.string(), "deletionVector": pa.int64()})},
            {"metaData": pa.struct({"id": pa.int64()})},
            {"protocol": pa.struct({"minReaderVersion": pa.string()})},
            {"txn": pa.struct({"appId": pa.string(), "version": pa.string()})},
        ],
    )
    def test_columns_of_types_that_cannot_be_meant(self, store: Store, kind: dict[str, pa.DataType]) -> None:
        ((name, of),) = kind.items()
        values = {pa.int64(): 1, pa.string(): "x"}
        row = {name: {f.name: values[f.type] for f in of}}
        put(store, [*(h for h in HEAD if name not in h), row], schema=pa.schema({**KINDS, name: of}))
        try:
            found = read(store)
        except BrokenCheckpoint:
            return
        assert found.files["path"].to_pylist() == ["1"]  # a number as a path is a strange name, but a name

    def test_a_column_of_ours_that_somebody_else_filled(self, store: Store) -> None:
        for text in ("not json", "[1]", ""):
            kind = pa.struct([*KINDS["add"], pa.field(UNKNOWN, pa.string())])
            put(store, [*HEAD, {"add": file("a", **{UNKNOWN: text})}], schema=pa.schema({**KINDS, "add": kind}))
            with pytest.raises(BrokenCheckpoint):
                read(store)

    def test_a_foreign_column_called_unknown_is_not_ours(self, store: Store) -> None:
        kind = pa.struct([*KINDS["add"], pa.field("unknown", pa.string())])
        put(store, [*HEAD, {"add": file("a", unknown="not json")}], schema=pa.schema({**KINDS, "add": kind}))
        (action,) = add_actions(read(store).files)
        assert action.unknown == {}

    @pytest.mark.parametrize("keep", [0, 1, 4, 100, -8, -4, -1])
    def test_a_part_of_it(self, store: Store, keep: int) -> None:
        put(store, [*HEAD, *({"add": file(f"f{n}")} for n in range(100))])
        store.put(KEY, store.get(KEY)[:keep])
        with pytest.raises(BrokenCheckpoint) as caught:
            read(store)
        assert caught.value.file == KEY
        with pytest.raises(BrokenCheckpoint):
            check_checkpoint(store, 7, named(KEY))

    def test_other_bytes_in_its_middle(self, store: Store) -> None:
        put(store, [*HEAD, *({"add": file(f"f{n}")} for n in range(1000))])
        data = bytearray(store.get(KEY))
        data[200:260] = bytes(60)
        store.put(KEY, bytes(data))
        with pytest.raises(BrokenCheckpoint):
            read(store)

    def test_bytes_that_are_no_text(self, store: Store) -> None:
        put(store, [*HEAD, {"add": file("caf\u00e9")}], compression="none", use_dictionary=False)
        store.put(KEY, store.get(KEY).replace("caf\u00e9".encode(), b"caf\xff\xff"))
        with pytest.raises(BrokenCheckpoint, match="UTF8"):
            read(store)

    @pytest.mark.parametrize("data", [b"", b"{", b'{"add":{"path":1}}', b"\xff", b"[]"])
    def test_json_that_is_none(self, store: Store, data: bytes) -> None:
        store.put(JSON_KEY, data)
        with pytest.raises(BrokenCheckpoint):
            read(store, JSON_KEY)

    def test_a_missing_file(self, store: Store) -> None:
        with pytest.raises(BrokenCheckpoint, match="missing"):
            read(store)

    def test_an_outage_is_not_its_fault(self, store: Store) -> None:
        put(store, HEAD)
        with pytest.raises(StorageUnavailable):
            read(FaultyStore(store, [Fault("open_read")]))


class TestChecking:
    def test_a_whole_one_passes(self, store: Store) -> None:
        put(store, [*HEAD, {"add": file("a")}])
        check_checkpoint(store, 7, named(KEY))
        write_json(store, *TOP, sidecar("a.parquet"))
        put(store, [{"add": file("a")}], f"{SIDECARS_DIR}a.parquet")
        check_checkpoint(store, 7, named(JSON_KEY))

    def test_a_sidecar_that_is_missing_or_torn_does_not(self, store: Store) -> None:
        write_json(store, *TOP, sidecar("a.parquet"))
        with pytest.raises(BrokenCheckpoint):
            check_checkpoint(store, 7, named(JSON_KEY))
        store.put(f"{SIDECARS_DIR}a.parquet", b"PAR1")
        with pytest.raises(BrokenCheckpoint):
            check_checkpoint(store, 7, named(JSON_KEY))

    def test_one_without_a_protocol_does_not(self, store: Store) -> None:
        put(store, [HEAD[1]])
        with pytest.raises(BrokenCheckpoint):
            check_checkpoint(store, 7, named(KEY))


def test_fields_of_our_own_column_come_back_nested_where_they_were(store: Store) -> None:
    kind = pa.struct([*KINDS["metaData"], pa.field(UNKNOWN, pa.string())])
    unknown = msgspec.json.encode({"format": {"deep": 1}, "top": [2]}).decode()
    put(store, [HEAD[0], {"metaData": {**METADATA, UNKNOWN: unknown}}], schema=pa.schema({**KINDS, "metaData": kind}))
    metadata = read(store).metadata
    assert metadata is not None
    assert metadata.unknown == {"top": [2]}
    assert (metadata.format.unknown, metadata.format.provider) == ({"deep": 1}, "parquet")


def test_a_checkpoint_without_the_paths_of_its_files_is_broken(store: Store) -> None:
    rows = [{"protocol": PROTOCOL}, {"metaData": METADATA}, {"add": file("a")}]
    whole = columns(rows)
    pathless = whole.set_column(2, "add", pa.array([None, None, {"x": 1}]))
    content = io.BytesIO()
    pq.write_table(pathless, content)
    store.put(KEY, content.getvalue())
    with pytest.raises(BrokenCheckpoint):
        read(store)
