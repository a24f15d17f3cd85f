"""Upkeep beside everything: vacuum, clean-up, collection and compaction while others write, read, and die.

Whoever comes after a crash point or a power cut does upkeep twice and looks whether anything that is seen has changed:
that is counted there. Here it goes on beside the others: several processes write to tables and a branch, with values
that only they write, and are killed and begun again; others read, newest versions and those that may still be read; and
others do nothing but upkeep, with the least time to keep things that is longer than any job here lasts. Nothing that a
reader may still see is missing, every acknowledged value is there once in the end, and upkeep has deleted something.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from report import Report

import support.loaded  # noqa: F401  for all children
from lakeseal import Repository, Table, ledger
from lakeseal.commit import post_commit
from lakeseal.errors import ConcurrentModification, LakesealError
from lakeseal.owner import ledger_owner
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.storage import open_store
from models.history import check_history

SECONDS = 240
KEPT_S = 60.0
"""Whatever is younger stays; no job here takes as long."""
_KILL_EVERY_S = 2.0
_WRITERS = 3


class Lake:
    """As one process has it open."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = f"sqlite:///{root}/ledger.db"
        self._owner: LedgerOwner | None = None

    @property
    def owner(self) -> LedgerOwner:
        if self._owner is None:
            self._owner = LedgerOwner(ledger.open(self.url), batch_size=5, in_background=True)
        return self._owner

    def table(self, name: str) -> Table:
        return Table(self.root / name, owner=self.owner if name == "managed" else None)

    @property
    def repository(self) -> Repository:
        return Repository.open(self.root / "repo", ledger=self.url)


TABLES = ("plain", "managed")


def main(report: Report) -> None:
    counts, violations = beside(SECONDS, kept_s=KEPT_S)
    for what, number in sorted(counts.items()):
        report.count(what, number)
    for one in violations:
        report.violation(one)


def beside(seconds: float, *, kept_s: float = KEPT_S) -> tuple[Counter[str], list[str]]:
    root = Path(tempfile.mkdtemp(prefix="lakeseal-upkeep-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    try:
        return _beside(root, seconds, kept_s)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _beside(root: Path, seconds: float, kept_s: float) -> tuple[Counter[str], list[str]]:
    until = time.monotonic() + seconds
    _wait(_start(root, "making", 0, lambda said: _make(root, kept_s)))
    jobs: dict[str, Callable[[Callable[[str], None], random.Random], object]] = {
        **{f"writer-{n}": lambda said, dice, n=n: _write(root, n, said, dice) for n in range(_WRITERS)},  # type: ignore[misc]
        "reader": lambda said, dice: _read(root, said, dice),
        "upkeep": lambda said, dice: _keep_up(root, kept_s, said, dice),
    }
    dice = random.Random(1)
    running: dict[str, int] = {}
    number = 0
    kills = 0
    while time.monotonic() < until:
        for name, job in jobs.items():
            if name not in running:
                number += 1
                running[name] = _start(
                    root,
                    name,
                    number,
                    lambda said, job=job, number=number: job(said, random.Random(number)),  # type: ignore[misc]
                )
        time.sleep(_KILL_EVERY_S * dice.random())
        name = dice.choice([name for name in running if name != "reader"])
        os.kill(running[name], signal.SIGKILL)
        kills += 1
        for name, child in list(running.items()):
            if os.waitpid(child, os.WNOHANG)[0]:
                del running[name]
        if dice.random() < 0.5:
            time.sleep(0.05)
    for child in running.values():
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    _wait(_start(root, "ending", number + 1, lambda said: _end(root, kept_s, said)))
    counts: Counter[str] = Counter()
    violations: list[str] = []
    for line in (root / "said").read_text().splitlines():
        what, _, more = line.partition(" ")
        if what == "VIOLATION":
            violations.append(str(json.loads(more)))
        elif what in ("count", "done"):
            counts[more.rpartition(" ")[0] if what == "count" else "acknowledged"] += (
                int(more.rpartition(" ")[2]) if what == "count" else 1
            )
    counts["kills"] = kills
    if not counts["deleted by upkeep"]:
        violations.append("upkeep deleted nothing, so that nothing was shown")
    return counts, violations


def _start(root: Path, name: str, number: int, do: Callable[[Callable[[str], None]], object]) -> int:
    child = os.fork()
    if child:
        return child
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 2)
    descriptor = os.open(root / "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def said(text: str) -> None:
        os.write(descriptor, f"{text}\n".encode())

    code = 0
    try:
        do(said)
    except BaseException:
        said(f"VIOLATION {json.dumps(f'{name} {number}: {traceback.format_exc()[-2500:]}')}")
        code = 1
    os._exit(code)


def _wait(child: int) -> None:
    os.waitpid(child, 0)


def _batch(number: int, who: int) -> pa.Table:
    return pa.table({"id": [number], "who": [who], "state": ["new"]})


def _make(root: Path, kept_s: float) -> None:
    lake = Lake(root)
    kept = f"interval {kept_s:.0f} seconds"
    for name in TABLES:
        # Short, so that there is something to delete, and longer than anybody here works.
        properties = {
            "delta.checkpointInterval": "5",
            "delta.deletedFileRetentionDuration": kept,
            "delta.enableDeletionVectors": "true" if name == "plain" else "false",
        }
        lake.table(name).write(_batch(-1, -1), properties=properties)
        long_ago = time.time() - 30 * 86_400
        for number in range(20):
            orphan = root / name / f"part-{number:05d}-left-by-somebody-who-died.parquet"
            orphan.write_bytes(b"nobody's")
            os.utime(orphan, (long_ago, long_ago))
    Repository.create(lake.root / "repo", ledger=lake.url)
    post_commit.flush()
    ledger_owner.flush()


def _write(root: Path, who: int, said: Callable[[str], None], dice: random.Random) -> None:
    """Until it is killed. A number is written under its own transaction, then changed, and then may be deleted."""
    lake = Lake(root)
    number = time.monotonic_ns()
    while True:
        number += 1
        name = dice.choice((*TABLES, "repo"))
        try:
            if name == "repo":
                lake.repository.put("main", f"{who}/{number}", b"%d" % number)
                said(f"done {name} {number} new")
                continue
            table = lake.table(name)
            said(f"begun {name} {number}")
            table.write(_batch(number, who), txn=(f"writer-{who}-{number}", 1))
            said(f"done {name} {number} new")
            if dice.random() < 0.3:
                said(f"begun {name} {number}")
                table.update({"state": "'changed'"}, where=f"id = {number}")
                said(f"done {name} {number} changed")
            elif dice.random() < 0.3:
                said(f"begun {name} {number}")
                table.delete(f"id = {number}")
                said(f"done {name} {number} deleted")
        except ConcurrentModification:
            continue


def _read(root: Path, said: Callable[[str], None], dice: random.Random) -> None:
    """Newest versions, the ten before them, and the same snapshot again a moment later."""
    lake = Lake(root)
    while True:
        table = lake.table(dice.choice(TABLES))
        newest = table.version()
        rows = table.to_arrow(newest)
        said("count reads 1")
        back = max(0, newest - dice.randrange(10))
        try:
            there = table.to_arrow(back)
            said("count reads of older versions 1")
            time.sleep(dice.random() * 0.2)
            assert table.to_arrow(back).num_rows == there.num_rows, f"version {back} has changed"
            assert table.to_arrow(newest).num_rows == rows.num_rows, f"version {newest} has changed"
        except LakesealError as error:
            raise AssertionError(f"version {back} of {newest} can't be read any more: {error}") from error
        repo = lake.repository
        for entry in repo.list("main"):
            repo.read("main", entry.path)
        said("count reads of the branch 1")


def _keep_up(root: Path, kept_s: float, said: Callable[[str], None], dice: random.Random) -> None:
    lake = Lake(root)
    while True:
        table = lake.table(dice.choice(TABLES))
        try:
            match dice.randrange(6):
                case 0 | 1:
                    gone = table.vacuum(hours=kept_s / 3600, enforce_retention_duration=False)
                    said(f"count deleted by upkeep {len(gone.deleted)}")
                    said("count vacuums 1")
                case 2:
                    table.optimize()
                    said("count optimized 1")
                case 3:
                    table.cleanup()
                    lake.table("plain").checkpoint()
                    said("count clean-ups and checkpoints 1")
                case 4:
                    newest = Table(root / "plain").version()
                    Table(root / "plain").compact_log(max(0, newest - 6), newest)
                    said("count compactions 1")
                case _:
                    found = lake.repository.gc(job_grace_hours=kept_s / 3600, history_days=kept_s / 86_400)
                    said(f"count deleted by upkeep {found.objects}")
                    said("count collections 1")
        except ConcurrentModification:
            said("count upkeep that others were faster than 1")


def _end(root: Path, kept_s: float, said: Callable[[str], None]) -> None:
    """What is there in the end is what was acknowledged, or what was begun and nobody was told of."""
    lake = Lake(root)
    wanted: dict[str, dict[int, str]] = {name: {} for name in (*TABLES, "repo")}
    unsure: dict[str, set[int]] = {name: set() for name in (*TABLES, "repo")}
    for line in (root / "said").read_text().splitlines():
        what, *more = line.split(" ")
        if what == "done":
            wanted[more[0]][int(more[1])] = more[2]
            unsure[more[0]].discard(int(more[1]))
        elif what == "begun":
            unsure[more[0]].add(int(more[1]))
    for name in TABLES:
        table = lake.table(name)
        gone = table.vacuum(hours=kept_s / 3600, enforce_retention_duration=False)
        said(f"count deleted by upkeep {len(gone.deleted)}")
        rows = [(row["id"], row["state"]) for row in table.to_arrow().to_pylist() if row["id"] != -1]
        found = dict(rows)
        assert len(found) == len(rows), f"{name} has values twice"
        for number, state in wanted[name].items():
            if number not in unsure[name]:
                seen = found.get(number, "deleted")
                assert seen == state, f"{name}: {number} was acknowledged as {state} and is {seen}"
        strangers = set(found) - set(wanted[name]) - unsure[name]
        assert not strangers, f"{name} has values that nobody wrote: {strangers}"
        lake.owner.backfill(table.uri) if name == "managed" else None
        said(f"count versions {len(_history(root / name))}")
    paths = {entry.path for entry in lake.repository.list("main")}
    missing = [n for n in wanted["repo"] if not any(path.endswith(f"/{n}") for path in paths)]
    assert not missing, f"the branch has lost {missing}"
    for path in paths:
        assert lake.repository.read("main", path) == path.rpartition("/")[2].encode()


def _history(folder: Path) -> list[Any]:
    return check_history(open_store(folder))
