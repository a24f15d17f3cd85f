from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeseal import ledger
from lakeseal.catalog.names import NameBook


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without a ledger."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/catalog.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def book(ledger_url: str) -> Iterator[NameBook]:
    with ledger.open(ledger_url) as opened:
        yield NameBook(opened)
