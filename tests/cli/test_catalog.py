from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeseal.clock import now_ms
from lakeseal.ledger import open as open_ledger
from lakeseal.service import tokens
from lakeseal.service.access import Grant

Run = Callable[..., Any]


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("LAKESEAL_CATALOG", raising=False)
    monkeypatch.delenv("LAKESEAL_CATALOG_ROOT", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    return f"sqlite:///{tmp_path}/catalog.db"


def test_a_table_goes_through_its_life_by_its_name(lakeseal: Run, catalog: str, tmp_path: Path) -> None:
    where = ("--catalog", catalog, "--json")
    made = lakeseal("catalog", "create", "sales.orders", "-c", "id bigint", "--kind", "managed", *where)
    assert made.err == ""
    (shown,) = made.rows
    assert (shown["name"], shown["kind"]) == ("main.sales.orders", "managed")
    assert lakeseal("catalog", "show", "SALES.orders", *where).rows == [shown]
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int64())}), tmp_path / "rows.parquet")
    written = lakeseal("write", "sales.orders", str(tmp_path / "rows.parquet"), *where)
    assert (written.code, written.err) == (0, "")
    assert [row["id"] for row in lakeseal("read", "sales.orders", *where).rows] == [1, 2]
    for command in ("history", "files", "schema", "describe"):
        assert lakeseal(command, "sales.orders", *where).rows
    assert lakeseal("delete", "sales.orders", "--where", "id = 1", *where).rows[0]["committed"]
    assert lakeseal("update", "sales.orders", "--set", "id=3", *where).rows[0]["committed"]
    assert lakeseal("optimize", "sales.orders", *where).code == 0
    assert lakeseal("vacuum", "sales.orders", "--dry-run", *where).code == 0
    assert lakeseal("restore", "sales.orders", "--version", "1", *where).rows[0]["committed"]
    assert lakeseal("clone", "sales.orders", str(tmp_path / "copy"), *where).rows[0]["version"] == 0
    assert lakeseal("catalog", "rename", "sales.orders", "lake.old.orders", *where).rows[0]["id"] == shown["id"]
    (copied,) = lakeseal("catalog", "register", "sales.copy", str(tmp_path / "copy"), *where).rows
    assert uuid.UUID(copied.pop("id")) != uuid.UUID(shown["id"])
    assert copied == {"name": "main.sales.copy", "kind": "filesystem", "uri": f"file://{tmp_path}/copy"}
    names = [row["name"] for row in lakeseal("catalog", "list", *where).rows]
    assert names == ["lake.old.orders", "main.sales.copy"]
    assert [row["name"] for row in lakeseal("catalog", "list", "sales", *where).rows] == ["main.sales.copy"]
    assert lakeseal("catalog", "drop", "sales.copy", *where).rows[0]["filesDeleted"] is False
    assert (tmp_path / "copy").exists()
    assert lakeseal("catalog", "drop", "lake.old.orders", "--delete-files", *where).rows[0]["filesDeleted"] is True
    assert not Path(shown["uri"].removeprefix("file://")).exists()
    assert lakeseal("catalog", "list", *where).rows == []


def test_without_a_catalog_named_it_is_that_of_the_user(lakeseal: Run, catalog: str, tmp_path: Path) -> None:
    assert lakeseal("catalog", "list", "--json").rows == []
    assert not (tmp_path / "share").exists()
    assert lakeseal("create", "sales.orders", "-c", "id bigint").code == 0
    assert lakeseal("describe", "sales.orders", "--json").rows[0]["version"] == 0
    assert "sales.orders" in lakeseal("catalog", "list").out


def test_a_table_that_is_made_may_have_an_owner(lakeseal: Run, catalog: str, tmp_path: Path) -> None:
    owner = ("--owner", f"sqlite:///{tmp_path}/ledger.db")
    uri = str(tmp_path / "t")
    assert lakeseal("create", uri, "-c", "id bigint", *owner).code == 0
    properties = lakeseal("describe", uri, "--json", *owner).rows[0]["properties"]
    assert any("managedCommitOwner" in name for name in properties)
    pq.write_table(pa.table({"id": pa.array([1], pa.int64())}), tmp_path / "rows.parquet")
    assert lakeseal("write", uri, str(tmp_path / "rows.parquet"), *owner).err == ""
    assert lakeseal("read", uri, "--json", *owner).rows == [{"id": 1}]


def test_a_directory_becomes_a_table_of_an_owner(lakeseal: Run, catalog: str, tmp_path: Path) -> None:
    owner = f"sqlite:///{tmp_path}/ledger.db"
    (tmp_path / "old").mkdir()
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int64())}), tmp_path / "old" / "a.parquet")
    converted = lakeseal("convert", str(tmp_path / "old"), "--owner", owner, "--json")
    assert (converted.code, converted.rows[0]["files"]) == (0, 1)
    status = lakeseal("owner", "status", str(tmp_path / "old"), "--owner", owner, "--json").rows[0]
    assert (status["state"], status["latest"]) == ("active", 0)
    assert len(lakeseal("read", str(tmp_path / "old"), "--owner", owner, "--json").rows) == 2


def test_a_table_that_lost_its_log_is_converted_by_its_name(lakeseal: Run, catalog: str, tmp_path: Path) -> None:
    where = ("--catalog", catalog, "--json")
    assert lakeseal("catalog", "create", "sales.orders", "-c", "id bigint", *where).code == 0
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int64())}), tmp_path / "rows.parquet")
    assert lakeseal("write", "sales.orders", str(tmp_path / "rows.parquet"), *where).code == 0
    place = Path(lakeseal("catalog", "show", "sales.orders", *where).rows[0]["uri"].removeprefix("file://"))
    shutil.rmtree(place / "_delta_log")
    assert lakeseal("convert", "sales.orders").code == 1, "the user's own catalog has no such name"
    assert lakeseal("convert", "sales.orders", *where).code == 0
    assert [row["id"] for row in lakeseal("read", "sales.orders", *where).rows] == [1, 2]


def test_an_owners_commands_find_names_in_its_own_catalog_or_in_one_that_is_named(
    lakeseal: Run, catalog: str, tmp_path: Path
) -> None:
    assert lakeseal("catalog", "create", "sales.orders", "-c", "id bigint", "--catalog", catalog).code == 0
    by_owner = ("sales.orders", "--owner", catalog, "--json")
    taken = lakeseal("owner", "take-over", *by_owner)
    assert (taken.err, taken.rows[0]["version"]) == ("", 1)
    shown = lakeseal("catalog", "show", "sales.orders", "--catalog", catalog, "--json").rows[0]
    assert shown["kind"] == "managed", "the catalog is told"
    for command in ("status", "backfill"):
        assert lakeseal("owner", command, *by_owner).rows[0]["latest"] == 1, command
    assert lakeseal("owner", "rebuild", *by_owner).rows[0]["table"] == shown["uri"]
    other = f"sqlite:///{tmp_path}/other.db"
    assert lakeseal("owner", "status", "sales.orders", "--owner", catalog, "--catalog", other).code == 1
    status = lakeseal("owner", "status", "sales.orders", "--owner", other, "--catalog", catalog)
    assert "does not know this table" in status.err, "it was found, and is another owner's"
    assert lakeseal("owner", "release", *by_owner).rows[0]["version"] == 2
    assert lakeseal("catalog", "show", "sales.orders", "--catalog", catalog, "--json").rows[0]["kind"] == "filesystem"
    Path(shown["uri"].removeprefix("file://"), "_delta_log").rename(tmp_path / "gone")
    assert lakeseal("owner", "drop", *by_owner).rows[0]["table"] == shown["uri"]


def test_a_directory_whose_path_looks_like_a_name_is_still_an_owners_table(
    lakeseal: Run, catalog: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert lakeseal("create", "./old.orders", "-c", "id bigint").code == 0
    assert lakeseal("owner", "take-over", "old.orders", "--owner", catalog, "--json").rows[0]["version"] == 1


def test_a_pipelines_target_is_looked_up_in_the_catalog_that_is_named(
    lakeseal: Run, catalog: str, tmp_path: Path
) -> None:
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "a.json").write_text('{"id": 1}\n{"id": 2}\n')
    source = f'{{type: files, path: {tmp_path}/landing, format: json, schema: "id long"}}'
    (tmp_path / "p.yaml").write_text(
        f"name: p\nledger: {catalog}\ndatasets:\n"
        f"  - {{name: orders, source: {source}, target: {{type: table, uri: sales.orders}}}}\n"
    )
    where = ("--catalog", catalog)
    assert lakeseal("catalog", "create", "sales.orders", "-c", "id bigint", *where).code == 0
    assert lakeseal("ingest", "check", str(tmp_path / "p.yaml")).code == 1, "the user's own catalog has no such name"
    assert lakeseal("ingest", "check", str(tmp_path / "p.yaml"), *where).code == 0
    assert lakeseal("ingest", "plan", str(tmp_path / "p.yaml"), *where).code == 0
    assert lakeseal("ingest", "run", str(tmp_path / "p.yaml"), "--no-spark", *where).code == 0
    assert len(lakeseal("read", "sales.orders", "--json", *where).rows) == 2
    span = ("orders", "--from", "a.json", "--to", "b.json", "--yes", "--no-spark")
    assert lakeseal("ingest", "backfill", str(tmp_path / "p.yaml"), *span, *where).code == 0
    assert len(lakeseal("read", "sales.orders", "--json", *where).rows) == 4
    assert lakeseal("ingest", "resume", str(tmp_path / "p.yaml"), "--no-spark", *where).code == 0
    assert lakeseal("ingest", "reset", str(tmp_path / "p.yaml"), "orders", "--yes", *where).code == 0


def test_what_was_left_half_made_is_shown_and_dropped_by_its_id(
    lakeseal: Run, catalog: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ("--catalog", catalog, "--json")

    def die(*_args: object, **_more: object) -> None:
        raise OSError("the power is gone")

    with monkeypatch.context() as patched:
        patched.setattr("lakeseal.table.create", die)
        assert lakeseal("catalog", "create", "sales.orders", "-c", "id bigint", *where).code == 1
    (left,) = lakeseal("catalog", "list", "--unfinished", *where).rows
    assert left["name"] == "main.sales.orders"
    assert lakeseal("catalog", "drop", left["id"], "--delete-files", *where).rows[0]["id"] == left["id"]
    assert lakeseal("catalog", "list", "--unfinished", *where).rows == []


def test_a_role_is_granted_to_a_token(lakeseal: Run, catalog: str) -> None:
    lakeseal("catalog", "create", "sales.orders", "-c", "id bigint", "--catalog", catalog)
    with open_ledger(catalog) as opened:
        token = tokens.create(opened, "etl", (Grant.from_text("reader:/nowhere"),), now=now_ms())[1]
    ended = lakeseal(
        "catalog", "grant", "sales.orders", "writer", "--to", token.token_id, "--catalog", catalog, "--json"
    )
    uri = lakeseal("catalog", "show", "sales.orders", "--catalog", catalog, "--json").rows[0]["uri"]
    assert ended.rows == [{"token": token.token_id, "grants": ["reader:file:///nowhere", f"writer:{uri}"]}]


def test_what_is_wrong_is_told_in_one_line(lakeseal: Run, catalog: str) -> None:
    for arguments, said in (
        (("read", "sales.nothing"), "write ./sales.nothing"),
        (("catalog", "show", "orders"), "default.orders"),
        (("catalog", "create", "a.b.c.d", "-c", "id bigint"), "4 parts"),
        (("catalog", "create", "a.b", "-c", "id bigint", "--kind", "x"), "no kind of table"),
        (("catalog", "drop", "sales.nothing"), "no table named main.sales.nothing"),
        (("catalog", "list", "nothing"), "no schema main.nothing"),
    ):
        ended = lakeseal(*arguments, "--catalog", catalog)
        assert ended.code == 1
        assert said in ended.err, ended.err
