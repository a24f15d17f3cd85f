"""Lakeseal as a client of somebody else's catalog. Our own service stands for one: it is spoken to by the protocol
alone, and nothing is known of its ledger."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import lakeseal
from lakeseal.catalog.unity.metadata_updates import updates_of
from lakeseal.errors import (
    AlreadyExists,
    InvalidArgument,
    InvalidMetadata,
    InvalidUri,
    NotAllowed,
    NotAuthenticated,
    OwnedElsewhere,
    Refused,
    SchemaNotFound,
    StorageError,
    TableNotFound,
    UnsupportedFeature,
)
from lakeseal.owner.content import Content
from lakeseal.protocol.actions import DomainMetadata, Metadata, Protocol
from lakeseal.protocol.codec import encode
from lakeseal.protocol.paths import STAGED_COMMITS_DIR, commit_path
from lakeseal.protocol.schema import INTEGER, ArrayType, StructField, StructType
from lakeseal.storage import open_store
from lakeseal.testing.proxy import ProxyFault, Reply, Request, Verdict, faulty_proxy
from support.unity_catalog import SCHEMA, Catalog


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "s": [str(one) for one in ids]}, SCHEMA)


def ids(table: lakeseal.Table) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


@pytest.fixture
def theirs(catalog: Catalog) -> lakeseal.Catalog:
    return lakeseal.Catalog(catalog.url, token=catalog.token, kind="unity")


@pytest.fixture
def slow(catalogs: Any, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog that publishes nothing by itself."""
    with catalogs(tmp_path, publish_every_s=3600.0, roots=(f"file://{tmp_path}",)) as found:
        found.service.unity.when_published = lambda table: None
        yield found


def test_a_table_of_another_catalog_is_read_written_and_changed_by_its_name(
    catalog: Catalog, theirs: lakeseal.Catalog
) -> None:
    owned = catalog.create("orders")
    table = theirs.table("sales.orders")
    assert table.version() == 0
    for number in range(3):
        table.write(rows(number))
    owned.write(rows(3))
    table.delete("id = 1")
    table.update({"s": "'x'"}, "id = 2")
    table.merge(rows(3, 4), "t.id = s.id").when_matched_update().when_not_matched_insert().execute()
    assert ids(table) == ids(owned) == [0, 2, 3, 4]
    assert table.version() == owned.version() == 7
    with catalog.duckdb() as engine:
        assert engine.execute("SELECT id FROM c.sales.orders ORDER BY id").fetchall() == [(0,), (2,), (3,), (4,)]


def test_a_commit_is_a_staged_file_that_the_client_publishes_and_reports_with_its_next(slow: Catalog) -> None:
    slow.create("orders")
    table = lakeseal.Catalog(slow.url, token=slow.token, kind="unity").table("sales.orders")
    with faulty_proxy(slow.url, lambda request: None) as proxy:
        through = lakeseal.Catalog(proxy.endpoint, token=slow.token, kind="unity").table("sales.orders")
        through.write(rows(1))
        through.write(rows(2))
        assert sum(request.method == "POST" for request in proxy.requests) == 2
    store = open_store(slow.folder / "orders")
    for version in (1, 2):
        (staged,) = [key for key in store.list_keys(STAGED_COMMITS_DIR) if f"{version:020d}." in key]
        assert store.get(staged) == store.get(commit_path(version))
    assert ids(table) == [1, 2]


def test_staged_commits_that_nobody_has_published_are_read(slow: Catalog) -> None:
    slow.create("orders")
    with slow.duckdb() as engine:
        for number in range(3):
            engine.execute(f"INSERT INTO c.sales.orders VALUES ({number}, 'x')")
    assert [one["version"] for one in slow.load("orders")["commits"]] == [3, 2, 1]
    table = lakeseal.Catalog(slow.url, token=slow.token, kind="unity").table("sales.orders")
    assert ids(table) == [0, 1, 2]
    assert table.to_arrow(version=1).num_rows == 1
    assert [entry["version"] for entry in table.history()] == [3, 2, 1, 0]
    table.write(rows(3))
    store = open_store(slow.folder / "orders")
    assert all(store.get(commit_path(version)) for version in range(5)), "its commit comes after those of others"


def test_what_is_in_the_log_above_the_catalogs_latest_version_is_no_part_of_the_table(slow: Catalog) -> None:
    slow.create("orders").write(rows(1))
    slow.load("orders")
    store = open_store(slow.folder / "orders")
    store.put_if_absent(commit_path(2), store.get(commit_path(1)))
    table = lakeseal.Catalog(slow.url, token=slow.token, kind="unity").table("sales.orders")
    assert table.version() == 1


@pytest.mark.parametrize("lost", [ProxyFault.LOSE_REPLY, ProxyFault.LOSE_REQUEST])
def test_a_commit_whose_reply_is_lost_is_made_once(catalog: Catalog, lost: ProxyFault) -> None:
    owned = catalog.create("orders")
    losses = iter([lost])

    def loses(request: Request) -> ProxyFault | None:
        return next(losses, None) if request.method == "POST" else None

    with faulty_proxy(catalog.url, loses) as proxy:
        table = lakeseal.Catalog(proxy.endpoint, token=catalog.token, kind="unity").table("sales.orders")
        assert table.write(rows(1)).version == 1
        table.write(rows(2))
    assert ids(owned) == [1, 2]
    assert owned.version() == 2


def test_a_conflict_after_a_lost_reply_is_our_own_commit(catalog: Catalog) -> None:
    """As with catalogs that do not know a request that is made again: 409 for what is there, whosever it is."""
    owned = catalog.create("orders")
    said = Reply(status=409, body=b'{"error": {"message": "taken", "type": "CommitVersionConflictException"}}')
    verdicts = iter([ProxyFault.LOSE_REPLY, said])

    def forgets(request: Request) -> Verdict:
        return next(verdicts, None) if request.method == "POST" else None

    with faulty_proxy(catalog.url, forgets) as proxy:
        table = lakeseal.Catalog(proxy.endpoint, token=catalog.token, kind="unity").table("sales.orders")
        assert table.write(rows(1)).version == 1
    assert next(verdicts, None) is None
    assert ids(owned) == [1]
    assert owned.version() == 1


def test_a_catalog_that_waits_for_commits_to_be_published_gets_them_published(slow: Catalog) -> None:
    slow.create("orders")
    with slow.duckdb() as engine:
        for number in range(3):
            engine.execute(f"INSERT INTO c.sales.orders VALUES ({number}, 'x')")
    said = Reply(status=429, body=b'{"error": {"message": "too many", "type": "ResourceExhaustedException"}}')
    verdicts = iter([said])
    with faulty_proxy(slow.url, lambda one: next(verdicts, None) if one.method == "POST" else None) as proxy:
        table = lakeseal.Catalog(proxy.endpoint, token=slow.token, kind="unity").table("sales.orders")
        table.write(rows(3))
        store = open_store(slow.folder / "orders")
        assert all(store.get(commit_path(version)) for version in range(4))
    assert ids(table) == [0, 1, 2, 3]


def test_writers_of_both_sides_at_once_make_one_history(catalog: Catalog, theirs: lakeseal.Catalog) -> None:
    owned = catalog.create("orders")
    failed: list[BaseException] = []

    def write(table: lakeseal.Table, first: int) -> None:
        try:
            for number in range(first, first + 8):
                table.write(rows(number))
        except BaseException as error:
            failed.append(error)

    writers = [
        threading.Thread(target=write, args=(theirs.table("sales.orders"), 0)),
        threading.Thread(target=write, args=(theirs.table("sales.orders"), 100)),
        threading.Thread(target=write, args=(lakeseal.Table(owned.uri, owner=catalog.owner), 200)),
    ]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    assert failed == []
    assert owned.version() == 24
    assert (
        ids(owned)
        == ids(theirs.table("sales.orders"))
        == sorted(first + number for first in (0, 100, 200) for number in range(8))
    )


def test_a_commit_that_changes_metadata_is_told_as_what_changes(slow: Catalog) -> None:
    slow.create("orders")
    table = lakeseal.Catalog(slow.url, token=slow.token, kind="unity").table("sales.orders")
    table.add_columns(pa.schema([("more", pa.list_(pa.int32()))]))
    table.set_properties({"delta.appendOnly": "true"})
    assert slow.load("orders")["metadata"]["properties"]["delta.appendOnly"] == "true"
    assert [one["name"] for one in slow.load("orders")["metadata"]["columns"]["fields"]] == ["id", "s", "more"]
    with pytest.raises(Refused):
        table.delete("id = 1")


def test_updates_are_what_the_catalog_does_not_know_yet() -> None:
    schema = StructType((StructField("l", ArrayType(INTEGER)),)).to_json()
    metadata = Metadata(id="x", schema_string=schema, configuration={"a": "1", "b": "2"}, partition_columns=("l",))
    actions = [
        metadata,
        Protocol(min_reader_version=3, min_writer_version=7, reader_features=(), writer_features=("domainMetadata",)),
        DomainMetadata(domain="delta.clustering", configuration='{"clusteringColumns":[["l"]]}', removed=False),
        DomainMetadata(domain="delta.rowTracking", configuration="{}", removed=True),
        DomainMetadata(domain="mine", configuration="{}", removed=False),
    ]
    data = encode(actions)
    told = {"a": "1", "b": "0", "c": "3", "delta.minReaderVersion": "1", "delta.feature.catalogManaged": "supported"}
    found = {one["action"]: one for one in updates_of(data, Content.of(data), told, ())}
    assert found["set-columns"]["columns"]["fields"][0]["type"]["element-type"] == "integer"
    assert found["set-properties"]["updates"] == {"b": "2"}
    assert found["remove-properties"]["removals"] == ["c"]
    assert found["set-partition-columns"]["partition-columns"] == ["l"]
    assert found["set-protocol"]["protocol"] == {
        "min-reader-version": 3,
        "min-writer-version": 7,
        "reader-features": [],
        "writer-features": ["domainMetadata"],
    }
    assert found["set-domain-metadata"]["updates"] == {"delta.clustering": {"clusteringColumns": [["l"]]}}
    assert found["remove-domain-metadata"]["domains"] == ["delta.rowTracking"]
    assert len(found) == 7


def test_a_table_is_made_where_the_catalog_says_and_has_what_it_requires(slow: Catalog) -> None:
    theirs = lakeseal.Catalog(slow.url, token=slow.token, kind="unity")
    theirs.create_schema("sales")
    with pytest.raises(AlreadyExists):
        theirs.create_schema("sales")
    table = theirs.create("sales.made", SCHEMA, kind="catalog", partition_by="s", comment="ours")
    assert table.uri.startswith(f"file://{slow.folder}/")
    table.write(rows(1, 2))
    assert slow.load("made")["latest-table-version"] == 1
    assert slow.load("made")["metadata"]["partition-columns"] == ["s"]
    assert ids(lakeseal.Catalog(slow.url, token=slow.token).table("sales.made")) == [1, 2]
    with pytest.raises(AlreadyExists, match="made"):
        theirs.create("sales.made", SCHEMA, kind="catalog")
    with slow.duckdb() as engine:
        engine.execute("INSERT INTO c.sales.made VALUES (3, 'c')")
    assert ids(table) == [1, 2, 3]


def test_a_lost_reply_to_a_creation_leaves_the_table_that_was_made(slow: Catalog) -> None:
    losses = iter([ProxyFault.LOSE_REPLY])

    def loses(request: Request) -> ProxyFault | None:
        return next(losses, None) if request.method == "POST" and request.path.endswith("/tables") else None

    lakeseal.Catalog(slow.url, token=slow.token).create_schema("sales")
    with faulty_proxy(slow.url, loses) as proxy:
        table = lakeseal.Catalog(proxy.endpoint, token=slow.token, kind="unity").create(
            "sales.made", SCHEMA, kind="catalog"
        )
        table.write(rows(1))
    assert slow.load("made")["latest-table-version"] == 1


def test_names_are_listed_and_dropped_and_what_the_protocol_has_not_is_refused(
    catalog: Catalog, theirs: lakeseal.Catalog
) -> None:
    catalog.create("orders")
    catalog.create("stock")
    assert theirs.catalogs() == ["main"]
    assert theirs.schemas() == ["sales"]
    assert [str(one.name) for one in theirs.tables()] == ["main.sales.orders", "main.sales.stock"]
    assert [one.kind for one in theirs.tables("sales")] == ["catalog", "catalog"]
    assert theirs.show("sales.orders") == theirs.opened.names.resolve(theirs.show("sales.orders").name)
    theirs.drop("sales.stock")
    assert [str(one.name) for one in theirs.tables()] == ["main.sales.orders"]
    with pytest.raises(TableNotFound):
        theirs.table("sales.stock")
    with pytest.raises(SchemaNotFound):
        theirs.tables("nothing")
    with pytest.raises(UnsupportedFeature, match="rename"):
        theirs.rename("sales.orders", "sales.new")
    with pytest.raises(UnsupportedFeature, match="own way of granting"):
        theirs.grant("sales.orders", "reader", "0" * 12)
    with pytest.raises(UnsupportedFeature, match="kind filesystem"):
        theirs.create("sales.more", SCHEMA)
    with pytest.raises(UnsupportedFeature, match="location"):
        theirs.create("sales.more", SCHEMA, location=catalog.folder / "more", kind="catalog")
    with pytest.raises(InvalidArgument, match="several"):
        lakeseal.transaction(catalog=theirs)
    with pytest.raises(InvalidArgument, match="root"):
        lakeseal.Catalog(catalog.url, kind="unity", root="/tmp/x")


def test_a_name_that_means_another_table_by_now_is_not_written_to(catalog: Catalog, theirs: lakeseal.Catalog) -> None:
    catalog.create("orders")
    table = theirs.table("sales.orders")
    table.write(rows(1))
    theirs.drop("sales.orders")
    with pytest.raises(OwnedElsewhere, match="any more"):
        table.write(rows(2))
    other = lakeseal.create(catalog.folder / "other", SCHEMA, owner=catalog.owner, kind="catalog")
    lakeseal.Catalog(catalog.url, token=catalog.token).register("sales.orders", other.uri)
    with pytest.raises(OwnedElsewhere, match="another table"):
        table.write(rows(2))
    assert other.version() == 0


def test_a_policys_no_and_a_missing_role_are_typed_errors(catalogs: Any, tmp_path: Path) -> None:
    policy = {"policy": "allowed-principals", "principals": ["somebody"], "tables": f"file://{tmp_path}/orders"}
    with catalogs(tmp_path, policies=(policy,)) as catalog:
        owned = catalog.create("orders")
        stranger = catalog.login("writer", name="stranger")
        with pytest.raises(Refused, match="stranger"):
            lakeseal.Catalog(catalog.url, token=stranger, kind="unity").table("sales.orders").write(rows(1))
        reader = lakeseal.Catalog(catalog.url, token=catalog.login("reader"), kind="unity").table("sales.orders")
        assert ids(reader) == []
        with pytest.raises(NotAllowed, match="writer"):
            reader.write(rows(1))
        blind = lakeseal.Catalog(catalog.url, token=catalog.login("reader:/elsewhere"), kind="unity")
        with pytest.raises(TableNotFound):
            blind.table("sales.orders")
        with pytest.raises(NotAuthenticated):
            lakeseal.Catalog(catalog.url, token="lks_wrong", kind="unity").table("sales.orders")
        assert owned.version() == 0


def test_a_token_of_a_service_is_not_sent_to_somebody_elses_catalog(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.create("orders")
    monkeypatch.setenv("LAKESEAL_TOKEN", catalog.token)
    with pytest.raises(NotAuthenticated):
        lakeseal.Table("sales.orders", catalog=f"unity+{catalog.url}")
    monkeypatch.setenv("LAKESEAL_UNITY_TOKEN", catalog.token)
    assert lakeseal.Table("sales.orders", catalog=f"unity+{catalog.url}").version() == 0
    monkeypatch.setenv("LAKESEAL_CATALOG", f"unity+{catalog.url}")
    assert lakeseal.Table("sales.orders").version() == 0


def test_what_is_no_catalog_is_told_by_name() -> None:
    with faulty_proxy("http://127.0.0.1:9", lambda request: 302) as proxy, pytest.raises(InvalidUri, match="redirect"):
        lakeseal.Catalog(proxy.endpoint, kind="unity").catalogs()
    with faulty_proxy("http://127.0.0.1:9", lambda request: 418) as proxy, pytest.raises(StorageError, match="418"):
        lakeseal.Catalog(proxy.endpoint, kind="unity").catalogs()
    with pytest.raises(InvalidArgument, match="clear"):
        lakeseal.Catalog("http://catalog.example.com", token="x", kind="unity")


@pytest.mark.parametrize(
    ("commits", "latest", "wrong"),
    [
        ([(1, "../../../etc/passwd")], 1, "no such name"),
        ([(1, f"{2:020d}.{uuid.uuid4()}.json")], 1, "no such name"),
        ([(3, f"{3:020d}.{uuid.uuid4()}.json"), (1, f"{1:020d}.{uuid.uuid4()}.json")], 3, "newest first"),
        ([(1, f"{1:020d}.{uuid.uuid4()}.json")], 2, "newest first"),
    ],
)
def test_commits_that_no_catalog_may_tell_of_are_refused(
    catalog: Catalog, commits: list[tuple[int, str]], latest: int, wrong: str
) -> None:
    catalog.create("orders").write(rows(1))
    told = catalog.load("orders")
    staged = {"timestamp": 1, "file-size": 1, "file-modification-timestamp": 1}
    told["commits"] = [{**staged, "version": version, "file-name": name} for version, name in commits]
    told["latest-table-version"] = latest
    said = Reply(status=200, body=msgspec.json.encode(told))
    with faulty_proxy(catalog.url, lambda request: said) as proxy:
        table = lakeseal.Catalog(proxy.endpoint, token=catalog.token, kind="unity").table("sales.orders")
        with pytest.raises(InvalidMetadata, match=wrong):
            table.version()
