"""The owner over HTTP keeps every promise that it keeps in process."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import lakeseal
from contracts.endpoint_contract import OwnerEndpointContract
from contracts.owner_contract import CommitOwnerContract, OwnedTable
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import AlreadyExists, OwnedElsewhere, PolicyRefused, VersionNotFound
from lakeseal.log.delta_log import DeltaLog
from lakeseal.owner.config import OwnerConfig
from lakeseal.owner.connect import connect
from lakeseal.owner.handover import release, take_over
from lakeseal.owner.managed_owner import ManagedOwner
from lakeseal.owner.messages import Batch
from lakeseal.owner.snapshots import snapshots
from lakeseal.owner.transaction import Transaction
from lakeseal.service.client import HttpOwner
from lakeseal.storage import Store, open_store
from models.history import check_history
from support.managed_tables import WRITE, add, append, create, managed_log, metadata, newest, paths


@pytest.fixture(params=["open_service", "postgres_service"])
def service(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture
def owner(service) -> HttpOwner:
    return service.owner()


class TestHttpOwner(CommitOwnerContract):
    @pytest.fixture
    def owned(self, owner: HttpOwner, table: Store) -> OwnedTable:
        return OwnedTable(ManagedOwner(owner, table), table)


class TestHttpEndpoint(OwnerEndpointContract):
    @pytest.fixture
    def endpoint(self, inside) -> Iterator[HttpOwner]:
        # The publisher's second round never comes.
        with inside(insecure=True, rate=0, batch_size=1000, publish_every_s=10.0**6) as client:
            owner = HttpOwner(str(client.base_url))
            yield owner
            owner.close()

    @pytest.fixture
    def stores(self, tmp_path: Path) -> list[Store]:
        return [open_store(tmp_path / name) for name in "abc"]


def test_a_table_is_taken_over_written_and_released_over_http(owner: HttpOwner, table: Store) -> None:
    log, files = create(table)
    append(log, files, "before")
    assert take_over(owner, table) == 2
    with pytest.raises(AlreadyExists):
        take_over(owner, table)
    log, managed = managed_log(owner, table)
    assert append(log, managed, "managed").version == 3
    assert release(owner, table) == 4
    assert owner.get_commits(table.uri).state == "none"
    with pytest.raises(OwnedElsewhere):
        append(log, managed, "late")
    assert newest(table) == 4
    assert paths(DeltaLog(table)) == ["before", "managed"]
    check_history(table)


def test_several_tables_commit_as_one_and_are_read_as_one(owner: HttpOwner, tmp_path: Path) -> None:
    stores = [open_store(tmp_path / name) for name in ("a", "b", "c")]
    for store in stores:
        create(store, owner)
    txn = Transaction(owner)
    txn.table(stores[0]).commit([add("x")], WRITE)
    txn.table(stores[1]).commit([add("y")], WRITE)
    txn.table(stores[2]).read_whole_table()
    assert [one.version for one in txn.commit().tables.values()] == [1, 1]
    assert [one.version for one in snapshots(owner, stores)] == [1, 1, 0]


def test_a_table_writes_and_reads_through_the_service_by_its_address(service, tmp_path: Path) -> None:
    uri, rows = str(tmp_path / "orders"), pa.table({"id": [1, 2, 3]})
    orders = lakeseal.Table(uri, owner=service.url)
    orders.write(rows)
    orders.write(rows)
    assert orders.version() == 1
    assert lakeseal.Table(uri, owner=service.url).to_arrow().num_rows == 6
    assert orders.release() == 2
    orders.write(rows)
    assert lakeseal.Table(uri).to_arrow().num_rows == 9
    assert orders.take_over(service.url) == 4


def test_errors_arrive_as_what_they_were(owner: HttpOwner, table: Store) -> None:
    create(table, owner)
    managed = ManagedOwner(owner, table)
    with pytest.raises(VersionNotFound) as missing:
        owner.backfill(table.uri, 7)
    assert (missing.value.version, missing.value.table) == (7, table.uri)
    with pytest.raises(AlreadyExists):
        owner.drop(table.uri)
    request = managed.request(1, b'{"commitInfo":{"txnId":"t","inCommitTimestamp":9000000000000}}\n', txn_id="t")
    smuggled = b'{"metaData":{"id":"x","format":{"provider":"parquet","options":{}},"schemaString":"{}",'
    smuggled += b'"partitionColumns":[],"configuration":{}}}\n'
    data = (request.data or b"") + smuggled
    with pytest.raises(PolicyRefused, match="no owner") as refused:
        owner.ratify(Batch(commits=(msgspec.structs.replace(request, data=data, size=len(data)),)))
    assert refused.value.policy == "ownership"
    assert newest(table, owner) == 0


def test_a_commit_too_large_for_a_request_is_ratified_by_name(owner: HttpOwner, table: Store) -> None:
    log, managed = create(table, owner)
    append(log, managed, *(f"file-{number}" for number in range(500)))
    owner.backfill(table.uri)
    assert len(paths(DeltaLog(table))) == 500


def test_a_changed_schema_and_properties_go_through_the_service(owner: HttpOwner, table: Store) -> None:
    log, managed = create(table, owner)
    txn = OptimisticTransaction.begin(log, managed)
    txn.update_metadata(metadata(appendOnly="true"))
    txn.commit([], Operation(name="SET TBLPROPERTIES"))
    assert newest(table, owner) == 1


def test_connect_gives_the_client_of_a_service(service) -> None:
    owner = connect(service.url)
    assert isinstance(owner, HttpOwner)
    assert (owner.name, owner.batch_size, owner.inline_bytes) == ("lakeseal", 10, 8192)
    assert connect(OwnerConfig(url=service.url, name="lakeseal")).name == "lakeseal"
    owner.close()


def tables_told(client: Any, call: str, asked: dict[str, Any]) -> list[dict[str, Any]]:
    """What is answered on the wire."""
    answer = client.post(f"/v1/{call}", json=asked).json()
    return answer if isinstance(answer, list) else [answer]


def test_whoever_takes_no_bytes_is_told_of_commits_once_they_are_files(inside, table: Store) -> None:
    with inside(insecure=True, rate=0, batch_size=1000, publish_every_s=10.0**6) as client:
        owner = HttpOwner(str(client.base_url))
        log, managed = create(table, owner)
        append(log, managed, "f")
        for call, asked in (("get-commits", {"table": table.uri}), ("get-commits-of", {"tables": [table.uri]})):
            append(log, managed, f"more-{call}")
            [known] = tables_told(client, call, {**asked, "takes_data": True})
            key = f"_delta_log/{known['latest']:020}.json"
            data = base64.b64decode(known["commits"][-1]["data"])
            assert key not in table.list_keys("_delta_log/"), "it is in the ledger only"
            [told] = tables_told(client, call, asked)
            assert (told["latest"], told["commits"]) == (known["latest"], [])
            assert table.get(key) == data
        owner.close()


def test_what_cannot_be_published_is_not_told_of_to_whoever_takes_no_bytes(inside, table: Store) -> None:
    with inside(insecure=True, rate=0, batch_size=1000, publish_every_s=10.0**6) as client:
        owner = HttpOwner(str(client.base_url))
        log, managed = create(table, owner)
        append(log, managed, "f")
        root = Path(table.uri.removeprefix("file://"))
        root.rename(root.with_name("away"))
        answer = client.post("/v1/get-commits", json={"table": table.uri})
        assert answer.json()["error"]["kind"] == "table-vanished"
        root.with_name("away").rename(root)
        assert client.post("/v1/get-commits", json={"table": table.uri}).json()["latest"] == 1
        owner.close()
