"""What was done here, and by whom: what pages changed, and what the ledger knows besides.

Actions of pages are kept in the ledger, the last ones of them, and written to the log `lakeseal.console.audit` before
they are shown to anybody. Commits that clients made have no name of theirs in the ledger: who sent the last ones a
worker of a service remembers, of the others its log knows.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from lakeseal.clock import now_ms
from lakeseal.console.lake import ShownCall
from lakeseal.display import clean
from lakeseal.ledger import Ledger, Row, Tx
from lakeseal.ledger.schema import commits, facts, runs, table_names, tables
from lakeseal.ledger.schema import tokens as token_rows

_log = logging.getLogger(__name__)
_FACT = "console audit"
_KEEPER = "whoever has the ledger"
_KEPT, _SHOWN = 500, 200


def note(ledger: Ledger | None, who: str | None, what: str, about: str) -> None:
    """After it was done."""
    entry = {"at": now_ms(), "who": who or "", "what": clean(what), "about": clean(about, 500)}
    _log.info("%s: %s %s", entry["who"] or "somebody", entry["what"], entry["about"])
    if ledger is None or not ledger.is_made:
        return

    def do(tx: Tx) -> None:
        row = tx.get(facts, name=_FACT)
        known = row.value if row is not None and isinstance(row.value, list) else []
        if entry not in known:
            tx.put(facts, name=_FACT, value=[*known, entry][-_KEPT:])

    ledger.write(do, idempotent=True)


def audit_view(ledger: Ledger, calls: Sequence[ShownCall]) -> list[dict[str, Any]]:
    """Newest first."""
    senders = {spot: one.who for one in calls for spot in zip(one.tables, one.versions, strict=False)}

    def do(tx: Tx) -> list[dict[str, Any]]:
        row = tx.get(facts, name=_FACT)
        acted = row.value if row is not None and isinstance(row.value, list) else []
        made = tx.rows(sa.select(token_rows).order_by(token_rows.c.created.desc()).limit(_SHOWN), lock=False)
        ran = tx.rows(sa.select(runs).order_by(runs.c.started.desc()).limit(_SHOWN), lock=False)
        named = tx.rows(sa.select(table_names).order_by(table_names.c.updated.desc()).limit(_SHOWN), lock=False)
        return [
            *(_entry(one.get("at"), one.get("who"), one.get("what"), one.get("about")) for one in acted),
            *(_entry(one.created, _KEEPER, "made the token", f"{one.name}, {one.token_id}") for one in made),
            *(_entry(one.revoked, _KEEPER, "revoked the token", one.name) for one in made if one.revoked is not None),
            *(_entry(one.started, f"pipeline {one.pipeline}", f"ran: {one.state}", one.run_id) for one in ran),
            *(_entry(one.updated, "", f"named a table {one.name}", one.uri) for one in named),
            *(
                _entry(
                    one.ratified,
                    senders.get((one.table_id, one.version)),
                    f"committed version {one.version}",
                    one.table_id,
                )
                for one in _commits(tx)
            ),
            *(_call(one) for one in calls if one.refused is not None or one.conflicts),
        ]

    return sorted(ledger.read(do), key=lambda one: -one["at"])[:_SHOWN]


def _commits(tx: Tx) -> list[Row]:
    query = (
        sa.select(commits.c.version, commits.c.ratified, tables.c.table_id)
        .join_from(commits, tables)
        .order_by(commits.c.ratified.desc())
        .limit(_SHOWN)
    )
    return list(tx.rows(query, lock=False))


def _call(one: ShownCall) -> dict[str, Any]:
    what = f"was refused, {one.refused}" if one.refused is not None else "came too late for a version"
    return _entry(one.at_ms, one.who, f"{what} ({one.call})", ", ".join(one.tables))


def _entry(at: Any, who: Any, what: Any, about: Any) -> dict[str, Any]:
    return {
        "at": at if isinstance(at, int) else 0,
        "who": clean(who or ""),
        "what": clean(what or ""),
        "about": clean(about or "", 500),
    }
