"""The catalog's protocol by plain requests: what clients repeat, lose and get wrong, and who may not ask."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

import lakeseal
from lakeseal.catalog.names import CommitKind
from lakeseal.catalog.table_name import TableName
from lakeseal.errors import LakesealError, NotAuthenticated, Refused
from lakeseal.owner.publisher import Publisher
from lakeseal.protocol.paths import STAGED_COMMITS_DIR, commit_path
from lakeseal.service.unity_call import unity_error
from lakeseal.service.unity_calls import UNITY_CALLS
from lakeseal.storage import open_store
from support.unity_catalog import BASE, ERROR_TYPES


def error(answer: Any) -> tuple[int, str]:
    said = answer.json()["error"]
    assert said["code"] == answer.status_code
    return answer.status_code, said["type"]


CONFLICT = (409, "CommitVersionConflictException")
INVALID = (400, "InvalidParameterValueException")


def test_a_table_is_told_whole(catalog: Any) -> None:
    schema = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string())), ("m", pa.map_(pa.string(), pa.int32()))])
    table = catalog.create("orders", schema)
    told = catalog.load("orders")
    metadata = told["metadata"]
    assert (told["commits"], told["latest-table-version"], metadata["last-commit-version"]) == ([], 0, 0)
    assert metadata["table-uuid"] == metadata["properties"]["io.unitycatalog.tableId"]
    assert metadata["properties"]["delta.feature.catalogManaged"] == "supported"
    assert metadata["properties"]["delta.minReaderVersion"] == "3"
    assert metadata["table-type"] == "MANAGED"
    types = {field["name"]: field["type"] for field in metadata["columns"]["fields"]}
    assert types["tags"]["element-type"] == "string"
    assert (types["m"]["key-type"], types["m"]["value-type"]) == ("string", "integer")
    etag = metadata["etag"]
    table.write(pa.table({"id": [1], "tags": [["a"]], "m": [[("a", 1)]]}, schema=schema))
    again = catalog.load("orders")
    assert (again["metadata"]["etag"], again["latest-table-version"]) == (etag, 1)
    assert again["commits"] == [], "what only the ledger had is published before it is told"
    table.set_properties({"owner.team": "x"})
    after = catalog.load("orders")["metadata"]
    assert after["etag"] != etag
    assert after["properties"]["owner.team"] == "x"


def test_the_same_request_gets_the_same_answer_however_often(catalog: Any) -> None:
    table = catalog.create("orders")
    staged = catalog.stage("orders", 1, txn_id="t1")
    for _ in range(3):
        answer = catalog.commit("orders", staged)
        assert answer.status_code == 200, answer.text
        assert answer.json()["latest-table-version"] == 1
    other_file = catalog.stage("orders", 1, txn_id="t1")
    assert catalog.commit("orders", other_file).status_code == 200
    assert error(catalog.commit("orders", catalog.stage("orders", 1, txn_id="t2"))) == CONFLICT
    assert table.version() == 1
    assert len(table.files()) == 1


def test_a_repeated_request_is_answered_after_the_metadata_changed_and_the_file_is_gone(catalog: Any) -> None:
    table = catalog.create("orders")
    etag = catalog.load("orders")["metadata"]["etag"]
    staged = catalog.stage("orders", 1)
    required = {"type": "assert-etag", "etag": etag}
    assert catalog.commit("orders", staged, required).status_code == 200
    table.set_properties({"a": "b"})
    assert catalog.commit("orders", staged, required).status_code == 200
    store = open_store(catalog.folder / "orders")
    store.delete(store.list_keys(STAGED_COMMITS_DIR))
    assert catalog.commit("orders", staged, required).status_code == 200
    assert error(catalog.commit("orders", catalog.stage("orders", 3), required)) == (
        409,
        "UpdateRequirementConflictException",
    )


def test_a_transaction_that_has_a_version_is_told_which_when_it_asks_for_another(catalog: Any) -> None:
    catalog.create("orders")
    assert catalog.commit("orders", catalog.stage("orders", 1, txn_id="mine")).status_code == 200
    assert catalog.commit("orders", catalog.stage("orders", 2, txn_id="theirs")).status_code == 200
    for version in (2, 3):
        answer = catalog.commit("orders", catalog.stage("orders", version, txn_id="mine"))
        assert error(answer) == INVALID
        assert "version 1" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "name",
    [
        "../00000000000000000001.json",
        "00000000000000000001.json",
        "x/00000000000000000001.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json",
        "../../_commits/00000000000000000001.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json",
        "00000000000000000002.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json",
        "00000000000000000001.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json\0",
        "",
    ],
)
def test_a_file_that_is_no_staged_commit_of_this_version_is_refused(catalog: Any, name: str) -> None:
    table = catalog.create("orders")
    staged = {**catalog.stage("orders", 1), "file-name": name}
    assert error(catalog.commit("orders", staged)) == INVALID
    assert table.version() == 0


def test_what_a_staged_file_holds_is_looked_at(catalog: Any) -> None:
    table = catalog.create("orders")
    good = catalog.stage("orders", 1)
    wrong = [
        {**good, "file-size": good["file-size"] + 1},
        {**good, "timestamp": good["timestamp"] + 1},
        {**good, "file-name": f"{1:020d}.{uuid.uuid4()}.json"},
        catalog.stage_bytes("orders", 1, b'{"add":{}}\n', 1),
        catalog.stage_bytes("orders", 1, b"\xff\xfe", 1),
        catalog.stage_bytes("orders", 1, b"", 1),
        catalog.stage("orders", 1, path="../../elsewhere"),
        catalog.stage("orders", 1, info={"txnId": None}),
        catalog.stage("orders", 1, info={"inCommitTimestamp": None}),
        catalog.stage("orders", 1, timestamp=5),
    ]
    for staged in wrong:
        assert catalog.commit("orders", staged).status_code == 400, staged
    assert error(catalog.commit("orders", catalog.stage("orders", 2))) == INVALID, "it follows from nothing"
    assert table.version() == 0
    assert catalog.commit("orders", good).status_code == 200


def test_a_report_of_what_is_published_is_a_hint_and_no_more(catalogs: Any, tmp_path: Path) -> None:
    with catalogs(tmp_path, publish_every_s=3600.0) as catalog:
        catalog.create("orders")
        assert catalog.commit("orders", catalog.stage("orders", 1)).status_code == 200
        report = {"updates": [{"action": "set-latest-backfilled-version", "latest-published-version": 1}]}
        answer = catalog.ask("POST", catalog.path("orders"), report)
        assert [one["version"] for one in answer.json()["commits"]] == [1], "nobody published it"
        store = open_store(tmp_path / "orders")
        (key,) = store.list_keys(STAGED_COMMITS_DIR)
        store.put(commit_path(1), store.get(key).rstrip(b"\n"))
        catalog.service.owner.publish(store.uri)
        assert catalog.load("orders")["commits"] == []


def test_requests_that_make_no_sense_are_refused(catalog: Any) -> None:
    catalog.create("orders")
    path = catalog.path("orders")
    for body in (
        {},
        {"updates": []},
        {"updates": [{"action": "fly"}]},
        {"updates": [{"action": "add-commit"}]},
        {"updates": [{"action": "set-properties"}]},
        {"updates": [{"action": "add-commit", "commit": catalog.stage("orders", 1)}] * 2},
        {"requirements": [{"type": "assert-weather"}], "updates": [{"action": "set-latest-backfilled-version"}]},
        {"updates": [{"action": "add-commit", "commit": {"version": -1}}]},
        [],
    ):
        assert error(catalog.ask("POST", path, body)) == INVALID, body


def test_what_the_protocol_does_not_have_is_not_there_in_its_own_form(catalog: Any) -> None:
    table = catalog.path("orders")
    for method, path in (
        ("GET", ""),
        ("GET", "/nothing"),
        ("POST", "/delta/v2/config"),
        ("DELETE", "/volumes/main.sales.x"),
        ("POST", "/delta/v1/config"),
        ("PUT", table),
        ("PATCH", "/tables/main.sales.orders"),
        ("GET", "/tables/"),
        ("DELETE", f"{table.removesuffix('orders')}"),
    ):
        assert error(catalog.ask(method, path)) == (404, "NotFoundException"), (method, path)
    assert catalog.ask("HEAD", "/schemas").status_code == 404
    beside = httpx.get(f"{catalog.url}{BASE}s/tables")
    assert beside.json()["error"]["kind"] == "not-found", "the rest of the service has its own form"


@pytest.mark.parametrize("decides", [True, False])
def test_every_error_has_a_type_that_the_protocol_lists(decides: bool) -> None:
    kinds = [LakesealError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert len(kinds) > 60
    told = {kind: unity_error(kind("x"), decides=decides).error for kind in kinds}
    assert {kind for kind, said in told.items() if said.type not in ERROR_TYPES} == set()
    passing = {kind for kind, said in told.items() if issubclass(kind, Refused) and said.code not in (400, 404, 409)}
    assert passing == (set() if decides else {NotAuthenticated}), "what is refused is not asked for again"


def test_a_wrong_token_is_final_where_something_is_decided(catalog: Any) -> None:
    calls = UNITY_CALLS[:12]  # whoever guesses on is told to wait
    assert {call.decides for call in calls} == {True, False}
    for call in calls:
        answer = catalog.ask(call.method, re.sub(r"{\w+}", "x", call.route), token="lks_wrong")
        assert answer.status_code == (400 if call.decides else 401), call.name
        if call.method != "HEAD":
            assert error(answer)[1] == "NotAuthorizedException"


def test_what_a_role_does_not_allow_is_final_for_every_call(catalogs: Any, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    with catalogs(tmp_path, roots=(f"file://{tmp_path}/lake", f"file://{tmp_path}")) as catalog:
        catalog.create("orders")
        table, reader = catalog.path("orders"), catalog.login("reader")
        place = f"file://{tmp_path}/lake/new"
        commit = {"updates": [{"action": "add-commit", "commit": catalog.stage("orders", 1)}]}
        for method, path, body in (
            ("GET", f"{table}/credentials?operation=READ_WRITE", None),
            ("GET", f"/delta/v1/temporary-path-credentials?location={place}&operation=READ_WRITE", None),
            ("POST", table, commit),
            ("DELETE", table, None),
            ("POST", f"{table}/rename", {"new-name": "sold"}),
            ("POST", table.replace("tables/orders", "tables"), {"name": "new", "location": place}),
            ("POST", table.replace("tables/orders", "staging-tables"), {"name": "new"}),
            ("POST", "/schemas", {"name": "more", "catalog_name": "main"}),
        ):
            answer = catalog.ask(method, path, body, token=reader)
            assert error(answer) == (400, "PermissionDeniedException"), (method, path)
        assert catalog.ask("GET", f"{table}/credentials?operation=READ", token=reader).status_code == 200


def test_a_table_that_is_not_a_catalogs_is_shown_and_takes_no_commits(catalog: Any) -> None:
    table = catalog.create("plain", kind="managed")
    table.write(pa.table({"id": [1], "s": ["a"]}))
    told = catalog.load("plain")
    assert told["metadata"]["table-type"] == "EXTERNAL"
    assert (told["commits"], told["latest-table-version"]) == ([], 1)
    assert error(catalog.commit("plain", catalog.stage("plain", 2))) == INVALID
    assert table.version() == 1


def test_lists_come_in_pages_and_show_what_the_caller_may_read(catalog: Any) -> None:
    for name in ("a", "b", "c"):
        catalog.create(name)
    schemas = catalog.ask("GET", "/schemas?catalog_name=main").json()["schemas"]
    assert [(one["name"], one["properties"]) for one in schemas] == [("sales", {})]
    seen, token = [], ""
    while True:
        page = catalog.ask(
            "GET", f"/tables?catalog_name=main&schema_name=sales&max_results=2&page_token={token}"
        ).json()
        seen += [one["name"] for one in page["tables"]]
        token = page["next_page_token"]
        if not token:
            break
    assert seen == ["a", "b", "c"]
    info = catalog.ask("GET", "/tables/main.sales.a").json()
    assert [(one["name"], one["type_name"], one["type_text"]) for one in info["columns"]] == [
        ("id", "LONG", "bigint"),
        ("s", "STRING", "string"),
    ]
    some = catalog.login(f"reader:file://{catalog.folder}/b")
    shown = catalog.ask("GET", "/tables?catalog_name=main&schema_name=sales", token=some).json()["tables"]
    assert [one["name"] for one in shown] == ["b"]
    assert error(catalog.ask("GET", catalog.path("a"), token=some)) == (404, "NoSuchTableException")
    assert error(catalog.commit("b", catalog.stage("b", 1), token=some))[0] == 400
    assert catalog.ask("GET", "/schemas", token=some).status_code == 400
    assert error(catalog.ask("GET", "/schemas/main.nowhere")) == (404, "NoSuchSchemaException")
    assert catalog.http.get(catalog.path("a")).status_code == 401


def test_the_small_calls(catalog: Any) -> None:
    catalog.create("orders")
    assert catalog.ask("HEAD", catalog.path("orders")).status_code == 204
    assert catalog.ask("HEAD", catalog.path("nothing")).status_code == 404
    assert catalog.ask("POST", catalog.path("orders") + "/metrics", {"x": 1}).status_code == 204
    assert catalog.ask("GET", catalog.path("orders") + "/credentials?operation=READ").json() == {
        "storage-credentials": []
    }
    assert catalog.ask("GET", "/delta/v1/config").json()["protocol-version"] == "1.0"
    assert catalog.ask("GET", "/metastore_summary").json()["metastore_id"]
    assert catalog.ask("POST", catalog.path("orders") + "/rename", {"new-name": "sold"}).status_code == 204
    assert catalog.ask("HEAD", catalog.path("orders")).status_code == 404
    reader = catalog.login("reader")
    for method, path in (("DELETE", catalog.path("sold")), ("DELETE", "/tables/main.sales.sold")):
        assert error(catalog.ask(method, path, token=reader))[0] == 400, "a reader takes no name away"
    assert catalog.ask("DELETE", catalog.path("sold")).status_code == 204
    catalog.register("orders", lakeseal.Table(catalog.folder / "orders", owner=catalog.owner))
    assert error(catalog.ask("DELETE", "/schemas/main.sales"))[0] == 400, "there is a table in it"
    assert catalog.ask("DELETE", "/tables/main.sales.orders").status_code == 200
    assert error(catalog.ask("GET", catalog.path("orders"))) == (404, "NoSuchTableException")
    assert (catalog.folder / "orders").exists()
    assert catalog.ask("DELETE", "/schemas/main.sales").status_code == 200
    assert error(catalog.ask("GET", "/schemas/main.sales")) == (404, "NoSuchSchemaException")


def test_the_config_names_what_is_served(catalog: Any) -> None:
    endpoints = catalog.ask("GET", "/delta/v1/config").json()["endpoints"]
    assert set(endpoints) == {f"{call.method} {call.route}" for call in UNITY_CALLS}
    assert len(endpoints) == len(set(endpoints)) == 24
    for one in endpoints:
        method, _, route = one.partition(" ")
        answer = catalog.ask(method, re.sub(r"{\w+}", "x", route), {})
        assert "no such call" not in answer.text, one
        assert method != "HEAD" or answer.status_code == 404


def test_the_metastore_is_the_ledger_by_its_identity(catalog: Any) -> None:
    told = catalog.ask("GET", "/metastore_summary").json()
    assert told == {"metastore_id": catalog.service.identity}
    assert told["metastore_id"]


def test_catalogs_and_schemas_are_told_one_by_one_and_in_pages(catalog: Any) -> None:
    for name in ("a", "b", "c"):
        assert catalog.ask("POST", "/schemas", {"name": name, "catalog_name": "main"}).status_code == 200
    assert catalog.ask("GET", "/catalogs/main").json() == {"name": "main", "id": "main", "properties": {}}
    assert error(catalog.ask("GET", "/catalogs/other")) == (404, "NoSuchSchemaException")
    seen, token, pages = [], "", 0
    while token is not None:
        page = catalog.ask("GET", f"/schemas?catalog_name=main&max_results=2&page_token={token}").json()
        seen += [one["full_name"] for one in page["schemas"]]
        token, pages = page["next_page_token"], pages + 1
    assert (seen, pages) == (["main.a", "main.b", "main.c"], 2)
    assert error(catalog.ask("GET", "/schemas?catalog_name=main&max_results=x")) == INVALID


def test_a_commit_whose_outcome_nobody_knows_is_said_to_be_that(catalog: Any) -> None:
    """Of a version from before the owner, by a file that is not there any more: it may have been this one."""
    table = lakeseal.create(catalog.folder / "orders", pa.schema([("id", pa.int64())]))
    table.write(pa.table({"id": [1]}))
    table.take_over(catalog.owner, kind="catalog")
    catalog.register("orders", table)
    staged = catalog.stage("orders", 1)
    (catalog.folder / "orders" / STAGED_COMMITS_DIR / staged["file-name"]).unlink()
    assert error(catalog.commit("orders", staged)) == (500, "CommitStateUnknownException")
    assert table.version() == 2


def test_what_an_update_says_beside_the_file_is_not_believed(catalog: Any) -> None:
    table = catalog.create("orders")
    before = catalog.load("orders")["metadata"]
    said = [
        {"action": "add-commit", "commit": catalog.stage("orders", 1)},
        {"action": "set-properties", "updates": {"delta.appendOnly": "true", "io.unitycatalog.tableId": "another"}},
        {"action": "remove-properties", "removals": ["delta.enableInCommitTimestamps"]},
        {"action": "set-columns", "columns": {"type": "struct", "fields": []}},
    ]
    answer = catalog.ask("POST", catalog.path("orders"), {"updates": said})
    assert answer.status_code == 200
    after = answer.json()["metadata"]
    assert (after["properties"], after["columns"]) == (before["properties"], before["columns"])
    assert (after["etag"], after["last-commit-version"]) == (before["etag"], 1)
    assert table.snapshot().properties.append_only is False


def test_checksums_that_a_clients_store_leaves_are_no_part_of_what_it_published(catalogs: Any, tmp_path: Path) -> None:
    with catalogs(tmp_path, publish_every_s=3600.0) as catalog:
        table = catalog.create("orders")
        log = tmp_path / "orders" / "_delta_log"
        for version in (0, 1, 2, 7):  # Hadoop's, of a version that is there, that is about to be, and of none
            (log / f".{version:020d}.json.crc").write_bytes(b"crc")
        staged = catalog.stage("orders", 1)
        assert catalog.commit("orders", staged).status_code == 200
        (log / f"{1:020d}.json").write_bytes((log / "_staged_commits" / staged["file-name"]).read_bytes())
        report = {"action": "set-latest-backfilled-version", "latest-published-version": 1}
        commit = {"action": "add-commit", "commit": catalog.stage("orders", 2)}
        assert catalog.ask("POST", catalog.path("orders"), {"updates": [commit, report]}).status_code == 200
        catalog.service.owner.publish(table.uri)
        assert catalog.load("orders")["commits"] == []
        assert table.version() == 2
        assert (log / f"{2:020d}.json").exists()
        table.release()
        assert lakeseal.Table(tmp_path / "orders").version() == 3, "nor when its log alone counts"


def test_clients_of_the_preview_commit_by_id_and_place(catalogs: Any, tmp_path: Path) -> None:
    with catalogs(tmp_path, publish_every_s=3600.0) as catalog:
        table = catalog.create("old", kind="coordinated")
        table_id = table.snapshot().properties.catalog_table_id
        asked = {"table_id": table_id, "table_uri": f"file:{tmp_path}/old"}
        path = "/delta/preview/commits"
        staged = catalog.stage("old", 1)
        name = staged["file-name"]
        info = {key.replace("-", "_"): value for key, value in staged.items()}
        for _ in range(2):
            assert catalog.ask("POST", path, {**asked, "commit_info": info}).json() == {}
        told = catalog.ask("GET", path, {**asked, "start_version": 0}).json()
        assert (told["latest_table_version"], [one["file_name"] for one in told["commits"]]) == (1, [name])
        assert told["commits"][0] == info
        other = {key.replace("-", "_"): value for key, value in catalog.stage("old", 1).items()}
        assert error(catalog.ask("POST", path, {**asked, "commit_info": other})) == CONFLICT
        later = {key.replace("-", "_"): value for key, value in catalog.stage("old", 3).items()}
        assert error(catalog.ask("POST", path, {**asked, "commit_info": later})) == INVALID, "2 is not there"
        second = {key.replace("-", "_"): value for key, value in catalog.stage("old", 2).items()}
        assert catalog.ask("POST", path, {**asked, "commit_info": second}).json() == {}
        for start, end, versions in ((0, 1, [1]), (2, 2, [2]), (0, 9, [1, 2]), (2, 1, []), (0, 0, [])):
            told = catalog.ask("GET", path, {**asked, "start_version": start, "end_version": end}).json()
            assert [one["version"] for one in told["commits"]] == versions, (start, end)
            assert told["latest_table_version"] == 2
        heard: list[str] = []
        catalog.service.unity.when_published = heard.append
        assert catalog.ask("POST", path, {**asked, "latest_backfilled_version": 0}).json() == {}
        assert heard == [], "the ledger knows it already"
        assert catalog.ask("POST", path, {**asked, "latest_backfilled_version": 1}).json() == {}
        assert heard == [table.uri]
        elsewhere = {**asked, "table_uri": f"file:{tmp_path}/elsewhere"}
        assert catalog.ask("GET", path, elsewhere).status_code == 404
        assert catalog.ask("GET", path, {**asked, "table_id": str(uuid.uuid4())}).status_code == 404
        assert table.version() == 2


def test_a_table_that_was_taken_over_by_its_place_is_found_by_what_its_log_calls_it(catalog: Any) -> None:
    table = lakeseal.create(catalog.folder / "old", pa.schema([("id", pa.int64())]))
    named = catalog.service.names.register(TableName(schema="sales", table="old"), table.uri, CommitKind.FILESYSTEM)
    table.take_over(catalog.owner, kind="catalog")
    known = table.snapshot().properties.catalog_table_id
    assert known != named.table_id
    assert catalog.load("old")["metadata"]["table-uuid"] == known
    asked = {"table_uri": table.uri, "start_version": 0}
    for table_id in (known, named.table_id):
        told = catalog.ask("GET", "/delta/preview/commits", {**asked, "table_id": table_id}).json()
        assert told["latest_table_version"] == 1


def test_a_report_of_what_a_client_published_gives_the_table_its_turn(catalogs: Any, tmp_path: Path) -> None:
    with catalogs(tmp_path, publish_every_s=3600.0) as catalog:
        owner, uri = catalog.service.owner, f"file://{tmp_path}/orders"
        publisher, heard = Publisher(owner, every_s=3600.0, alone=True), []
        catalog.service.unity.when_published = heard.append
        catalog.create("orders")
        # The first round, and the last one for an hour.
        catalog.service._recovery.join()
        catalog.service._publisher.stop()
        staged = catalog.stage("orders", 1)
        assert catalog.commit("orders", staged).status_code == 200
        report = {"updates": [{"action": "set-latest-backfilled-version", "latest-published-version": 0}]}
        assert catalog.ask("POST", catalog.path("orders"), report).status_code == 200
        assert heard == [], "the ledger knows it already"
        report["updates"][0]["latest-published-version"] = 1
        assert catalog.ask("POST", catalog.path("orders"), report).status_code == 200
        assert heard == [uri]
        assert publisher.run_once(only_full=True).tables == 0
        publisher.notify(uri)
        assert publisher.run_once(only_full=True).tables == 1
        assert catalog.load("orders")["commits"] == []
        assert publisher.run_once(only_full=True).tables == 0


def test_limits_are_those_of_all_calls_and_told_as_clients_know_them(catalogs: Any, tmp_path: Path) -> None:
    with catalogs(tmp_path / "rate", rate=5) as catalog:
        catalog.create("orders")
        answers = [catalog.ask("GET", catalog.path("orders")) for _ in range(30)]
        refused = [answer for answer in answers if answer.status_code != 200]
        assert error(refused[0]) == (429, "ResourceExhaustedException"), "which clients wait for, and repeat"
        assert refused[0].headers["retry-after"] == "1"
    with catalogs(tmp_path / "body", max_body=20_000) as catalog:
        catalog.create("orders")
        large = {"updates": [{"action": "set-properties", "updates": {"x": "x" * 20_000}}]}
        assert error(catalog.ask("POST", catalog.path("orders"), large)) == INVALID, "it would not get smaller"
    with catalogs(tmp_path / "publish", most_unbackfilled=2, publish_every_s=3600.0) as catalog:
        table = catalog.create("orders")
        catalog.service.owner.publish(table.uri)
        for version in (1, 2):
            assert catalog.commit("orders", catalog.stage("orders", version)).status_code == 200
        store = open_store(tmp_path / "publish" / "orders")
        store.put_if_absent(commit_path(1), b"{}\n")  # by somebody else, so that nothing can be published
        answer = catalog.commit("orders", catalog.stage("orders", 3))
        assert error(answer) == (429, "ResourceExhaustedException")
        assert table.version() == 2


def test_an_engines_commits_are_in_the_log_the_numbers_and_the_pages(
    catalog: Any, caplog: pytest.LogCaptureFixture
) -> None:
    table, old = catalog.create("orders"), catalog.create("old", kind="coordinated")
    finished = catalog.service.finished
    before = len(finished.last())
    caplog.set_level("INFO", "lakeseal.service.requests")
    assert catalog.commit("orders", catalog.stage("orders", 1)).status_code == 200
    assert catalog.commit("orders", catalog.stage("orders", 1)).status_code == 409
    info = {key.replace("-", "_"): value for key, value in catalog.stage("old", 1).items()}
    asked = {"table_id": old.snapshot().properties.catalog_table_id, "table_uri": old.uri, "commit_info": info}
    assert catalog.ask("POST", "/delta/preview/commits", asked).status_code == 200
    catalog.load("orders")  # a request has its line when the next one of its connection comes
    lines = [one for one in caplog.records if getattr(one, "call", "") in ("commit_table", "post_preview_commit")]
    assert [(one.status, one.error) for one in lines] == [(200, None), (409, "concurrent-write"), (200, None)]
    assert lines[0].table == "main.sales.orders"
    done = [one for one in finished.last()[before:] if one.call != "get_commits"]
    assert [(one.who, one.tables, one.versions, one.conflicts) for one in done] == [
        ("somebody", (table.uri,), (1,), 0),
        ("somebody", (table.uri,), (), 1),
        ("somebody", (old.uri,), (1,), 0),
    ]
    numbers = httpx.get(catalog.url + "/metrics", headers={"Authorization": f"Bearer {catalog.token}"}).text
    found = dict(line.rsplit(" ", 1) for line in numbers.splitlines() if not line.startswith("#"))
    assert (found["lakeseal_commits_total"], found["lakeseal_conflicts_total"]) == ("2.0", "1.0")
