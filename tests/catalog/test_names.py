"""Names, wherever they are kept."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from lakeseal import ledger
from lakeseal.catalog.names import CommitKind, NameBook
from lakeseal.catalog.table_name import SchemaName, TableName
from lakeseal.errors import (
    AlreadyExists,
    InvalidArgument,
    LakesealError,
    NotFound,
    Refused,
    SchemaNotFound,
    TableNotFound,
)
from lakeseal.ledger import Tx
from lakeseal.ledger.schema import table_names
from lakeseal.service import tokens
from lakeseal.service.access import Grant
from lakeseal.service.name_client import HttpNames

Book = NameBook | HttpNames
ORDERS = TableName.parse("sales.orders")
SALES = SchemaName(schema="sales")
FILES = CommitKind.FILESYSTEM


def at_once(*calls: Callable[[], object]) -> list[object]:
    """What each returned or raised; all begin at the same moment."""
    gate = threading.Barrier(len(calls))

    def one(call: Callable[[], object]) -> object:
        gate.wait()
        try:
            return call()
        except LakesealError as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(one, calls))


def test_a_registered_name_means_its_table_in_any_spelling(book: Book) -> None:
    made = book.register(ORDERS, "file:///t", FILES)
    for spelling in ("sales.orders", "MAIN.Sales.ORDERS", "`main`.`sales`.`orders`"):
        assert book.resolve(TableName.parse(spelling)) == made
    assert (made.name, made.uri, made.kind) == (ORDERS, "file:///t", FILES)


def test_a_token_gets_a_role_for_the_table_that_a_name_means(
    book: Book, url: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("started").ledger if url.startswith("http") else url
    with ledger.open(url) as opened:
        token = tokens.create(opened, "somebody", (Grant.from_text("reader:/mine"),), now=0)[1]
    book.register(ORDERS, "file:///t", FILES)
    for _ in range(2):
        assert list(book.grant(ORDERS, "writer", token.token_id)) == ["reader:file:///mine", "writer:file:///t"]
    with pytest.raises(InvalidArgument, match="no role"):
        book.grant(ORDERS, "king", token.token_id)
    with pytest.raises(NotFound, match="no token"):
        book.grant(ORDERS, "writer", "0" * 12)
    with pytest.raises(TableNotFound):
        book.grant(TableName.parse("sales.nothing"), "writer", token.token_id)


def test_a_name_keeps_the_spelling_that_it_was_given(book: Book) -> None:
    book.register(TableName.parse("Sales.Orders"), "file:///t", FILES)
    assert str(book.resolve(ORDERS).name) == "main.Sales.Orders"


def test_two_spellings_of_one_unicode_text_are_one_name(book: Book) -> None:
    book.register(TableName(schema="s", table="caf\u00e9"), "file:///t", FILES)
    assert book.resolve(TableName(schema="s", table="CAFE\u0301")).uri == "file:///t"
    book.register(TableName(schema="s", table="straße"), "file:///u", FILES)
    assert book.resolve(TableName(schema="s", table="STRASSE")).uri == "file:///u"


def test_a_name_a_place_and_an_id_belong_to_one_table(book: Book) -> None:
    made = book.register(ORDERS, "file:///t", FILES)
    with pytest.raises(AlreadyExists, match=r"main\.SALES\.Orders already"):
        book.register(TableName.parse("SALES.Orders"), "file:///u", FILES)
    with pytest.raises(AlreadyExists, match=r"has the name main\.sales\.orders"):
        book.register(TableName.parse("sales.other"), "file:///t", FILES)
    with pytest.raises(AlreadyExists, match=r"has the name main\.sales\.orders"):
        book.register(TableName.parse("sales.other"), "file:///u", FILES, table_id=made.table_id)
    assert book.tables(SALES).tables == (made,)


def test_registering_again_with_the_same_id_answers_the_same(book: Book) -> None:
    table_id = str(uuid.uuid4())
    first = book.register(ORDERS, "file:///t", FILES, table_id=table_id)
    assert book.register(ORDERS, "file:///t", FILES, table_id=table_id.upper()) == first


@pytest.mark.parametrize("table_id", ["", "x", "1" * 32, "{0c4c6503-1185-4227-8d92-bf5b0f29fa10}", "\0" * 36])
def test_what_is_no_uuid_is_refused(book: Book, table_id: str) -> None:
    with pytest.raises(InvalidArgument):
        book.register(ORDERS, "file:///t", FILES, table_id=table_id)


def test_of_two_who_register_one_name_at_once_one_wins(book: Book) -> None:
    calls = [lambda n=n: book.register(ORDERS, f"file:///t{n}", FILES) for n in range(6)]  # type: ignore[misc]
    told = at_once(*calls)
    (winner,) = [one for one in told if not isinstance(one, LakesealError)]
    assert all(isinstance(one, AlreadyExists) for one in told if one is not winner)
    assert book.resolve(ORDERS) == winner


def test_a_table_that_is_renamed_again_and_again_always_has_exactly_one_name(book: Book) -> None:
    other = TableName.parse("archive.orders")
    made = book.register(ORDERS, "file:///t", FILES)
    book.create_schema(other.in_schema)
    stop = threading.Event()

    def rename() -> None:
        try:
            for _ in range(30):
                book.rename(ORDERS, other, table_id=made.table_id)
                book.rename(other, ORDERS, table_id=made.table_id)
        finally:
            stop.set()

    def look() -> int:
        looked = 0
        while not stop.is_set() or not looked:
            for name in (ORDERS, other):
                with suppress(TableNotFound):
                    assert book.resolve(name).table_id == made.table_id
            looked += 1
        return looked

    done = at_once(rename, look)
    assert isinstance(done[1], int)
    assert book.resolve(ORDERS).table_id == made.table_id


def test_renames_in_opposite_directions_both_end(book: Book) -> None:
    a, b = TableName.parse("a.t"), TableName.parse("b.t")
    for round_ in range(10):
        one, two = (book.register(name, f"file:///{name.schema}{round_}", FILES) for name in (a, b))
        told = at_once(
            lambda one=one: book.rename(a, b, table_id=one.table_id),  # type: ignore[misc]
            lambda two=two: book.rename(b, a, table_id=two.table_id),  # type: ignore[misc]
        )
        # Each finds the other's table in its way.
        assert all(isinstance(one, AlreadyExists) for one in told)
        for name, made in ((a, one), (b, two)):
            assert book.resolve(name) == made
            book.drop(name)


def test_a_renamed_table_keeps_its_id_and_its_place(book: Book) -> None:
    made = book.register(ORDERS, "file:///t", FILES)
    moved = book.rename(ORDERS, TableName.parse("lake.archive.old"))
    assert (moved.table_id, moved.uri, str(moved.name)) == (made.table_id, made.uri, "lake.archive.old")
    with pytest.raises(TableNotFound, match=r"main\.sales\.orders"):
        book.resolve(ORDERS)
    # Its answer may have been lost: asked again with the id, it is the same.
    assert book.rename(ORDERS, moved.name, table_id=made.table_id) == moved


def test_a_rename_may_change_the_spelling_only(book: Book) -> None:
    book.register(ORDERS, "file:///t", FILES)
    assert str(book.rename(ORDERS, TableName.parse("sales.Orders")).name) == "main.sales.Orders"


def test_a_rename_takes_no_name_that_another_table_has(book: Book) -> None:
    book.register(ORDERS, "file:///t", FILES)
    book.register(TableName.parse("sales.items"), "file:///u", FILES)
    with pytest.raises(AlreadyExists):
        book.rename(ORDERS, TableName.parse("sales.ITEMS"))
    with pytest.raises(TableNotFound):
        book.rename(TableName.parse("sales.nothing"), TableName.parse("sales.b"))


def test_a_dropped_name_is_free_and_an_old_drop_does_not_hit_its_new_table(book: Book) -> None:
    old = book.register(ORDERS, "file:///t", FILES)
    assert book.drop(ORDERS, table_id=old.table_id)
    new = book.register(ORDERS, "file:///t", FILES)
    assert not book.drop(ORDERS, table_id=old.table_id)
    assert book.resolve(ORDERS) == new
    renamed = TableName.parse("sales.renamed")
    book.rename(ORDERS, renamed)
    with pytest.raises(TableNotFound):
        book.drop(ORDERS, table_id=new.table_id)
    assert book.drop(renamed)
    with pytest.raises(TableNotFound):
        book.drop(renamed)


def test_kinds_change(book: Book) -> None:
    made = book.register(ORDERS, "file:///t", FILES)
    assert book.set_kind(ORDERS, CommitKind.CATALOG).kind is CommitKind.CATALOG
    assert book.set_kind(ORDERS, CommitKind.MANAGED, table_id=made.table_id).kind is CommitKind.MANAGED
    with pytest.raises(TableNotFound):
        book.set_kind(TableName.parse("sales.nothing"), CommitKind.MANAGED)


def test_lists_come_in_pages_that_go_on_where_the_last_ended(book: Book) -> None:
    for number in range(7):
        book.register(TableName(schema="sales", table=f"{'tT'[number % 2]}{number}"), f"file:///{number}", FILES)
    found, token = [], None
    while True:
        page = book.tables(SchemaName(schema="SALES"), token=token, limit=3)
        found += [one.name.table for one in page.tables]
        token = page.next_token
        if token is None:
            break
        book.drop(page.tables[-1].name)  # what is dropped meanwhile moves nothing
    assert found == [f"{'tT'[number % 2]}{number}" for number in range(7)]
    assert book.tables(SALES, limit=5).next_token is None
    for limit in (0, 1001, -1):
        with pytest.raises(InvalidArgument):
            book.tables(SALES, limit=limit)
    for token in ("", "x" * 256, "\0"):
        with pytest.raises(InvalidArgument):
            book.tables(SALES, token=token)


def test_schemas_come_in_pages_too_and_each_catalog_has_its_own(book: Book) -> None:
    for name in ("b", "A", "c"):
        book.create_schema(SchemaName(schema=name))
    other = book.create_schema(SchemaName(catalog="Lake", schema="a"))
    first = book.schemas("MAIN", limit=2)
    assert [one.name.schema for one in first.schemas] == ["A", "b"]
    rest = book.schemas("main", limit=2, token=first.next_token)
    assert [one.name.schema for one in rest.schemas] == ["c"]
    assert rest.next_token is None
    assert book.schema(SchemaName(catalog="lake", schema="A")) == other
    assert book.catalogs() == ["Lake", "main"]
    with pytest.raises(AlreadyExists):
        book.create_schema(SchemaName(schema="B"))
    with pytest.raises(SchemaNotFound):
        book.schema(SchemaName(schema="d"))


def test_a_schema_with_tables_in_it_is_not_dropped(book: Book) -> None:
    book.register(ORDERS, "file:///t", FILES)
    with pytest.raises(Refused, match="has tables"):
        book.drop_schema(SALES)
    book.drop(ORDERS)
    book.drop_schema(SALES)
    with pytest.raises(SchemaNotFound):
        book.tables(SALES)
    with pytest.raises(SchemaNotFound):
        book.register(ORDERS, "file:///t", FILES, make_schema=False)


def test_a_schema_is_not_dropped_beside_a_table_that_gets_its_name(book: Book) -> None:
    for number in range(10):
        book.create_schema(SALES)
        dropped, made = at_once(
            lambda: book.drop_schema(SALES),
            lambda number=number: book.register(ORDERS, f"file:///{number}", FILES),  # type: ignore[misc]
        )
        assert not isinstance(made, LakesealError)
        assert dropped is True or isinstance(dropped, Refused)
        assert book.resolve(ORDERS) == made
        book.drop(ORDERS)
        book.drop_schema(SALES)


def test_a_staged_table_has_no_name_until_it_is_registered(book: Book) -> None:
    table_id = str(uuid.uuid4())
    staged = book.stage(ORDERS, "file:///t", CommitKind.CATALOG, table_id=table_id)
    assert book.stage(ORDERS, "file:///t", CommitKind.CATALOG, table_id=table_id) == staged
    assert book.staged() == book.staged(table_id) == [staged]
    with pytest.raises(TableNotFound):
        book.resolve(ORDERS)
    book.register(ORDERS, "file:///t", CommitKind.CATALOG, table_id=table_id)
    assert book.staged() == []
    with pytest.raises(AlreadyExists):
        book.stage(ORDERS, "file:///u", CommitKind.CATALOG, table_id=str(uuid.uuid4()))


def test_a_staging_that_failed_is_forgotten(book: Book) -> None:
    table_id = str(uuid.uuid4())
    book.stage(ORDERS, "file:///t", FILES, table_id=table_id)
    assert book.unstage(table_id)
    assert not book.unstage(table_id)


def test_to_look_at_names_makes_no_ledger(tmp_path: Path) -> None:
    with ledger.open_unmade(f"sqlite:///{tmp_path}/catalog.db") as opened:
        book = NameBook(opened)
        assert book.catalogs() == []
        assert book.schemas("main").schemas == ()
        with pytest.raises(TableNotFound):
            book.resolve(ORDERS)
        assert not list(tmp_path.iterdir())
        book.register(ORDERS, "file:///t", FILES)
        assert book.resolve(ORDERS).uri == "file:///t"


def test_a_place_of_any_length_has_a_name(ledger_book: NameBook) -> None:
    uri = "s3://bucket/" + "ü" * 20_000
    assert ledger_book.register(ORDERS, uri, FILES).uri == uri
    made = ledger_book.by_uri(uri)
    assert made is not None
    assert made.name == ORDERS


def test_a_table_is_found_by_its_id_and_by_its_place(ledger_book: NameBook) -> None:
    made = ledger_book.register(ORDERS, "file:///t", FILES)
    assert ledger_book.by_id(made.table_id) == ledger_book.by_uri("file:///t") == made
    assert ledger_book.by_uri("file:///u") is None
    with pytest.raises(TableNotFound):
        ledger_book.by_id(str(uuid.uuid4()))


def test_the_longest_names_fit_every_index(book: Book) -> None:
    long = "𐐀" * 255  # four bytes each, and so is what it folds to
    name = TableName(catalog=long, schema=long, table=long)
    made = book.register(name, "file:///t", FILES)
    assert book.resolve(name) == made
    assert book.tables(name.in_schema).tables == (made,)


def test_a_staged_table_is_registered_where_it_was_staged(book: Book) -> None:
    staged = book.stage(ORDERS, "file:///t", FILES)
    with pytest.raises(InvalidArgument, match="another place"):
        book.register(ORDERS, "file:///u", FILES, table_id=staged.table_id)
    assert book.staged() == [staged]


def test_several_may_be_on_their_way_to_one_name_and_the_first_to_be_registered_gets_it(book: Book) -> None:
    one, two = book.stage(ORDERS, "file:///t", FILES), book.stage(ORDERS, "file:///u", FILES)
    book.register(ORDERS, two.uri, FILES, table_id=two.table_id)
    with pytest.raises(AlreadyExists):
        book.register(ORDERS, one.uri, FILES, table_id=one.table_id)
    assert book.staged() == [one]


def test_without_a_root_a_table_needs_a_place(book: Book) -> None:
    with pytest.raises(InvalidArgument, match="root"):
        book.stage(ORDERS, None, FILES)


def test_a_drop_that_waits_for_a_rename_is_told_that_the_name_went(postgres_url: str) -> None:
    """On PostgreSQL, which looks at a row again when the lock on it is had; not at those that it belonged to."""
    name = TableName(schema="s", table="t")
    with (
        ledger.open(postgres_url) as one,
        ledger.open(postgres_url) as other,
        psycopg.connect(postgres_url) as watching,
    ):
        book = NameBook(one)
        table = book.register(name, "file:///t", CommitKind.FILESYSTEM)
        elsewhere = book.create_schema(SchemaName(schema="u"))
        is_moved = threading.Event()

        def rename(tx: Tx) -> None:
            tx.update(table_names, {"table_uuid": table.table_id}, {"schema_id": elsewhere.schema_id})
            is_moved.set()
            waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            while watching.execute(waits).fetchall() == [(0,)]:
                watching.rollback()  # what it sees is of one transaction

        with ThreadPoolExecutor() as pool:
            renaming = pool.submit(one.write, rename)
            is_moved.wait()
            with pytest.raises(TableNotFound):
                NameBook(other).drop(name, table_id=table.table_id)
            renaming.result()
        assert str(book.by_id(table.table_id).name) == "main.u.t"
