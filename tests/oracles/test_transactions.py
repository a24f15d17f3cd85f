"""Random histories of concurrent transactions over three tables, held against what their levels promise.

The transactions of a history are programs whose writes depend on what they read. They run in one thread, which
whenever the owner is asked for anything may go on with another program first: so every interleaving can come up, and
each can be seen again. The judge is a few dictionaries of rows:

- Whatever was read, by transactions that failed too, is what one moment between two commits held.
- A commit changes the tables by what its program makes of what it read, and by nothing else.
- At `Serializable` everything that was read is as it was read right before the commit: running all programs again one
  after the other, in the order of their commits, gives every read and the last state.
- At `WriteSerializable` it is so but for rows of blind appends that came in between.
- At `SnapshotIsolation` no row that was read is gone right before the commit.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from msgspec import Struct, field

import lakeseal
from lakeseal import ledger
from lakeseal.commands.command import NothingToDo
from lakeseal.errors import ConcurrentModification, ConstraintViolation, InvalidArgument
from lakeseal.log.scan import Scan
from lakeseal.owner.ledger_owner import LedgerOwner
from lakeseal.owner.messages import Batch, BatchAnswer, Ratified, TableCommits
from lakeseal.storage import open_store
from lakeseal.transactions import TablesTransaction
from oracles.seeds import case, cases

Row = tuple[int, int]
Rows = Counter[Row]
State = dict[str, Rows]

NAMES = "abc"
LEVELS = ("Serializable", "WriteSerializable", "SnapshotIsolation")
SCHEMA = pa.schema({"k": pa.int64(), "v": pa.int64()})


class Where(Struct, frozen=True):
    sql: str | None
    holds: Callable[[Row], bool]

    def of(self, rows: Rows) -> Rows:
        return Counter({row: count for row, count in rows.items() if self.holds(row)})


EVERYTHING = Where(None, lambda row: True)
NOTHING = Where(None, lambda row: False)
WHERES = (
    EVERYTHING,
    Where("k = 1", lambda row: row[0] == 1),
    Where("k <= 1", lambda row: row[0] <= 1),
    Where("k > 1", lambda row: row[0] > 1),
    Where("k = 0 OR k = 3", lambda row: row[0] in (0, 3)),
    Where("v > 500", lambda row: row[1] > 500),
    Where("k IN (1, 2) AND v % 2 = 0", lambda row: row[0] in (1, 2) and row[1] % 2 == 0),
)
RANGES = (WHERES[1], WHERES[2], WHERES[3])


class Read(Struct):
    """What was read, and of which version."""

    table: str
    version: int
    where: Where
    rows: Rows


class Change(Struct):
    """What becomes of a table: rows that go were found in this version."""

    table: str
    version: int
    gone: Where | None
    come: Callable[[Rows], Rows]
    """By what the rows that go were."""


class Program(Struct):
    name: str
    level: str
    run: Callable[[Program], Iterator[None]]
    reads: list[Read] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    began: int = 0
    asked: int = 0
    """How many commits there were when it asked whether what it read still holds."""
    ended: int = 0
    state: str = "waits"
    at: int | None = None
    """Its place among the commits."""
    versions: dict[str, int] = field(default_factory=dict)
    steps: Iterator[None] | None = None

    @property
    def is_blind(self) -> bool:
        return not self.reads and all(change.gone is None for change in self.changes)

    def __str__(self) -> str:
        return f"{self.name} ({self.level}, {self.state})"


class History:
    """An owner that lets others go first, and the programs that use it."""

    def __init__(self, owner: LedgerOwner, chance: random.Random) -> None:
        self._owner, self.chance = owner, chance
        self.name, self.batch_size, self.inline_bytes = owner.name, owner.batch_size, owner.inline_bytes
        self.programs: list[Program] = []
        self.commits: list[Program] = []
        self._running: list[Program] = []
        self._thread = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._owner, name)

    def get_commits(self, table: str, start_version: int = 0) -> TableCommits:
        self._pause(0.15)
        return self._owner.get_commits(table, start_version)

    def get_commits_of(self, tables: Sequence[str]) -> tuple[TableCommits, ...]:
        self._pause(0.3)
        return self._owner.get_commits_of(tables)

    def ratify(self, batch: Batch, **more: Any) -> BatchAnswer:
        self._pause(0.6)
        answer = self._owner.ratify(batch, **more)
        if self._running and all(isinstance(one, Ratified) for one in answer.commits):
            program = self._running[-1]
            program.at = len(self.commits)
            program.versions = {one.table.rpartition("/")[2]: one.version for one in answer.commits}
            self.commits.append(program)
        return answer

    def _pause(self, likely: float) -> None:
        """Others may do a step or two, unless it is a thread in the background that asks."""
        while self._running and threading.get_ident() == self._thread and self.chance.random() < likely:
            idle = self._idle()
            if not idle:
                return
            self._step(self.chance.choice(idle))

    def _idle(self) -> list[Program]:
        return [p for p in self.programs if p.state in ("waits", "open") and p not in self._running]

    def _step(self, program: Program) -> None:
        self._running.append(program)
        try:
            if program.steps is None:
                program.began, program.state, program.steps = len(self.commits), "open", program.run(program)
            next(program.steps)
        except StopIteration:
            program.state = "done"
        except (ConcurrentModification, ConstraintViolation, InvalidArgument) as error:
            program.state = f"failed: {error.kind}"
        finally:
            self._running.pop()
            program.ended = len(self.commits)

    def run(self) -> None:
        while idle := self._idle():
            self._step(self.chance.choice(idle))


class Tables:
    """Three of them, with rows and of several kinds."""

    def __init__(self, history: History) -> None:
        self.history, self.chance = history, history.chance
        self.root = f"memory://{uuid.uuid4().hex}"
        self.first: State = {}
        for name in NAMES:
            properties = {"delta.enableDeletionVectors": "true"} if self.chance.random() < 0.3 else {}
            if self.chance.random() < 0.15:
                properties["delta.enableRowTracking"] = "true"
            table = lakeseal.create(self.uri(name), SCHEMA, properties=properties, owner=history)
            self.first[name] = Counter()
            for _ in range(self.chance.randint(0, 2)):
                rows = self.rows(self.chance.randint(1, 3))
                table.write(arrow(rows))
                self.first[name] += rows
        self.first_versions = {name: self.table(name).version() for name in NAMES}

    def uri(self, name: str) -> str:
        return f"{self.root}/{name}"

    def table(self, name: str) -> lakeseal.Table:
        return lakeseal.Table(self.uri(name), owner=self.history)

    def rows(self, count: int, where: Where = EVERYTHING, sum_of: int = 0) -> Rows:
        found: Rows = Counter()
        while found.total() < count:
            row = (self.chance.randint(0, 3), (self.chance.randint(0, 999) + sum_of) % 1000)
            if where.holds(row):
                found[row] += 1
        return found


def arrow(rows: Rows) -> pa.Table:
    listed = sorted(rows.elements())
    return pa.table({"k": [k for k, _ in listed], "v": [v for _, v in listed]}, schema=SCHEMA)


def counted(table: pa.Table) -> Rows:
    return Counter(zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True))


def digest(reads: Sequence[Read]) -> int:
    return sum((row[0] + 1) * row[1] * count + 17 for read in reads for row, count in read.rows.items())


def over_several(tables: Tables, level: str) -> Program:
    """Reads and writes in any order, each table written once, and not read after that: `tests/owner/test_statements.py`
    has those that see what they did."""
    chance = tables.chance
    names = chance.sample(NAMES, chance.randint(1, 3))
    named = chance.random() < 0.4
    todo: list[tuple[str, str]] = []
    for name in names:
        todo += [("read", name)] * chance.choice((0, 1, 1, 2))
        todo += [(chance.choice(("append", "append", "overwrite", "replace")), name)] * (chance.random() < 0.6)
    chance.shuffle(todo)
    written = {name: at for at, (what, name) in enumerate(todo) if what != "read"}
    todo = [step for at, step in enumerate(todo) if step[0] != "read" or at < written.get(step[1], len(todo))]

    def run(program: Program) -> Iterator[None]:
        txn = lakeseal.transaction(
            tables.history, isolation_level=level, tables=[tables.uri(name) for name in names] if named else ()
        )
        try:
            yield
            for what, name in todo:
                one_step(program, txn, what, name)
                yield
            program.asked = len(tables.history.commits)
            txn.commit()
        finally:
            note_versions(program, txn)

    def one_step(program: Program, txn: TablesTransaction, what: str, name: str) -> None:
        part = txn.table(tables.uri(name))
        if what == "read":
            where = chance.choice(WHERES)
            program.reads.append(Read(name, -1, where, counted(part.to_arrow(where=where.sql))))
            return
        where = chance.choice(RANGES)
        rows = tables.rows(chance.randint(1, 2), where if what == "replace" else EVERYTHING, digest(program.reads))
        gone = {"append": None, "overwrite": EVERYTHING, "replace": where}[what]
        if what == "append":
            part.write(arrow(rows))
        else:
            part.write(arrow(rows), mode="overwrite", replace_where=where.sql if what == "replace" else None)
        program.changes.append(Change(name, -1, gone, lambda old: rows))

    def note_versions(program: Program, txn: TablesTransaction) -> None:
        seen = {name: txn._transaction._parts.get(tables.uri(name)) for name in names}
        for one in (*program.reads, *program.changes):
            part = seen[one.table]
            assert part is not None
            one.version = part.txn.read_version

    what = ", ".join(f"{what} {name}" for what, name in todo)
    return Program(f"transaction({what})", level, run)


def of_one_table(tables: Tables, level: str) -> Program:
    chance = tables.chance
    name, where, ranged = chance.choice(NAMES), chance.choice(WHERES), chance.choice(RANGES)
    rows = tables.rows(chance.randint(1, 2))
    fitting, source = ranged.of(rows), dict(rows.keys())
    # For each: which rows go, what comes for them, and how it is said.
    ways: dict[str, tuple[Where | None, Callable[[Rows], Rows], Callable[[lakeseal.Table], Any]]] = {
        "append": (None, lambda old: rows, lambda table: table.write(arrow(rows), isolation_level=level)),
        "delete": (where, lambda old: Counter(), lambda table: table.delete(where.sql, isolation_level=level)),
        "update": (
            where,
            updated,
            lambda table: table.update({"v": "(v + 100) % 1000"}, where.sql, isolation_level=level),
        ),
        "merge": (
            Where(None, lambda row: row[0] in source),
            lambda old: merged(old, source),
            lambda table: (
                table.merge(arrow(Counter(source.items())), "t.k = s.k", isolation_level=level)
                .when_matched_update({"v": "s.v"})
                .when_not_matched_insert({"k": "s.k", "v": "s.v"})
                .execute()
            ),
        ),
        "overwrite": (
            EVERYTHING,
            lambda old: rows,
            lambda table: table.write(arrow(rows), mode="overwrite", isolation_level=level),
        ),
        "replace": (
            ranged,
            lambda old: fitting,
            lambda table: table.write(
                arrow(fitting), mode="overwrite", replace_where=ranged.sql, isolation_level=level
            ),
        ),
        "optimize": (NOTHING, lambda old: Counter(), lambda table: table.optimize(isolation_level=level)),
    }
    what = chance.choice(list(ways))
    gone, come, change = ways[what]

    def run(program: Program) -> Iterator[None]:
        table = tables.table(name)
        yield
        change(table)
        program.changes.append(Change(name, -1, gone, come))

    return Program(f"{what} {name}", level, run)


def restore(tables: Tables, level: str) -> Program:
    name = tables.chance.choice(NAMES)

    def run(program: Program) -> Iterator[None]:
        table = tables.table(name)
        version = tables.chance.randint(0, table.version())
        then = counted(table.to_arrow(version=version))
        yield
        if not isinstance(table.restore(version, isolation_level=level), NothingToDo):
            program.changes.append(Change(name, -1, EVERYTHING, lambda old: then))

    return Program(f"restore {name}", level, run)


def once(tables: Tables, level: str) -> Program:
    """A batch of an application, which some others try to write too."""
    name = tables.chance.choice(NAMES)
    rows = tables.rows(1)

    def run(program: Program) -> Iterator[None]:
        yield
        written = tables.table(name).write(arrow(rows), txn=("app", 1), isolation_level=level)
        if not isinstance(written, NothingToDo):
            program.changes.append(Change(name, -1, None, lambda old: rows))

    return Program(f"once {name}", level, run)


def alter(tables: Tables, level: str) -> Program:
    """Says something of all rows, or of how they are kept."""
    chance = tables.chance
    name, limit = chance.choice(NAMES), chance.choice((700, 950, 2000))
    ways: dict[str, Callable[[lakeseal.Table], Any]] = {
        f"constraint {limit}": lambda table: table.add_constraint(f"below_{uuid.uuid4().hex}", f"v < {limit}"),
        "vectors": lambda table: table.set_properties({"delta.enableDeletionVectors": "true"}),
        "row tracking": lambda table: table.set_properties({"delta.enableRowTracking": "true"}),
        "maintenance": lambda table: table.set_properties({"delta.checkpointInterval": chance.randint(2, 9)}),
        "new column": lambda table: table.add_columns(pa.schema({f"c{chance.randint(0, 9)}": pa.int64()})),
    }
    what = chance.choice(list(ways))

    def run(program: Program) -> Iterator[None]:
        table = tables.table(name)
        yield
        ways[what](table)

    return Program(f"{what} of {name}", level, run)


def updated(old: Rows) -> Rows:
    new: Rows = Counter()
    for (k, v), count in old.items():
        new[(k, (v + 100) % 1000)] += count
    return new


def merged(old: Rows, source: Mapping[int, int]) -> Rows:
    new: Rows = Counter()
    for (k, _), count in old.items():
        new[(k, source[k])] += count
    for k in source.keys() - {k for k, _ in old}:
        new[(k, source[k])] += 1
    return new


def at_one_moment(tables: Tables, level: str) -> Program:
    names = tables.chance.sample(NAMES, 2)

    def run(program: Program) -> Iterator[None]:
        yield
        found = lakeseal.snapshots(tables.history, [tables.uri(name) for name in names])
        for name, snapshot in zip(names, found, strict=True):
            rows = counted(Scan(snapshot, open_store(tables.uri(name))).to_arrow())
            program.reads.append(Read(name, snapshot.version, EVERYTHING, rows))

    return Program(f"snapshots of {', '.join(names)}", level, run)


class Judge:
    """The states of the tables after each commit, by what the programs say that they do."""

    def __init__(self, tables: Tables) -> None:
        self.tables, self.history = tables, tables.history
        self.states: list[State] = [tables.first]
        self.versions: list[dict[str, int]] = [tables.first_versions]
        for program in self.history.commits:
            self._note_read_versions(program)
            state, versions = dict(self.states[-1]), dict(self.versions[-1])
            for change in program.changes:
                old = Counter[Row]() if change.gone is None else change.gone.of(self.at(change.table, change.version))
                assert not old - state[change.table], f"{program} removed rows of {change.table} twice"
                state[change.table] = state[change.table] - old + change.come(old)
            for name, version in program.versions.items():
                assert version == versions[name] + 1
                versions[name] = version
            self.states.append(state)
            self.versions.append(versions)

    def _note_read_versions(self, program: Program) -> None:
        for change in program.changes:
            info = self.tables.table(change.table)._log.commit_info(program.versions[change.table])
            assert info is not None
            if change.version < 0:
                change.version = int(info.read_version)
            assert info.is_blind_append is program.is_blind, f"{program} says otherwise"

    def at(self, table: str, version: int) -> Rows:
        """The table's rows at a version that was there when the program read it."""
        return next(s[table] for s, v in zip(self.states, self.versions, strict=True) if v[table] == version)

    def check(self) -> None:
        for name, rows in self.states[-1].items():
            assert counted(self.tables.table(name).to_arrow()) == rows, f"the last state of {name}"
            self._check_rules(name)
            assert sum(program.name == f"once {name}" for program in self.history.commits) <= 1
        for program in self.history.programs:
            self._check_moment(program)
            if program.state == "done" and program.reads + program.changes:
                self._check_promise(program)

    def _check_rules(self, name: str) -> None:
        """What the table's metadata says is true of it, in every version."""
        for version in range(self.versions[-1][name] + 1):
            snapshot = self.tables.table(name).snapshot(version)
            if snapshot.properties.row_tracking:
                assert snapshot.files["baseRowId"].null_count == 0, f"version {version} of {name}"
            for said in snapshot.properties.constraints.values():
                limit = int(said.rpartition("<")[2])
                assert version <= self.tables.first_versions[name] or all(
                    v < limit for _, v in self.at(name, version)
                ), f"version {version} of {name} breaks {said}"

    def _check_moment(self, program: Program) -> None:
        for read in program.reads:
            assert read.rows == read.where.of(self.at(read.table, read.version)), f"{program} read {read}"
        seen = {read.table: read.version for read in program.reads}
        moments = [n for n, v in enumerate(self.versions) if all(v[t] == version for t, version in seen.items())]
        wanted = range(program.began, program.ended + 1)
        assert any(n in wanted for n in moments), f"{program} saw no moment between {wanted}: {seen}"

    def _check_promise(self, program: Program) -> None:
        reads = program.reads + [
            Read(change.table, change.version, change.gone, self._found(change))
            for change in program.changes
            if change.gone is not None
        ]
        # Who only read was looked at after it had asked; who commits, at the commit.
        first = max(program.began, program.asked)
        places = [program.at] if program.at is not None else range(first, program.ended + 1)
        assert any(all(self._holds(read, place, program.level) for read in reads) for place in places), f"{program}"

    def _found(self, change: Change) -> Rows:
        """The rows that went; who has not committed has found none."""
        assert change.gone is not None
        return Counter() if change.version < 0 else change.gone.of(self.at(change.table, change.version))

    def _holds(self, read: Read, place: int, level: str) -> bool:
        now = read.where.of(self.states[place][read.table])
        match level:
            case "Serializable":
                return now == read.rows
            case "WriteSerializable":
                return now == read.rows + read.where.of(self._blindly_added(read, place))
            case _:
                return not read.rows - now

    def _blindly_added(self, read: Read, place: int) -> Rows:
        added: Rows = Counter()
        for program in self.history.commits[:place]:
            if program.is_blind and program.versions.get(read.table, -1) > read.version:
                for change in program.changes:
                    added += change.come(Counter()) if change.table == read.table else Counter()
        return added


def run_history(owner: LedgerOwner, chance: random.Random, level: str | None) -> History:
    """At one level, or each program at its own."""
    history = History(owner, chance)
    tables = Tables(history)
    kinds = (over_several,) * 5 + (of_one_table,) * 4 + (at_one_moment, restore, once, once, alter, alter)
    for _ in range(chance.randint(3, 5)):
        history.programs.append(chance.choice(kinds)(tables, level or chance.choice(LEVELS)))
    history.run()
    Judge(tables).check()
    return history


def hunt(url: str, level: str | None, short: int, full: int) -> None:
    done: Counter[str] = Counter()
    for seed in cases(short, full):
        with case(seed) as chance, closing(ledger.open(url)) as opened:
            owner = LedgerOwner(opened, batch_size=chance.choice((1, 3, 100)))
            history = run_history(owner, chance, level)
            for program in history.programs:
                done[program.state] += 1
            done["beside others"] += sum(p.at is not None and p.at > p.began for p in history.commits)
    print(f"{level or 'each its own'}: {len(cases(short, full))} histories, {dict(done)}")  # pytest -s shows it
    if done.total() > 100:
        assert done["done"] > 0.4 * done.total() / 2
        assert done["beside others"] > 0
        assert any(state.startswith("failed") for state in done)


@pytest.mark.parametrize("level", [*LEVELS, None], ids=[*LEVELS, "each-its-own"])
def test_histories_keep_what_their_level_promises(level: str | None) -> None:
    hunt("sqlite://", level, 6, 2000)


@pytest.mark.parametrize("level", [*LEVELS, None], ids=[*LEVELS, "each-its-own"])
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_histories_keep_what_their_level_promises_on_ledgers_that_last(
    kind: str, level: str | None, tmp_path: Any, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    hunt(url, level, 1, 150)
