"""Tables by their names, in catalogs of every kind."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import lakeseal
from lakeseal.catalog.names import CommitKind, NameBook
from lakeseal.catalog.table_name import TableName
from lakeseal.clock import now_ms
from lakeseal.errors import (
    AlreadyExists,
    InvalidArgument,
    NotAllowed,
    Refused,
    SchemaMismatch,
    StorageUnavailable,
    TableNotFound,
)
from lakeseal.ledger import open as open_ledger
from lakeseal.service import tokens
from lakeseal.service.access import Grant
from lakeseal.storage import LocalStore

from .conftest import Running, forget
from .test_names import at_once

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
ROWS = pa.table({"id": [1, 2], "name": ["a", "b"]}, schema=SCHEMA)


@pytest.fixture
def catalog(url: str, tmp_path: Path) -> lakeseal.Catalog:
    return lakeseal.Catalog(url, root=tmp_path / "lake")


@pytest.mark.parametrize("kind", ["filesystem", "managed"])
def test_a_table_is_created_written_and_read_by_its_name(catalog: lakeseal.Catalog, kind: str) -> None:
    made = catalog.create("sales.orders", SCHEMA, kind=kind, partition_by="name", properties={"delta.appendOnly": True})
    made.write(ROWS)
    again = lakeseal.Table("Sales.ORDERS", catalog=catalog)
    assert again.to_arrow().sort_by("id") == ROWS
    assert again.snapshot().metadata.partition_columns == ("name",)
    assert again.name == "main.sales.orders"
    shown = catalog.show("sales.orders")
    assert (shown.kind, shown.uri) == (kind, made.uri)
    assert uuid.UUID(shown.table_id)
    if kind == "filesystem":
        assert DeltaTable(made.uri).version() == 1


def test_a_managed_table_goes_into_transactions_by_its_name(catalog: lakeseal.Catalog) -> None:
    for name in ("sales.orders", "sales.stock"):
        catalog.create(name, SCHEMA, kind="managed")
    with lakeseal.transaction(catalog=catalog) as txn:
        txn.table("sales.orders").write(ROWS)
        txn.table("sales.stock").write(ROWS)
    found = lakeseal.snapshots(None, ["sales.orders", "sales.stock"], catalog=catalog)
    assert [one.version for one in found] == [1, 1]


def test_the_names_of_a_catalog_are_listed(catalog: lakeseal.Catalog) -> None:
    assert (catalog.tables(), catalog.schemas(), catalog.catalogs()) == ([], [], [])
    catalog.create_schema("empty")
    for name in ("sales.b", "sales.A", "lake.raw.t"):
        catalog.create(name, SCHEMA)
    assert [str(one.name) for one in catalog.tables()] == ["lake.raw.t", "main.sales.A", "main.sales.b"]
    assert [one.name.table for one in catalog.tables("SALES")] == ["A", "b"]
    assert catalog.schemas() == ["empty", "sales"]
    assert catalog.schemas("lake") == ["raw"]
    assert catalog.catalogs() == ["lake", "main"]
    catalog.drop_schema("empty")
    assert catalog.schemas() == ["sales"]


def test_a_table_that_is_there_gets_a_name_and_stays_as_it_is(catalog: lakeseal.Catalog, tmp_path: Path) -> None:
    lakeseal.Table(tmp_path / "t").write(ROWS)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "t")
    table = catalog.register("sales.orders", link)
    assert table.uri == f"file://{tmp_path}/t"
    assert table.version() == 0
    with pytest.raises(AlreadyExists, match=r"sales\.orders"):
        catalog.register("sales.other", tmp_path / "t")
    with pytest.raises(TableNotFound):
        catalog.register("sales.nothing", tmp_path / "nothing")
    assert [one.kind for one in catalog.tables()] == [CommitKind.FILESYSTEM]


def test_the_catalog_learns_of_a_take_over_and_of_a_release(catalog: lakeseal.Catalog) -> None:
    table = catalog.create("sales.orders", SCHEMA)
    owner = catalog.opened.owner
    assert owner is not None
    table.take_over(owner)
    assert catalog.show("sales.orders").kind is CommitKind.MANAGED
    catalog.table("sales.orders").write(ROWS)
    catalog.table("sales.orders").release()
    assert catalog.show("sales.orders").kind is CommitKind.FILESYSTEM
    assert catalog.table("sales.orders").to_arrow() == ROWS


def test_a_named_table_that_is_taken_over_is_called_in_its_log_what_the_catalog_calls_it(
    catalog: lakeseal.Catalog,
) -> None:
    table = catalog.create("sales.orders", SCHEMA)
    owner = catalog.opened.owner
    assert owner is not None
    for kind in ("catalog", "managed", "catalog"):
        table.take_over(owner, kind=kind)
        assert catalog.show("sales.orders").kind == kind
    assert table.snapshot().properties.catalog_table_id == catalog.show("sales.orders").table_id


def test_a_table_whose_kind_the_catalog_has_wrong_is_still_read_and_written(catalog: lakeseal.Catalog) -> None:
    catalog.create("sales.orders", SCHEMA, kind="managed").write(ROWS)
    names: Any = catalog.opened.names
    names.set_kind(TableName.parse("sales.orders"), CommitKind.FILESYSTEM)
    table = catalog.table("sales.orders")
    table.write(ROWS)
    assert table.to_arrow().num_rows == 4


def test_a_renamed_table_is_the_same_table(catalog: lakeseal.Catalog) -> None:
    before = catalog.create("sales.orders", SCHEMA)
    before.write(ROWS)
    after = catalog.rename("sales.orders", "archive.old")
    assert after.uri == before.uri
    assert after.to_arrow() == ROWS
    with pytest.raises(TableNotFound, match=r"main\.sales\.orders"):
        catalog.table("sales.orders")


def test_a_dropped_table_keeps_its_files_and_can_be_registered_again(catalog: lakeseal.Catalog) -> None:
    table = catalog.create("sales.orders", SCHEMA)
    table.write(ROWS)
    assert catalog.drop("sales.orders").uri == table.uri
    with pytest.raises(TableNotFound):
        catalog.table("sales.orders")
    assert catalog.register("sales.again", table.uri).to_arrow() == ROWS


@pytest.mark.parametrize("kind", ["filesystem", "managed"])
def test_a_table_is_dropped_with_its_files_if_told(catalog: lakeseal.Catalog, kind: str) -> None:
    table = catalog.create("sales.orders", SCHEMA, kind=kind)
    table.write(ROWS)
    folder = Path(table.uri.removeprefix("file://"))
    catalog.drop("sales.orders", delete_files=True)
    assert not folder.exists()
    again = catalog.create("sales.orders", SCHEMA, location=folder, kind=kind)
    assert again.version() == 0


@pytest.mark.parametrize("kind", ["filesystem", "managed"])
def test_nothing_is_written_where_no_name_leads_any_more(catalog: lakeseal.Catalog, kind: str) -> None:
    held = catalog.create("sales.orders", SCHEMA, kind=kind)
    held.write(ROWS)
    catalog.drop("sales.orders", delete_files=True)
    for write in (lambda: held.write(ROWS), lambda: held.write(ROWS, mode="overwrite")):
        with pytest.raises(TableNotFound, match="dropped"):
            write()
    catalog.create("sales.Orders", SCHEMA, kind=kind)
    with pytest.raises(TableNotFound, match="another table"):
        held.write(ROWS)
    assert not held.exists()
    assert catalog.table("sales.orders").to_arrow().num_rows == 0


@pytest.mark.parametrize("kind", ["filesystem", "managed"])
def test_a_drop_that_died_half_way_is_done_again(
    catalog: lakeseal.Catalog, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create("sales.orders", SCHEMA, kind=kind)
    table.write(ROWS)
    folder = Path(table.uri.removeprefix("file://"))

    def die(self: LocalStore, keys: Iterable[str]) -> None:
        delete(self, list(keys)[:2])  # of the log
        raise StorageUnavailable("the power is gone")

    delete = LocalStore.delete
    with monkeypatch.context() as patched, pytest.raises(StorageUnavailable):
        patched.setattr(LocalStore, "delete", die)
        catalog.drop("sales.orders", delete_files=True)
    assert catalog.show("sales.orders").uri == table.uri
    catalog.drop("sales.orders", delete_files=True)
    assert not folder.exists()
    with pytest.raises(TableNotFound):
        catalog.show("sales.orders")


def test_files_of_another_table_below_are_not_deleted(catalog: lakeseal.Catalog, tmp_path: Path) -> None:
    catalog.create("sales.outer", SCHEMA, location=tmp_path / "outer")
    lakeseal.create(tmp_path / "outer" / "inner", SCHEMA)
    with pytest.raises(Refused, match="another table below"):
        catalog.drop("sales.outer", delete_files=True)
    assert catalog.table("sales.outer").version() == 0
    assert lakeseal.Table(tmp_path / "outer" / "inner").version() == 0


def test_of_two_creates_of_one_name_at_once_one_wins_and_nothing_of_the_other_is_left(
    catalog: lakeseal.Catalog, tmp_path: Path
) -> None:
    told = at_once(*(lambda: catalog.create("sales.orders", SCHEMA) for _ in range(4)))
    (winner,) = [one for one in told if isinstance(one, lakeseal.Table)]
    assert all(isinstance(one, AlreadyExists) for one in told if one is not winner)
    assert catalog.table("sales.orders").uri == winner.uri
    assert catalog.unfinished() == []
    assert [f"file://{one}" for one in (tmp_path / "lake").iterdir()] == [winner.uri]


def test_of_two_creates_at_one_place_one_wins(catalog: lakeseal.Catalog, tmp_path: Path) -> None:
    calls = [lambda n=n: catalog.create(f"sales.t{n}", SCHEMA, location=tmp_path / "t") for n in range(3)]  # type: ignore[misc]
    told = at_once(*calls)
    assert [type(one) for one in told].count(lakeseal.Table) == 1
    assert len(catalog.tables()) == 1


def test_a_create_that_is_wrong_leaves_nothing(catalog: lakeseal.Catalog, tmp_path: Path) -> None:
    with pytest.raises((InvalidArgument, SchemaMismatch)):
        catalog.create("sales.orders", SCHEMA, partition_by="nothing")
    with pytest.raises(InvalidArgument, match="no kind"):
        catalog.create("sales.orders", SCHEMA, kind="mine")
    with pytest.raises(InvalidArgument):
        catalog.create("orders", SCHEMA)
    lakeseal.create(tmp_path / "t", SCHEMA)
    with pytest.raises(AlreadyExists, match=r"Catalog\.register"):
        catalog.create("sales.orders", SCHEMA, location=tmp_path / "t")
    assert (catalog.tables(), catalog.unfinished()) == ([], [])


@pytest.mark.parametrize("at", ["made", "not made"])
def test_what_a_crash_on_the_way_to_a_name_leaves_is_found_again(
    catalog: lakeseal.Catalog, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that dies leaves what an error leaves of which nobody knows what it means."""
    names: Any = catalog.opened.names
    dies = StorageUnavailable("the power is gone")

    def die(*_args: object, **_more: object) -> None:
        raise dies

    with monkeypatch.context() as patched:
        if at == "made":
            patched.setattr(type(names), "register", die)
        else:
            patched.setattr("lakeseal.table.create", die)
        with pytest.raises(StorageUnavailable):
            catalog.create("sales.orders", SCHEMA)
    with pytest.raises(TableNotFound):
        catalog.table("sales.orders")
    (left,) = catalog.unfinished()
    assert str(left.name) == "main.sales.orders"
    if at == "made":
        catalog.register("sales.orders", left.uri)
        assert catalog.show("sales.orders").table_id == left.table_id
    else:
        assert not lakeseal.Table(left.uri).exists()
        catalog.create("sales.orders", SCHEMA)  # is not in its way
        assert catalog.abandon(left.table_id, delete_files=True)
        assert not catalog.abandon(left.table_id)
    assert catalog.unfinished() == []
    assert catalog.table("sales.orders").version() == 0


def test_without_a_catalog_configured_names_are_in_the_folder_of_the_user(
    folder_of_the_user: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TableNotFound, match=r"write \./sales\.orders"):
        lakeseal.Table("sales.orders")
    assert lakeseal.Catalog().tables() == []
    assert not folder_of_the_user.exists(), "to look makes nothing"
    lakeseal.create("sales.orders", SCHEMA).write(ROWS)
    assert lakeseal.Table("sales.orders").to_arrow() == ROWS
    assert sorted(os.listdir(folder_of_the_user)) == ["catalog.db", "catalog.db-shm", "catalog.db-wal", "tables"]
    assert folder_of_the_user.stat().st_mode & 0o077 == 0


def test_the_environment_names_the_catalog_and_its_root(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAKESEAL_CATALOG", url)
    monkeypatch.setenv("LAKESEAL_CATALOG_ROOT", str(tmp_path / "tables"))
    table = lakeseal.create("sales.orders", SCHEMA)
    assert table.uri.startswith(f"file://{tmp_path}/tables/")
    assert lakeseal.Table("sales.orders").uri == table.uri


def test_a_directory_and_a_name_are_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    lakeseal.Table("./sales.orders").write(ROWS)
    assert lakeseal.Table("sales.orders").uri == f"file://{tmp_path}/sales.orders"
    with pytest.raises(InvalidArgument, match="is a directory here"):
        lakeseal.create("sales.orders", SCHEMA)
    named = lakeseal.create("`sales`.orders", SCHEMA)
    with pytest.raises(InvalidArgument, match=r"\./sales\.orders for the directory, or `main`\.`sales`\.`orders`"):
        lakeseal.Table("sales.orders")
    assert lakeseal.Table("./sales.orders").version() == 0
    for text in ("`sales`.`orders`", "main.sales.orders"):
        assert lakeseal.Table(text).uri == named.uri
    assert lakeseal.Table("sales.orders", catalog=lakeseal.Catalog()).uri == named.uri


def test_a_single_word_is_a_path_and_with_a_catalog_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert lakeseal.Table("orders").uri == f"file://{tmp_path}/orders"
    with pytest.raises(InvalidArgument, match=r"default\.orders"):
        lakeseal.Table("orders", catalog=lakeseal.Catalog())
    assert lakeseal.Table(Path("sales.orders")).uri == f"file://{tmp_path}/sales.orders"


def test_a_name_has_the_owner_of_its_catalog(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="Leave the owner out"):
        lakeseal.create("sales.orders", SCHEMA, owner=f"sqlite:///{tmp_path}/other.db")


def test_a_catalog_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="There is no kind of catalog 'nessie'"):
        lakeseal.Catalog("https://example.com", kind="nessie")
    with pytest.raises(InvalidArgument, match="nessie"):
        lakeseal.Table("a.b", catalog="nessie+https://example.com")


def test_a_token_or_a_kind_that_is_for_nobody_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="a catalog elsewhere"):
        lakeseal.Catalog(token="lks")
    with pytest.raises(InvalidArgument, match="a catalog elsewhere"):
        lakeseal.Catalog(kind="unity")
    with pytest.raises(InvalidArgument, match="is for a service"):
        lakeseal.Catalog(f"sqlite:///{tmp_path}/c.db", "lks")


def _token(running: Running, *grants: str) -> tuple[str, str]:
    with open_ledger(running.ledger) as opened:
        text, token = tokens.create(opened, "somebody", tuple(map(Grant.from_text, grants)), now=now_ms())
        return text, token.token_id


def test_roles_and_prefixes_of_tokens_hold_for_names(guarded: Running, data: Path) -> None:
    forget(guarded)
    mine, theirs = data / uuid.uuid4().hex, data / uuid.uuid4().hex
    everything = lakeseal.Catalog(guarded.url, _token(guarded, "admin")[0])
    writer = lakeseal.Catalog(guarded.url, _token(guarded, f"writer:{mine}")[0])
    text, reader_id = _token(guarded, f"reader:{mine}")
    reader = lakeseal.Catalog(guarded.url, text)
    writer.create("sales.mine", SCHEMA, location=mine / "t")
    everything.create("sales.theirs", SCHEMA, location=theirs / "t")
    assert [one.name.table for one in everything.tables()] == ["mine", "theirs"]
    for limited in (writer, reader):
        assert [one.name.table for one in limited.tables()] == ["mine"]
        with pytest.raises(TableNotFound):
            limited.show("sales.theirs")
        with pytest.raises(TableNotFound):
            limited.rename("sales.theirs", "sales.stolen")
        with pytest.raises(TableNotFound):
            limited.drop("sales.theirs")
    lakeseal.create(theirs / "u", SCHEMA)
    for attempt in (
        lambda: reader.rename("sales.mine", "sales.other"),
        lambda: reader.drop("sales.mine"),
        lambda: reader.create_schema("new"),
        lambda: reader.create("sales.new", SCHEMA, location=mine / "new"),
        lambda: writer.register("sales.u", theirs / "u"),
        lambda: writer.create("sales.new", SCHEMA),  # the root is not theirs
        lambda: writer.grant("sales.mine", "admin", reader_id),
    ):
        with pytest.raises(NotAllowed):
            attempt()
    assert everything.unfinished() == []
    grants = everything.grant("sales.theirs", "writer", reader_id)
    assert grants == [f"reader:file://{mine}", f"writer:file://{theirs}/t"]
    assert everything.grant("sales.theirs", "writer", reader_id) == grants
    with pytest.raises(TableNotFound):
        everything.grant("sales.nothing", "writer", reader_id)
    with pytest.raises(InvalidArgument, match="no role"):
        everything.grant("sales.mine", "king", reader_id)
    new = everything.create("sales.new", SCHEMA)
    assert new.uri.startswith(f"file://{data}/")


def test_whoever_has_the_ledger_grants(guarded: Running, data: Path) -> None:
    forget(guarded)
    catalog = lakeseal.Catalog(guarded.ledger)
    table = catalog.create("sales.orders", SCHEMA, location=data / uuid.uuid4().hex)
    token_id = _token(guarded, "reader:/nowhere")[1]
    assert catalog.grant("sales.orders", "writer", token_id)[-1] == f"writer:{table.uri}"
    with pytest.raises(lakeseal.LakesealError, match="no token"):
        catalog.grant("sales.orders", "writer", "0" * 12)


def test_a_place_that_a_service_does_not_serve_gets_no_name(guarded: Running, tmp_path: Path) -> None:
    lakeseal.create(tmp_path / "t", SCHEMA)
    catalog = lakeseal.Catalog(guarded.url, _token(guarded, "admin")[0])
    with pytest.raises(NotAllowed, match="does not work on tables in this place"):
        catalog.register("sales.orders", tmp_path / "t")


def meanwhile(monkeypatch: pytest.MonkeyPatch, call: str, others: Callable[[], Any]) -> None:
    """Others do something just after the book has answered the next such call."""
    answered = getattr(NameBook, call)

    def answer(*args: Any, **more: Any) -> Any:
        found = answered(*args, **more)
        monkeypatch.setattr(NameBook, call, answered)
        others()
        return found

    monkeypatch.setattr(NameBook, call, answer)


def test_what_is_made_and_renamed_is_what_comes_back_whatever_others_do_to_its_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    catalog = lakeseal.Catalog(f"sqlite:///{tmp_path}/catalog.db")

    def others() -> None:
        catalog.rename("s.a", "s.b")
        catalog.create("s.a", SCHEMA).write(ROWS)

    meanwhile(monkeypatch, "register", others)
    made = catalog.create("s.a", SCHEMA)
    assert made.to_arrow().num_rows == 0
    meanwhile(monkeypatch, "rename", lambda: catalog.drop("s.c"))
    assert catalog.rename("s.b", "s.c").uri == made.uri
    meanwhile(monkeypatch, "register", lambda: catalog.drop("s.d"))
    assert catalog.register("s.d", made.uri).uri == made.uri


def test_a_drop_deletes_the_files_of_no_other_table_that_has_the_name_by_then(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    catalog = lakeseal.Catalog(f"sqlite:///{tmp_path}/catalog.db")
    catalog.create("s.a", SCHEMA)

    def others() -> None:
        catalog.rename("s.a", "s.b")
        catalog.create("s.a", SCHEMA).write(ROWS)

    meanwhile(monkeypatch, "resolve", others)
    with pytest.raises(TableNotFound):
        catalog.drop("s.a", delete_files=True)
    assert catalog.table("s.a").to_arrow() == ROWS
