"""Tables that others may have left, in every spelling that the format has for them, give the rows that are in them.

`foreign` makes them by hand, without Lakeseal: rows at each version, transactions, domains and changes are known
from how they were made.
"""

from __future__ import annotations

import random
from pathlib import Path

import lakeseal
from lakeseal import Table
from oracles.foreign import Foreign
from oracles.rows import same_rows
from oracles.seeds import case, cases

SHORT, FULL = 12, 2000


def test_tables_in_every_spelling_of_the_format_have_the_rows_that_were_put_into_them(tmp_path: Path) -> None:
    for seed in cases(SHORT, FULL):
        with case(seed) as chance:
            made = Foreign(chance, tmp_path / str(seed)).make()
            for version in range(made.first, made.version):
                found = Table(made.place).to_arrow(version=version)
                found.validate(full=True)
                same_rows(found.to_pylist(maps_as_pydicts="strict"), made.versions[version], f"version {version}")
            _check_newest(chance, made)
            _check_feed(chance.randint(made.first, made.version), made)


def _check_newest(chance: random.Random, made: Foreign) -> None:
    table, rows = Table(made.place), made.versions[made.version]
    whole = table.to_arrow()
    whole.validate(full=True)
    same_rows(whole.to_pylist(maps_as_pydicts="strict"), rows, "newest")
    names = chance.sample([f.name for f in made.fields], k=chance.randint(1, len(made.fields)))
    some = table.to_arrow(columns=names).to_pylist(maps_as_pydicts="strict")
    same_rows(some, [{name: row[name] for name in names} for row in rows], f"columns {names}")
    cut = chance.randint(-1, made.rows_made)
    skipped = table.to_arrow(where=f"id > {cut}").to_pylist(maps_as_pydicts="strict")
    same_rows(skipped, [row for row in rows if row["id"] > cut], f"id > {cut}")
    asked = lakeseal.sql(f"SELECT * FROM delta.`{made.place}` WHERE id <= {cut}").to_pylist(maps_as_pydicts="strict")
    same_rows(asked, [row for row in rows if row["id"] <= cut], f"DuckDB, id <= {cut}")
    snapshot = table.snapshot()
    assert {app: txn.version for app, txn in snapshot.txns.items()} == made.txns
    assert {name: domain.configuration for name, domain in snapshot.domains.items()} == made.domains


def _check_feed(first: int, made: Foreign) -> None:
    table = Table(made.place)
    try:
        feed = table.changes(first)
    except lakeseal.errors.VersionNotFound as error:
        # A remove may leave out the partition of its file, and then the version before it has to be there.
        assert first == made.first > 0, error
        return
    told = feed.drop_columns(["_commit_timestamp"]).to_pylist(maps_as_pydicts="strict")
    same_rows(told, made.feed(first), f"changes from {first}")
