"""Histories: 32 clients for 600 s over HTTP, on SQLite and as many on PostgreSQL at the same time, told as one story.

Clients of three kinds (ours, the protocol of catalogs, by path) append to and read four tables, one at a time, several
in one transaction and all at one moment. Each has a way of its own to the service, which drops, delays, doubles and
cuts a tenth of its messages by a schedule that the seed gives; their clocks jump by a day; the service is killed twice.
What they were told has to be one order over all tables that fits the clock, and the logs what INVARIANTS.md asks.

`--case seconds=30` makes it shorter.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
from children import side_by_side
from report import Report

from lakeseal.testing.postgres import fresh_database, postgres_server
from support.histories import History, history

CLIENTS = 32
SECONDS = 600.0
SEED = 21
KILLS = 2


def main(report: Report) -> None:
    name, _, value = report.only.partition("=")
    seconds = float(value) if name == "seconds" else SECONDS
    for what, answer in side_by_side(("SQLite", "PostgreSQL"), lambda what: _history(what, seconds), at_once=2):
        found = msgspec.convert(answer, History)
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


def _history(what: str, seconds: float) -> Any:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ledger = None
        if what == "PostgreSQL":
            ledger = stack.enter_context(fresh_database(stack.enter_context(postgres_server())))
        return msgspec.to_builtins(
            history(folder, clients=CLIENTS, seconds=seconds, seed=SEED, kills=KILLS, ledger=ledger)
        )
