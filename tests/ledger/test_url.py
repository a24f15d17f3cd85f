from __future__ import annotations

import pytest

from lakeseal import ledger
from lakeseal.errors import InvalidUri
from lakeseal.ledger.url import parse


@pytest.mark.parametrize(
    "text",
    [
        "ledger.db",
        "/var/lib/ledger.db",
        "",
        "sqlite:",
        "sqlite:///",
        "sqlite:///folder/",
        "sqlite://ledger.db",
        "sqlite:///ledger.db?mode=ro",
        "sqlite:///file:ledger.db",
        "sqlite:///nul\0.db",
        "postgresql+psycopg2://host/database",
        "postgresql://host:port/database",
        "mysql://host/database",
        "http://127.0.0.1:8700",
        "s3://bucket/ledger.db",
        "file:///ledger.db",
    ],
)
def test_what_is_not_a_place_for_a_ledger_is_refused(text: str) -> None:
    with pytest.raises(InvalidUri, match="sqlite:///"):
        ledger.open(text)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_every_spelling_of_postgresql_is_the_same(scheme: str) -> None:
    url = parse(f"{scheme}://me@host:5433/database?sslmode=require")
    assert url.kind == "postgresql"
    assert url.connect == "postgresql+psycopg://me@host:5433/database?sslmode=require"
    assert url.public == "postgresql://me@host:5433/database?sslmode=require"


def test_what_connects_parses_to_the_same_again() -> None:
    for text in ("sqlite://", "sqlite:///a.db", "postgres://me:p%40ss%2Fw%3Ard@host/db?sslpassword=x"):
        assert parse(parse(text).connect) == parse(text)


def test_both_spellings_of_memory_are_memory() -> None:
    assert parse("sqlite://") == parse("sqlite:///:memory:")
    assert parse("sqlite://").kind == "memory"


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:hunter2@host/db",
        "postgresql://me:hunter%32@host/db",
        "postgresql://me:hunt@er2@host/db",
        "postgresql://me:hunter2/hunter2@host/db",
        "postgresql://host/db?password=hunter2",
        "postgresql://host/db?user=me&sslpassword=hunter2&x=y",
        "postgresql://me:hunter2@host:nan/db",
        "postgres//me:hunter2@host/db",
        "mysql://me:hunter2@host/db",
        "me:hunter2@host",
        "sqlite:///x?password=hunter2",
    ],
)
def test_a_password_is_never_shown(text: str) -> None:
    try:
        url = parse(text)
        shown = f"{url} {url!r} {url.public}"
    except InvalidUri as error:
        shown = f"{error} {error!r} {error.to_json()} {error.__cause__} {error.__context__}"
    assert "hunter" not in shown
    assert "er2" not in shown
