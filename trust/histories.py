"""Histories: 32 clients for 600 s over HTTP, on SQLite and on PostgreSQL, told as one story.

Clients of three kinds (ours, the protocol of catalogs, by path) append to and read four tables, one at a time, several
in one transaction and all at one moment. Each has a way of its own to the service, which drops, delays, doubles and
cuts a tenth of its messages by a schedule that the seed gives; their clocks jump by a day; the service is killed twice.
What they were told has to be one order over all tables that fits the clock, and the logs what INVARIANTS.md asks.

`--case seconds=30` makes it shorter.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from report import Report

from lakeseal.testing.postgres import fresh_database, postgres_server
from support.histories import history

CLIENTS = 32
SECONDS = 600.0
SEED = 21
KILLS = 2


def main(report: Report) -> None:
    name, _, value = report.only.partition("=")
    seconds = float(value) if name == "seconds" else SECONDS
    with tempfile.TemporaryDirectory() as folder:
        _look(report, "SQLite", Path(folder) / "sqlite", seconds, None)
        with postgres_server() as server, fresh_database(server) as url:
            _look(report, "PostgreSQL", Path(folder) / "postgresql", seconds, url)


def _look(report: Report, what: str, folder: Path, seconds: float, ledger: str | None) -> None:
    found = history(folder, clients=CLIENTS, seconds=seconds, seed=SEED, kills=KILLS, ledger=ledger)
    report.count(f"{what}: clients", CLIENTS)
    report.count(f"{what}: seconds", int(seconds))
    report.count(f"{what}: operations", found.operations)
    report.count(f"{what}: commits", found.commits)
    report.count(f"{what}: of unknown outcome", found.unknown)
    report.count(f"{what}: messages that were dropped, late, doubled or cut", sum(found.faults.values()))
    report.count(f"{what}: kills of the service", found.kills)
    report.say(f"{what}: {found}")
    for violation in found.violations:
        report.violation(f"{what}, seed={SEED}: {violation}")
