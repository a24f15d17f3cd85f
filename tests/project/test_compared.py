"""What the docs say is shown by a test is: the test is there, under that name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
LINK = re.compile(r"\]\(([^)\s]*tests/[^)\s#]*)(?: \"(\w+)\")?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tests_that_a_page_names_are_there(page: Path) -> None:
    for path, name in LINK.findall(page.read_text(encoding="utf-8")):
        found = (page.parent / path).resolve()
        assert found.exists(), f"{page.name} names {path}"
        if name:
            assert f"def {name}(" in found.read_text(encoding="utf-8"), f"{page.name} names {path}::{name}"


def test_every_line_of_the_comparison_leads_to_a_test() -> None:
    lines = (ROOT / "docs" / "compared.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith(("| ---", "| |"))]
    assert len(rows) > 40
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        assert len(cells) == 4, row
        assert LINK.search(cells[3]), row


def test_every_guarantee_names_a_test() -> None:
    numbers = {"F": 7, "M": 4, "B": 5, "O": 6, "T": 2, "G": 6, "W": 8}
    page = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    told = {row[4:6]: LINK.findall(row) for row in page.splitlines() if row.startswith("| **")}
    assert set(told) == {f"{letter}{number}" for letter, most in numbers.items() for number in range(1, most + 1)}
    assert all(tests and all(name for _, name in tests) for tests in told.values())
