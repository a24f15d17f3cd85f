"""Crash points: a process that is struck at each call that changes a disk, a ledger or a service, and who comes after.

All effects of each scenario are enumerated in a run that nothing happens to. Then the process is killed, the call
fails, or it is done and its answer is lost, in each way that leaves something else than another point does
(`effects.DIFFERENT` says which do not). Another process must find each value as it was before or as it is after, and
after what was acknowledged; upkeep must change nothing that is seen; what was begun must come to its end, once; and
what is on disk must be one history (INVARIANTS F1–F7, M3, B5, T1, G1–G3, W1–W6). A client whose step failed does it
again by itself and must get through. Files are struck beside SQLite only, as they are the same beside PostgreSQL.

A function of the product that writes and that nothing was struck in fails the run, unless it is listed with a reason.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from children import side_by_side
from effects import Site, Way
from report import Report
from scenarios import SCENARIOS
from strikes import Case, Struck, struck_everywhere, told
from writers import Writer, writers

from lakeseal.testing.postgres import postgres_server

CASES = tuple(Case(scenario, ledger) for scenario in SCENARIOS for ledger in scenario.ledgers)

_SAID = {
    Way.BEFORE.name: "killed before",
    Way.TORN.name: "killed in the middle",
    Way.KILLED.name: "killed",
    Way.FAILED.name: "failed",
    Way.LOST.name: "reply lost",
}

_NOT_SAID = {
    "not come to": "points that a second run did not come to",
    "of another kind": "points that were of another kind in a second run",
}

NOT_STRUCK = {
    r"^testing/": "what users try things with, and no part of the product's promises",
    r"^cli/": "a file that a person asked for, or a folder for what they typed",
    r"^service/finished_calls": "a note for its pages, which forgets: tests/service and tests/console look at it",
    r"^console/audit": "a note of who looked at what",
    r"^storage/object/": "one request each, without a middle: tests/storage loses requests and replies",
    r"^branches/lakefs/": "another system's: tests/peers/test_lakefs.py kills beside it",
    r"^catalog/unity/": "another system's: tests/catalog/unity loses requests and replies",
    r"^catalog/connect.*_EmbeddedBook": "hands on to the ledger, where it is struck",
    r"^catalog/names.*set_kind": "tells by name what the table's log says",
    r"^ingest/(lineage|metrics)": "a report behind a run, which nothing is decided by",
    r"^service/service.*_look": "asks whether the ledger takes writes",
    r"^steps/.*(remove_store|reset|undo|_change|Steps?Store\.create)": "asked for by a person, or a note of a try that"
    " failed: tests/steps",
    r"^steps/leases.*renew": "prolongs what runs out by itself: tests/steps/test_watermarks.py",
    r"^steps/task_states": "tests/steps/test_crashes.py kills at each of their effects",
    r"^jobs/staged_commit_protocol.*_clean_up": "deletes what a job that failed has left, as a later run does",
    r"^files/uploads.*FileSink\.write": "hands bytes on to a stream, where they are struck",
    r"^branches/tree/writer.*_put_part": "of commits of many megabytes: tests/branches/crash_driver.py kills there",
    r"^owner/(backfill.*_publish_all|managed_owner.*_shown)": "by functions that are struck, or of what nobody needs",
}
"""Writers without a point, by a pattern of their names, and why."""


def main(report: Report) -> None:
    wanted = [case for case in CASES if report.only in case.name]
    sites: set[Site] = set()
    counts: Counter[str] = Counter()
    with postgres_server(fsync="off") as server:
        for number, answer in side_by_side(range(len(wanted)), lambda number: strike(wanted[number], server)):
            struck = told(answer)
            report.say(_line(wanted[number], struck))
            for one in struck.violations:
                report.violation(one)
            report.count(f"{wanted[number].name}: points", struck.points)
            counts.update(struck.counts)
            sites |= set(struck.sites)
            nothing = sum(number for what, number in struck.counts.items() if what.endswith(" NONE"))
            report.count("strikes", sum(struck.counts.values()) - nothing)
            if struck.counts.get("of another kind NONE", 0) > struck.points // 4:
                report.violation(f"{wanted[number].name}: what was struck is not what happens undisturbed")
            report.count("done again by the same client after a failure", struck.retried)
    for what, number in sorted(counts.items()):
        kind, _, way = what.rpartition(" ")
        report.count(f"{kind}, {_SAID[way]}" if way in _SAID else _NOT_SAID[kind], number)
    if not report.only:
        _count_writers(report, sites)


def strike(case: Case, server: str | None, *, every: int = 1) -> Struck:
    root = Path(tempfile.mkdtemp(prefix="lakeseal-points-", dir=_memory()))
    try:
        return struck_everywhere(case, root, server, every=every)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _memory() -> str | None:
    """A file system in memory, where there is one: what is killed here is a process, and not a machine."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _line(case: Case, struck: Struck) -> str:
    strikes = sum(number for what, number in struck.counts.items() if not what.endswith(" NONE"))
    return f"{case.name}: {struck.points} points, {strikes} strikes, {len(struck.violations)} violations"


def unstruck(sites: Iterable[Site]) -> list[Writer]:
    """Writers that nothing has happened in."""
    lines: dict[str, set[int]] = {}
    for site in sites:
        lines.setdefault(site.file, set()).add(site.line)
    return [
        writer
        for writer in writers()
        if not any(first <= line <= last for first, last in writer.lines for line in lines.get(writer.file, ()))
    ]


def reason_for(writer: Writer) -> str | None:
    return next((why for pattern, why in NOT_STRUCK.items() if re.search(pattern, writer.name)), None)


def _count_writers(report: Report, sites: set[Site]) -> None:
    missed = unstruck(sites)
    excused = [one for one in missed if reason_for(one) is not None]
    report.count("functions of the product that write", len(list(writers())))
    report.count("of them without a point, with a reason", len(excused))
    for one in missed:
        if one not in excused:
            report.violation(f"{one.name} writes, and no scenario strikes it")
