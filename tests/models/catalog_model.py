"""Two tables that are a catalog's: engines that commit to one of them, a transaction over both that gives a name in the
same step, publishing, and a reader of both.

An engine asks the catalog for the latest version and what is not published, stages a file, and asks for it to be made
the next version. Whose answer is lost looks whether its file is among the commits. `deviation` makes one step wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lakeseal.owner import ownership
from lakeseal.owner.ownership import Ownership, State
from models.exploring import explore

DEVIATIONS = (
    "lost answer taken for a refusal",
    "version given to whoever asks last",
    "two tables in two steps",
    "name given before the commit",
    "name given to two",
    "told of as published before it is",
    "publishes what is only staged",
    "reader that asks for one table after the other",
    "row forgotten before it is published",
)
_TRIES = 2


class Row(NamedTuple):
    version: int
    txn: str


class Table(NamedTuple):
    own: Ownership = Ownership(state=State.ACTIVE, latest=0, backfilled=0)
    rows: tuple[Row, ...] = ()
    log: tuple[str, ...] = ("created",)
    staged: frozenset[Row] = frozenset()


class World(NamedTuple):
    tables: tuple[Table, Table] = (Table(), Table())
    names: tuple[tuple[str, str], ...] = ()
    """Each with the transaction that gave it."""
    acknowledged: frozenset[tuple[int, int, str]] = frozenset()
    """Table, version, transaction."""
    overwritten: str = ""


class Process(NamedTuple):
    kind: str
    name: str
    at: str = "look"
    table: int = 0
    versions: tuple[int, int] = (-1, -1)
    tries: int = 0
    wrong: str = ""


CatalogState = tuple[World, tuple[Process, ...]]
Step = tuple[str, World, Process]


def engine(name: str, table: int = 0) -> Process:
    return Process("engine", name, table=table)


def transaction(name: str) -> Process:
    """Over both tables; it gives the name "x", too."""
    return Process("transaction", name)


def publisher(table: int = 0) -> Process:
    return Process("publisher", f"publisher of {table}", table=table)


def reader() -> Process:
    return Process("reader", "reader")


def count(*cast: Process, deviation: str = "") -> int:
    """Of states; raises `Violation` where an invariant breaks."""

    def steps(state: CatalogState) -> Iterator[tuple[str, CatalogState]]:
        world, processes = state
        for place, process in enumerate(processes):
            for label, after, moved in _steps(world, process, deviation):
                yield f"{process.name}: {label}", (after, (*processes[:place], moved, *processes[place + 1 :]))

    return explore((World(), cast), steps, _broken)


def _steps(world: World, process: Process, deviation: str) -> Iterator[Step]:
    match process.kind:
        case "engine":
            yield from _engine(world, process, deviation)
        case "transaction":
            yield from _transaction(world, process, deviation)
        case "publisher":
            yield from _publisher(world, process, deviation)
        case "reader":
            yield from _reader(world, process, deviation)


def _with(world: World, place: int, table: Table) -> World:
    first, second = world.tables
    return world._replace(tables=(table, second) if place == 0 else (first, table))


def _told(table: Table) -> dict[int, str]:
    """What a client has after asking: what is in the log, and above that what the catalog tells."""
    return {**dict(enumerate(table.log)), **{row.version: row.txn for row in table.rows}}


def _ratified(table: Table, version: int, txn: str, deviation: str) -> Table | None:
    decision = ownership.ratify(table.own, version, epoch=0, timestamp=version)
    if deviation == "version given to whoever asks last" and not isinstance(decision, Ownership):
        rows = tuple(Row(version, txn) if row.version == version else row for row in table.rows)
        return table._replace(rows=rows) if rows != table.rows else None
    if not isinstance(decision, Ownership):
        return None
    return table._replace(own=decision, rows=(*table.rows, Row(version, txn)))


def _engine(world: World, process: Process, deviation: str) -> Iterator[Step]:
    place, txn = process.table, process.name
    table = world.tables[place]
    version = process.versions[place]
    match process.at:
        case "look" if process.tries < _TRIES:
            yield "asks", world, process._replace(at="stage", versions=_both(place, table.own.latest + 1))
        case "stage":
            staged = table._replace(staged=table.staged | {Row(version, txn)})
            yield "stages", _with(world, place, staged), process._replace(at="post")
        case "post":
            after = _ratified(table, version, txn, deviation)
            mine = _told(table).get(version) == txn
            done = process._replace(at="done")
            again = process._replace(at="look", tries=process.tries + 1)
            if after is not None:
                changed = _with(world, place, after)
                yield "commits", _acknowledged(changed, (place, version, txn)), done
                forgets = deviation == "lost answer taken for a refusal"
                yield "commits, answer lost", changed, again if forgets else process._replace(at="in doubt")
            elif mine:
                yield "did so before", _acknowledged(world, (place, version, txn)), done
            else:
                yield "is too late", world, again
        case "in doubt":
            if _told(table).get(version) == txn:
                yield "finds its file", _acknowledged(world, (place, version, txn)), process._replace(at="done")
            else:
                yield "finds another's", world, process._replace(at="look", tries=process.tries + 1)


def _transaction(world: World, process: Process, deviation: str) -> Iterator[Step]:
    a, b = world.tables
    match process.at:
        case "look" if process.tries < _TRIES:
            versions = (a.own.latest + 1, b.own.latest + 1)
            early = deviation == "name given before the commit"
            yield "asks", world, process._replace(at="name" if early else "commit", versions=versions)
        case "name":
            yield "gives the name", _named(world, process.name, deviation) or world, process._replace(at="commit")
        case "commit":
            after_a = _ratified(a, process.versions[0], process.name, "")
            after_b = _ratified(b, process.versions[1], process.name, "")
            named = world if deviation == "name given before the commit" else _named(world, process.name, deviation)
            again = process._replace(at="look", tries=process.tries + 1)
            if after_a is None or after_b is None or named is None:
                yield "is too late", world, again
            elif deviation == "two tables in two steps":
                yield "commits the first", named._replace(tables=(after_a, b)), process._replace(at="second")
            else:
                done = named._replace(tables=(after_a, after_b))
                yield "commits", _all_acknowledged(done, process), process._replace(at="done")
                yield "commits, answer lost", done, process._replace(at="done")
        case "second":
            after_b = _ratified(b, process.versions[1], process.name, "")
            if after_b is not None:
                both = world._replace(tables=(a, after_b))
                yield "commits the second", _all_acknowledged(both, process), process._replace(at="done")


def _named(world: World, txn: str, deviation: str) -> World | None:
    if any(name == "x" for name, _ in world.names) and deviation != "name given to two":
        return None
    return world._replace(names=(*world.names, ("x", txn)))


def _publisher(world: World, process: Process, deviation: str) -> Iterator[Step]:
    """Any number of times: the next version into the log, and then the catalog is told."""
    place = process.table
    table = world.tables[place]
    following = len(table.log)
    candidates = [row.txn for row in table.rows if row.version == following]
    if deviation == "publishes what is only staged":
        candidates += sorted(row.txn for row in table.staged if row.version == following)
    for txn in dict.fromkeys(candidates):
        yield f"publishes {following}", _with(world, place, table._replace(log=(*table.log, txn))), process
    told = table.own.backfilled + 1
    is_there = told < len(table.log) or deviation == "told of as published before it is"
    if told <= table.own.latest and is_there:
        own = ownership.mark_backfilled(table.own, told, epoch=0)
        rows = tuple(row for row in table.rows if row.version != told)
        yield f"tells of {told}", _with(world, place, table._replace(own=own, rows=rows)), process
    if deviation == "row forgotten before it is published" and table.rows:
        yield "forgets", _with(world, place, table._replace(rows=table.rows[1:])), process


def _reader(world: World, process: Process, deviation: str) -> Iterator[Step]:
    a, b = world.tables
    match process.at:
        case "look":
            if deviation == "reader that asks for one table after the other":
                yield "asks for one", world, process._replace(at="other", versions=(a.own.latest, -1))
            else:
                seen = process._replace(at="done", versions=(a.own.latest, b.own.latest))
                yield "asks for both", world, _checked(world, seen)
        case "other":
            seen = process._replace(at="done", versions=(process.versions[0], b.own.latest))
            yield "asks for the other", world, _checked(world, seen)


def _checked(world: World, reader: Process) -> Process:
    """Whether it has seen a half: of a transaction that both tables have, or that one of them is about to get."""
    seen = [
        {txn for version, txn in _told(table).items() if version <= latest}
        for table, latest in zip(world.tables, reader.versions, strict=True)
    ]
    half = {txn for txn in seen[0] ^ seen[1] if txn.startswith("both")}
    return reader._replace(wrong=f"T2: a reader saw a half of {sorted(half)}" if half else "")


def _both(place: int, version: int) -> tuple[int, int]:
    return (version, -1) if place == 0 else (-1, version)


def _acknowledged(world: World, *done: tuple[int, int, str]) -> World:
    return world._replace(acknowledged=world.acknowledged | set(done))


def _all_acknowledged(world: World, process: Process) -> World:
    return _acknowledged(world, *((place, version, process.name) for place, version in enumerate(process.versions)))


def _broken(state: CatalogState) -> str:
    world, processes = state
    for process in processes:
        if process.wrong:
            return process.wrong
    for place, table in enumerate(world.tables):
        told = _told(table)
        if sorted(told) != list(range(table.own.latest + 1)):
            return f"F3, M3: table {place} is at {table.own.latest} and has {told}"
        for row in table.rows:
            if row.version < len(table.log) and table.log[row.version] != row.txn:
                return f"B2, O1: version {row.version} is {row.txn}, and {table.log[row.version]} in the log"
        names = list(told.values())
        if len(set(names)) != len(names):
            return f"F2: a transaction is there twice: {names}"
    for place, version, txn in world.acknowledged:
        if _told(world.tables[place]).get(version) != txn:
            return f"F1, F2: {txn} was acknowledged as version {version} of {place}"
    both = [{txn for txn in _told(table).values() if txn.startswith("both")} for table in world.tables]
    if both[0] != both[1]:
        return f"T1: a half of {sorted(both[0] ^ both[1])} is there"
    given = [name for name, _ in world.names]
    if len(set(given)) != len(given):
        return f"a name is two tables': {world.names}"
    if {txn for _, txn in world.names} != both[0]:
        return f"T1: {world.names} are given, and the transactions {sorted(both[0])} are there"
    return ""
