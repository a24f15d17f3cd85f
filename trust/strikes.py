"""One scenario, struck at each of its effects in each way, and what somebody finds and does who comes after."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from children import Ended, in_child
from effects import Effect, Effects, Site, Way, ways
from scenarios import NOBODY, POSTGRESQL, Lake, Scenario, Step

import support.loaded  # noqa: F401  for all children
from lakeseal.errors import LakesealError

_WORTH_LOADING = frozenset({"lakeseal", "pyarrow", "sqlalchemy", "sqlite3", "psycopg", "alembic", "uuid", "decimal"})


class Case(NamedTuple):
    scenario: Scenario
    ledger: str

    @property
    def name(self) -> str:
        return f"{self.scenario.name} on {self.ledger}" if self.ledger else self.scenario.name


class Struck(NamedTuple):
    """What came of one case."""

    points: int
    """Effects of a run that nothing happens to."""
    counts: dict[str, int]
    """By kind and way, separated by a blank."""
    sites: list[Site]
    violations: list[str]
    retried: int
    """How often a client that was told of a failure did the same again, and it was done."""


class Act(NamedTuple):
    """One step that nothing happened to."""

    effects: list[Effect]
    before: dict[str, Any]
    """What could be seen."""
    after: dict[str, Any]
    end: dict[str, Any]
    """What the scenario's `end` sees then."""


class Stage:
    """Where one case is played, always at the same place, since tables and ledgers name it. What is there before each
    step is kept."""

    def __init__(self, case: Case, root: Path, server: str | None) -> None:
        self.case = case
        self.home = root / "home"
        self.acknowledged = root / "acknowledged"
        self._root = root
        self._server = server
        self._live = f"trust_{os.getpid()}_{time.monotonic_ns()}"
        self._rows: list[dict[str, bytes]] = []
        """What PostgreSQL's tables hold, by name: putting that back is faster than a database anew."""
        match case.ledger:
            case "sqlite":
                self.url = f"sqlite:///{self.home}/ledger.db"
            case "postgresql":
                assert server is not None
                self.url = server.replace("/postgres?", f"/{self._live}?")
            case _:
                self.url = NOBODY

    def lake(self) -> Lake:
        return Lake(self.home, self.url)

    def set(self) -> None:
        """What is there before the first step is made, and kept."""
        self.home.mkdir(parents=True)
        if self.case.ledger == POSTGRESQL:
            self._sql(f"CREATE DATABASE {self._live}")

        def make() -> None:
            self.case.scenario.prepare(self.lake())

        made = in_child(make)
        if made.code != 0:
            raise RuntimeError(f"{self.case.name} could not be prepared:\n{made.said}")
        self.keep(0)

    def keep(self, step: int) -> None:
        shutil.copytree(self.home, self._root / f"kept-{step}", symlinks=True)
        if self.case.ledger == POSTGRESQL:
            self._rows.append(self._read_rows())

    def reset(self, step: int) -> None:
        shutil.rmtree(self.home)
        shutil.copytree(self._root / f"kept-{step}", self.home, symlinks=True)
        self.acknowledged.unlink(missing_ok=True)
        if self.case.ledger == POSTGRESQL:
            self._put_rows_back(self._rows[step])

    def strike(self) -> None:
        if self.case.ledger == POSTGRESQL:
            self._sql(f"DROP DATABASE IF EXISTS {self._live} WITH (FORCE)")
        shutil.rmtree(self._root, ignore_errors=True)

    def _read_rows(self) -> dict[str, bytes]:
        found = {}
        with psycopg.connect(self.url) as connection, connection.cursor() as cursor:
            names = cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'lakeseal'").fetchall()
            for (name,) in names:
                with cursor.copy(f"COPY lakeseal.{name} TO STDOUT") as out:  # type: ignore[arg-type]
                    found[name] = b"".join(map(bytes, out))
        return found

    def _put_rows_back(self, kept: dict[str, bytes]) -> None:
        """Also from whoever was killed inside a transaction, which the server may not know yet."""
        with psycopg.connect(self.url) as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            if not kept:  # nobody had opened the ledger yet
                cursor.execute("DROP SCHEMA IF EXISTS lakeseal CASCADE")
            cursor.execute("SET session_replication_role = replica")  # in any order, whoever refers to whom
            for name, rows in kept.items():
                cursor.execute(f"DELETE FROM lakeseal.{name}")  # type: ignore[arg-type]
                if rows:
                    with cursor.copy(f"COPY lakeseal.{name} FROM STDIN") as into:  # type: ignore[arg-type]
                        into.write(rows)

    def _sql(self, text: str) -> None:
        assert self._server is not None
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(text)  # type: ignore[call-overload]


def plain(value: Any) -> Any:
    """As JSON would say it."""
    return json.loads(json.dumps(value, default=str))


def rehearse(stage: Stage) -> tuple[list[Act], set[Site]]:
    """All steps, with all of their effects, and what there is before each is kept."""
    scenario = stage.case.scenario
    acts: list[Act] = []
    sites: set[Site] = set()

    def look() -> Any:
        return scenario.look(stage.lake())

    def go(step: Step) -> Any:
        lake = stage.lake()
        effects = Effects(str(stage.home))
        effects.install()
        step(lake)
        lake.settle()
        seen, sites = list(effects.seen), sorted(effects.sites)
        after, end = scenario.look(lake), scenario.end(lake)
        loaded = [name for name in sys.modules if name.partition(".")[0] in _WORTH_LOADING]
        return {"seen": seen, "sites": sites, "after": after, "end": end, "loaded": loaded}

    before = _came_through(stage, in_child(look))
    stage.reset(0)  # whoever looked has opened a ledger, which the step that is struck does
    for number, step in enumerate(scenario.steps):
        said = _came_through(stage, in_child(lambda: go(step)))  # noqa: B023
        acts.append(Act([Effect(*one) for one in said["seen"]], before, said["after"], said["end"]))
        sites |= {Site(*one) for one in said["sites"]}
        before = said["after"]
        for name in said["loaded"]:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)  # once, and not in each child
        stage.keep(number + 1)
    gc.collect()
    gc.freeze()
    return acts, sites


def _came_through(stage: Stage, ended: Ended) -> Any:
    if ended.code != 0:
        raise RuntimeError(f"{stage.case.name} does not go through undisturbed:\n{ended.said or ended.code}")
    return ended.said


def play(stage: Stage, number: int, effects: Effects) -> dict[str, Any]:
    """In a child: one step, struck at one effect. When it fails with a typed error, it is done once more."""
    effects.struck = lambda effect: _note(stage.acknowledged, f"struck {effect.kind} {effect.about}")
    effects.install()
    lake = stage.lake()
    step = stage.case.scenario.steps[number]
    retried = 0
    try:
        step(lake)
    except LakesealError:
        retried += 1
        step(lake)
    _note(stage.acknowledged, "done")
    lake.settle()
    return {"retried": retried, "sites": sorted(effects.sites)}


def _note(place: Path, text: str, _open: Any = os.open, _write: Any = os.write) -> None:
    descriptor = _open(str(place), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    _write(descriptor, f"{text}\n".encode())
    os.close(descriptor)


def come_after(stage: Stage, number: int, act: Act, *, done: bool) -> None:
    """In a child: what must hold, before and after upkeep, and when the step has been done."""
    scenario = stage.case.scenario
    lake = stage.lake()
    found = plain(scenario.look(lake))
    for name in {**act.before, **act.after}:
        allowed = [act.after.get(name)] if done else [act.before.get(name), act.after.get(name)]
        assert found.get(name) in allowed, f"{name} is {found.get(name)}, and not one of {allowed}"
    scenario.upkeep(lake)
    kept = plain(scenario.look(lake))
    assert kept == found, f"upkeep changed what is seen from {found} to {kept}"
    scenario.steps[number](lake)
    lake.settle()
    ended = plain(scenario.end(lake))
    assert ended == act.end, f"in the end there is {ended}, not {act.end}"
    scenario.sound(lake)
    found = plain(scenario.look(lake))
    assert found == act.after, f"in the end there is {found}, not {act.after}"


def struck_everywhere(case: Case, root: Path, server: str | None, *, every: int = 1) -> Struck:
    """Every effect in every way that leaves something else (`effects.DIFFERENT`), and the first before it happens; or
    every so many of these."""
    stage = Stage(case, root, server)
    counts: Counter[str] = Counter()
    violations: list[str] = []
    retried = 0
    try:
        stage.set()
        acts, sites = rehearse(stage)
        points = [(0, 1, Way.BEFORE)]
        for number, act in enumerate(acts):
            points += [
                (number, at, way)
                for at, effect in enumerate(act.effects, start=1)
                # Files are the same whatever ledger there is.
                if case.ledger != POSTGRESQL or effect.kind in ("statement", "commit")
                for way in ways(effect.kind)
            ]
        for number, at, way in points[::every]:
            stage.reset(number)
            ended = in_child(lambda: play(stage, number, Effects(str(stage.home), at, way)))  # noqa: B023
            notes = stage.acknowledged.read_text().splitlines() if stage.acknowledged.exists() else []
            hit = next((note.split(" ", 2) for note in notes if note.startswith("struck ")), None)
            where = f"{case.name}, step {number + 1}, {way.name.lower()} at effect {at}"
            if hit is None:
                # What goes on in the background is not always as much.
                if ended.code != 0:
                    violations.append(f"{where}: it was not struck, and ended so: {ended.said or ended.code}")
                counts["not come to NONE"] += 1
                continue
            where += f", {hit[1]} {hit[2]}"
            if hit[1] != acts[number].effects[at - 1].kind:
                counts["of another kind NONE"] += 1
            counts[f"{hit[1]} {way.name}"] += 1
            if not ended.was_killed and ended.code != 0:
                violations.append(f"{where}: {'it hangs' if ended.hung else ended.said or ended.code}")
            elif not ended.was_killed:
                retried += ended.said["retried"]
                sites |= {Site(*one) for one in ended.said["sites"]}
            after = in_child(lambda: come_after(stage, number, acts[number], done="done" in notes))  # noqa: B023
            if after.code != 0:
                violations.append(f"{where}: {after.said or after.code}")
        return Struck(sum(len(act.effects) for act in acts), dict(counts), sorted(sites), violations, retried)
    finally:
        stage.strike()


def told(answer: Any) -> Struck:
    """As it comes from another process."""
    points, counts, sites, violations, retried = answer
    return Struck(points, counts, [Site(*one) for one in sites], violations, retried)
