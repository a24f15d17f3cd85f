from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from lakeseal.testing.service import service_inside
from support.shown_lake import Shown, fill


@pytest.fixture(scope="session")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    root = tmp_path_factory.mktemp("lake").resolve()
    ledger = f"sqlite:///{root}/ledger.db"
    fill(root, ledger)
    with service_inside(ledger=ledger, rate=0, roots=(str(root),)) as (url, service):
        yield Shown(url, service, root, ledger)


@pytest.fixture
def admin(shown: Shown) -> Iterator[httpx.Client]:
    with shown.browser(shown.token("ada", "admin")) as client:
        yield client


@pytest.fixture
def reader(shown: Shown) -> Callable[..., Any]:
    def signed(*places: str) -> Any:
        return shown.browser(shown.token("rita", *(f"reader:{shown.root}/{place}" for place in places)))

    return signed
