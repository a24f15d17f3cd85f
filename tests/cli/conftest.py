from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import deltalake
import pyarrow as pa
import pytest

from lakeseal.cli import main


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def lakeseal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """Runs one command line in this process."""
    monkeypatch.delenv("LAKESEAL_DEBUG", raising=False)

    def run(*arguments: str) -> Ended:
        code = main(arguments)
        out, err = capsys.readouterr()
        return Ended(code, out, err)

    return run


@pytest.fixture
def sales(tmp_path: Path) -> str:
    """Versions 0 and 1, five rows, partitioned by shop; written by another Delta client."""
    uri = str(tmp_path / "sales")
    for start, shop in ((1, "north"), (4, "süd/west")):
        rows = pa.table(
            {
                "id": pa.array(range(start, start + 3), pa.int64()),
                "shop": pa.array([shop] * 3),
                "price": pa.array([Decimal("1.50"), Decimal("20.00"), None], pa.decimal128(10, 2)),
                "sold": pa.array([date(2026, 3, day) for day in range(1, 4)]),
            }
        )
        deltalake.write_deltalake(uri, rows, mode="append", partition_by=["shop"], name="sales")
    return uri
