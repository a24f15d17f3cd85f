from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.unity_catalog import Catalog, open_catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(tmp_path) as found:
        yield found


@pytest.fixture
def catalogs() -> Callable[..., Any]:
    return open_catalog
