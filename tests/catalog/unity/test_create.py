"""Tables that other engines make: a place, version 0 by the engine itself, a name; what they repeat and get wrong."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import lakeseal
from lakeseal.catalog.names import CommitKind
from lakeseal.catalog.table_name import SchemaName, TableName
from lakeseal.clock import now_ms
from lakeseal.errors import StorageUnavailable
from support.unity_catalog import version_0, write_version

SCHEMA = "/delta/v1/catalogs/main/schemas/sales"


@pytest.fixture
def made(catalogs: Any, tmp_path: Path) -> Iterator[Any]:
    (tmp_path / "lake").mkdir()
    with catalogs(tmp_path, roots=(f"file://{tmp_path}/lake", f"file://{tmp_path}")) as catalog:
        catalog.service.names.create_schema(SchemaName(schema="sales"))
        yield catalog


def error(answer: Any) -> tuple[int, str]:
    said = answer.json()["error"]
    assert said["code"] == answer.status_code
    return answer.status_code, said["type"]


INVALID = (400, "InvalidParameterValueException")
TAKEN = (409, "AlreadyExistsException")


def stage(catalog: Any, name: str = "orders", **options: Any) -> dict[str, Any]:
    answer = catalog.ask("POST", SCHEMA + "/staging-tables", {"name": name}, **options)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def create(catalog: Any, staged: dict[str, Any], name: str = "orders", **more: Any) -> Any:
    token = more.pop("token", None)
    body = {"name": name, "location": staged["location"], "table-type": "MANAGED", "properties": {}, **more}
    return catalog.ask("POST", SCHEMA + "/tables", body, token=token)


def test_a_table_that_an_engine_makes_is_one_like_any_other(made: Any, tmp_path: Path) -> None:
    staged = stage(made)
    assert staged["location"] == f"file://{tmp_path}/lake/{staged['table-id']}"
    assert (staged["table-type"], staged["storage-credentials"]) == ("MANAGED", [])
    protocol = staged["required-protocol"]
    assert (protocol["min-reader-version"], protocol["min-writer-version"]) == (3, 7)
    assert {"catalogManaged", "inCommitTimestamp", "vacuumProtocolCheck"} <= set(protocol["writer-features"])
    assert {"catalogManaged", "vacuumProtocolCheck"} == set(protocol["reader-features"])
    assert staged["required-properties"]["io.unitycatalog.tableId"] == staged["table-id"]
    assert staged["required-properties"]["delta.enableInCommitTimestamps"] == "true"
    assert made.ask("GET", made.path("orders")).status_code == 404, "it has no name before it is there"
    write_version(staged, version_0(staged))
    answer = create(made, staged)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    assert told == made.load("orders")
    assert (told["metadata"]["table-uuid"], told["metadata"]["table-type"]) == (staged["table-id"], "MANAGED")
    assert (told["latest-table-version"], told["metadata"]["location"]) == (0, staged["location"])
    assert made.service.names.staged() == []
    table = lakeseal.Catalog(made.url, token=made.token).table("sales.orders")
    table.write(pa.table({"id": [1, 2]}))
    engine = made.duckdb()
    engine.execute("INSERT INTO c.sales.orders VALUES (3)")
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 3]
    engine.close()


def test_asked_again_it_is_the_same_answer_however_far_the_table_went(made: Any) -> None:
    staged = stage(made)
    write_version(staged, version_0(staged))
    first = create(made, staged).json()
    assert create(made, staged).json() == first
    hadoops = {"location": staged["location"].replace("file://", "file:") + "/"}
    assert create(made, staged, **hadoops).json() == first
    lakeseal.Catalog(made.url, token=made.token).table("sales.orders").write(pa.table({"id": [1]}))
    assert create(made, staged).json()["latest-table-version"] == 1


@pytest.mark.parametrize("step", ["begin_takeover", "settle", "register"])
@pytest.mark.parametrize("is_done", [False, True])
def test_what_stops_on_the_way_ends_when_it_is_asked_again(
    made: Any, monkeypatch: pytest.MonkeyPatch, step: str, is_done: bool
) -> None:
    staged = stage(made)
    write_version(staged, version_0(staged))
    whole = made.service.names if step == "register" else made.service.owner
    does = getattr(whole, step)

    def dies(*given: Any, **more: Any) -> Any:
        if is_done:
            does(*given, **more)
        raise StorageUnavailable("gone")

    with monkeypatch.context() as broken:
        broken.setattr(whole, step, dies)
        assert create(made, staged).status_code == 503
    answer = create(made, staged)
    assert answer.status_code == 200, answer.text
    assert made.service.names.resolve(TableName(schema="sales", table="orders")).table_id == staged["table-id"]
    assert made.service.names.staged() == []


def test_of_two_who_make_one_name_one_has_it(made: Any) -> None:
    both = [stage(made), stage(made)]
    for one in both:
        write_version(one, version_0(one))
    assert create(made, both[1]).status_code == 200
    for _ in range(2):
        assert error(create(made, both[0])) == TAKEN
    assert made.load("orders")["metadata"]["table-uuid"] == both[1]["table-id"]
    assert [one.table_id for one in made.service.names.staged()] == [both[0]["table-id"]]
    assert error(made.ask("POST", SCHEMA + "/staging-tables", {"name": "ORDERS"})) == TAKEN


def test_two_who_come_at_the_same_moment(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second comes when the first has looked whether the name is free, and is first to be named."""
    both = [stage(made), stage(made)]
    for one in both:
        write_version(one, version_0(one))
    names, does = made.service.names, made.service.names.register
    inner: list[Any] = []

    def overtaken(*given: Any, **more: Any) -> Any:
        if not inner:
            inner.append(None)
            inner.append(create(made, both[1]).status_code)
        return does(*given, **more)

    monkeypatch.setattr(names, "register", overtaken)
    assert error(create(made, both[0])) == TAKEN
    assert inner == [None, 200]
    assert made.load("orders")["metadata"]["table-uuid"] == both[1]["table-id"]


def without(feature: str) -> Any:
    def spoil(lines: list[dict[str, Any]]) -> None:
        for key in ("readerFeatures", "writerFeatures"):
            lines[1]["protocol"][key] = [one for one in lines[1]["protocol"][key] if one != feature]

    return spoil


def saying(key: str, text: str | None) -> Any:
    def spoil(lines: list[dict[str, Any]]) -> None:
        said = lines[2]["metaData"]["configuration"]
        said.pop(key) if text is None else said.update({key: text})

    return spoil


def add(path: str) -> dict[str, Any]:
    return {"add": {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}}


SPOILT: dict[str, Any] = {
    "no catalogManaged": without("catalogManaged"),
    "no inCommitTimestamp": without("inCommitTimestamp"),
    "no vacuumProtocolCheck": without("vacuumProtocolCheck"),
    "old protocol": lambda lines: lines[1].update(protocol={"minReaderVersion": 1, "minWriterVersion": 2}),
    "unknown feature": lambda lines: [lines[1]["protocol"][key].append("x") for key in list(lines[1]["protocol"])[2:]],
    "another id": saying("io.unitycatalog.tableId", str(uuid.uuid4())),
    "no id": saying("io.unitycatalog.tableId", None),
    "no timestamps": saying("delta.enableInCommitTimestamps", "false"),
    "another owner": saying("lakeseal.catalogOwner", "somebody"),
    "no owner": saying("lakeseal.catalogOwner", None),
    "another ledger": saying("lakeseal.catalogOwnerConf", '{"ledgerId":"x"}'),
    "no ledger": saying("lakeseal.catalogOwnerConf", None),
    "managed too": saying("delta.managedCommitOwnerName", "x"),
    "no metadata": lambda lines: lines.pop(2),
    "no protocol": lambda lines: lines.pop(1),
    "two metadata": lambda lines: lines.append(lines[2]),
    "no commitInfo": lambda lines: lines.pop(0),
    "commitInfo last": lambda lines: lines.append(lines.pop(0)),
    "no txnId": lambda lines: lines[0]["commitInfo"].pop("txnId"),
    "no timestamp": lambda lines: lines[0]["commitInfo"].pop("inCommitTimestamp"),
    "far future": lambda lines: lines[0]["commitInfo"].update(inCommitTimestamp=now_ms() + 10**10),
    "no schema": lambda lines: lines[2]["metaData"].update(schemaString="{"),
    "a file elsewhere": lambda lines: lines.append(add("../../elsewhere")),
    "a file of the log": lambda lines: lines.append(add("_delta_log/x")),
    "a file twice": lambda lines: lines.extend([add("x"), add("x")]),
}


@pytest.mark.parametrize("what", SPOILT)
def test_a_version_0_that_is_wrong_is_refused_and_can_be_put_right(made: Any, what: str) -> None:
    staged = stage(made)
    good = version_0(staged)
    spoilt = msgspec.json.decode(msgspec.json.encode(good))
    SPOILT[what](spoilt)
    write_version(staged, spoilt)
    assert error(create(made, staged))[0] == 400
    assert made.service.owner.book.row(staged["location"]).state.value == "none"
    write_version(staged, good)
    answer = create(made, staged)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("data", [b"", b"\n", b"\xff\xfe", b"[]", b"{" * 5000, b'{"commitInfo":{}}' + b"\0" * 10])
def test_bytes_that_are_no_commit_are_refused(made: Any, data: bytes) -> None:
    staged = stage(made)
    write_version(staged, data)
    assert error(create(made, staged)) == INVALID


def test_what_is_there_must_be_version_0_alone(made: Any) -> None:
    staged = stage(made)
    assert error(create(made, staged)) == INVALID, "nothing was written"
    lines = version_0(staged)
    log = write_version(staged, lines)
    write_version(staged, lines[:1], version=1)
    assert error(create(made, staged)) == INVALID
    (log / f"{1:020d}.json").unlink()
    for name in (f"{0:020d}.checkpoint.parquet", "_last_checkpoint"):
        (log / name).write_bytes(b"x")
        assert error(create(made, staged)) == INVALID
        (log / name).unlink()
    for name in (f".{0:020d}.json.crc", f"{0:020d}.crc"):
        (log / name).write_bytes(b"{}")
    assert create(made, staged).status_code == 200


def test_a_place_and_a_name_are_those_that_were_staged(made: Any, tmp_path: Path) -> None:
    staged, other = stage(made), stage(made, "others")
    write_version(staged, version_0(staged))
    write_version(other, version_0(staged))
    assert error(create(made, staged, "others")) == INVALID
    assert error(create(made, other, "others")) == INVALID, "the id of another"
    assert error(create(made, staged, **{"table-type": "EXTERNAL"})) == INVALID
    for place in ("file:///etc", f"file://{tmp_path}/lake/../x", "/etc", "", "memory://x"):
        assert create(made, {"location": place}).status_code == 400, place
    elsewhere = {**staged, "location": f"file://{tmp_path}/lake/{uuid.uuid4()}"}
    write_version(elsewhere, version_0(staged))
    assert error(create(made, elsewhere)) == INVALID
    made.service.names.stage(
        TableName(schema="sales", table="plain"),
        elsewhere["location"],
        CommitKind.FILESYSTEM,
        table_id=str(uuid.uuid4()),
    )
    assert error(create(made, elsewhere, "plain")) == INVALID
    assert create(made, staged).status_code == 200


def test_who_may_not_write_there_makes_nothing(made: Any, tmp_path: Path) -> None:
    staged = stage(made)
    write_version(staged, version_0(staged))
    for grant in ("reader", f"writer:file://{tmp_path}/else"):
        token = made.login(grant)
        assert made.ask("POST", SCHEMA + "/staging-tables", {"name": "x"}, token=token).status_code == 400
        assert create(made, staged, token=token).status_code == 400
    assert made.http.post(SCHEMA + "/staging-tables", json={"name": "x"}).status_code == 400
    assert len(made.service.names.staged()) == 1
    writer = made.login(f"writer:file://{tmp_path}/lake")
    assert create(made, staged, token=writer).status_code == 200
    assert create(made, stage(made, "x", token=writer), "x", token=writer).status_code == 400


def test_requests_that_make_no_sense_are_refused(made: Any) -> None:
    for body in ({}, [], {"name": ""}, {"name": "a.b"}, {"name": "x" * 300}, {"name": 1}, {"name": "a/b"}):
        assert made.ask("POST", SCHEMA + "/staging-tables", body).status_code == 400, body
        assert made.ask("POST", SCHEMA + "/tables", body).status_code == 400, body
    nowhere = SCHEMA.replace("sales", "nowhere")
    assert error(made.ask("POST", nowhere + "/staging-tables", {"name": "x"})) == (404, "NoSuchSchemaException")


def test_a_policy_decides_on_new_tables_too(catalogs: Any, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    policy = {"policy": "allowed-principals", "tables": f"file://{tmp_path}/lake", "principals": ["me"]}
    with catalogs(tmp_path, roots=(f"file://{tmp_path}/lake",), policies=(policy,)) as catalog:
        catalog.service.names.create_schema(SchemaName(schema="sales"))
        staged = stage(catalog)
        write_version(staged, version_0(staged))
        assert error(create(catalog, staged)) == INVALID
        assert create(catalog, staged, token=catalog.login("writer", name="me")).status_code == 200


def test_a_service_without_a_root_has_no_place_for_tables(catalog: Any) -> None:
    catalog.service.names.create_schema(SchemaName(schema="sales"))
    assert error(catalog.ask("POST", SCHEMA + "/staging-tables", {"name": "x"})) == INVALID


def test_credentials_come_with_a_place_and_a_table(catalogs: Any, tmp_path: Path, caplog: Any) -> None:
    (tmp_path / "lake").mkdir()
    root = f"file://{tmp_path}/lake"
    configured = ({"prefix": root, "operation": "READ_WRITE", "config": {"s3.access-key-id": "top-secret"}},)
    caplog.set_level("DEBUG")
    with catalogs(tmp_path, roots=(root,), credentials=configured) as catalog:
        catalog.service.names.create_schema(SchemaName(schema="sales"))
        staged = stage(catalog)
        (found,) = staged["storage-credentials"]
        assert (found["prefix"], found["operation"], found["config"]) == (root, "READ_WRITE", configured[0]["config"])
        assert found["expiration-time-ms"] > now_ms()
        begun = f"/delta/v1/staging-tables/{staged['table-id']}/credentials"
        assert [one["config"] for one in catalog.ask("GET", begun).json()["storage-credentials"]] == [found["config"]]
        assert error(catalog.ask("GET", begun, token=catalog.login("reader"))) == (404, "NoSuchTableException")
        new = f"/delta/v1/temporary-path-credentials?location={root}/new&operation="
        assert len(catalog.ask("GET", new + "READ_WRITE").json()["storage-credentials"]) == 1
        assert catalog.ask("GET", new + "READ_WRITE", token=catalog.login("reader")).status_code == 400
        write_version(staged, version_0(staged))
        assert create(catalog, staged).status_code == 200
        assert error(catalog.ask("GET", begun)) == (404, "NoSuchTableException")
        path = catalog.path("orders") + "/credentials?operation="
        assert len(catalog.ask("GET", path + "READ_WRITE").json()["storage-credentials"]) == 1
        assert catalog.ask("GET", path + "READ").json() == {"storage-credentials": []}
        reader = catalog.login("reader")
        assert catalog.ask("GET", path + "READ_WRITE", token=reader).status_code == 400
        assert catalog.ask("GET", path + "FLY").status_code == 400
    assert "top-secret" not in caplog.text
