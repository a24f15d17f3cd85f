"""Random histories of rows (new, repeated, late, deleting, partial), and what a dictionary makes of them: the judge of
targets that rows change. Rows are {"id", "n" (the sequence), "a", "b", "gone"}."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

Row = dict[str, Any]
SCHEMA = "id long, n long, a string, b long, gone boolean"


def random_rows(rng: random.Random, count: int, *, keys: int = 8, partial: bool = False) -> list[Row]:
    rows: list[Row] = []
    for n in range(count):
        kind = rng.random()
        if rows and kind < 0.2:
            rows.append(dict(rng.choice(rows)))  # a repeat
            continue
        moment = max(0, n - rng.randrange(1, 30)) if kind < 0.4 else n  # late, or equal to another's
        row: Row = {"id": rng.randrange(keys), "n": moment, "a": rng.choice("xyz") + str(n), "b": n}
        row["gone"] = True if rng.random() < 0.2 else rng.choice([False, None])
        for name in "ab":
            if row["gone"] or (rng.random() < 0.4 and partial):
                row[name] = None
        rows.append(row)
    return rows


def upserted(rows: Iterable[Row], *, by_sequence: bool = True, partial: bool = False) -> list[Row]:
    """The rows that are there after all of these."""
    there: dict[int, Row] = {}
    known: dict[int, int] = {}
    for row in rows:
        key = row["id"]
        if by_sequence and key in known and row["n"] <= known[key]:
            continue
        known[key] = row["n"]
        if row["gone"]:
            there.pop(key, None)
        elif partial and key in there:
            there[key] = {name: there[key][name] if value is None else value for name, value in row.items()}
        else:
            there[key] = dict(row)
    return in_order(there.values())


def historized(rows: Iterable[Row]) -> list[Row]:
    """All versions, each with its span: of one key at one moment the first row counts."""
    moments: dict[tuple[int, int], Row] = {}
    for row in rows:
        moments.setdefault((row["id"], row["n"]), row)
    versions = []
    for (key, n), row in moments.items():
        later = [other for k, other in moments if k == key and other > n]
        if not row["gone"]:
            versions.append({**row, "valid_from": n, "valid_to": min(later, default=None)})
    return in_order(versions)


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted((dict(row) for row in rows), key=lambda row: (row["id"], row["n"]))
