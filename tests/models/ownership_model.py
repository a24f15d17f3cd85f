"""The ownership protocol as a model: processes that take one step at a time in a world of files and a ledger.

A step is one file operation or one ledger transaction; ledger transactions are the functions of `owner.ownership`
themselves. `steps` gives everything that a process may do next, with the reply that it gets and with the reply lost.

`deviation` makes one step wrong, in a way that somebody once shipped: see `DEVIATIONS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lakeseal.owner import ownership
from lakeseal.owner.ownership import FoundCommit, Ownership, State, StepRefusal

DEVIATIONS = (
    "take-over that overwrites",
    "row marked before the copy is durable",
    "row forgotten before the copy is durable",
    "no answer by txnId on retry",
    "ratifying while releasing",
    "releasing before all is backfilled",
    "listing before asking",
    "owner that refuses a landed take-over",
    "confirmation not tied to the take-over id",
    "promise that another take-over replaces",
    "ratified before the file is durable",
    "bytes dropped before the copy is durable",
    "told without its bytes",
)
CATALOG_DEVIATIONS = (
    "latest version believed while releasing",
    "latest version believed before asking",
    "guest that commits to the log of a free table",
)
"""Of tables that are a catalog's."""
DOUBLED_DEVIATIONS = ("promise in any epoch", "release in any epoch")
"""Where messages come twice."""

VERSIONS = 8
"""Longer logs are not looked at."""


class Content(NamedTuple):
    """A commit in the log: `file` by the file system, `owned` through the owner, `take` and `free` change hands."""

    kind: str
    txn: str


class Row(NamedTuple):
    version: int
    txn: str
    marked: bool
    bytes: bool
    """Whether the commit's bytes are in the row; those of the others are in a staged file."""


class Letter(NamedTuple):
    """That a take-over of the version, or with none a release, begins."""

    change_id: str
    version: int | None
    epoch: int


class World(NamedTuple):
    """All that outlives a process."""

    log: tuple[Content | None, ...]
    staged: frozenset[tuple[int, str]]
    table: Ownership
    rows: tuple[Row, ...]
    acknowledged: frozenset[tuple[str, int]]
    letters: frozenset[Letter] | None = None
    """Messages that may come once more; None where none does."""
    is_catalogs: bool = False
    """Whether owners take the table as a catalog's: what they call the latest version is all there is of it."""


class Seen(NamedTuple):
    """What a client knows after asking and listing."""

    epoch: int
    rows: tuple[Row, ...]
    latest: int
    is_owned: bool


class Process(NamedTuple):
    kind: str
    name: str
    at: str
    seen: Seen | None = None
    version: int = -1
    asked: tuple[Row, ...] | None = None
    epoch: int = 0
    listed: tuple[Content | None, ...] | None = None
    expected: frozenset[tuple[str, int]] = frozenset()
    up_to: int | None = None
    tries: int = 0
    after: str = ""


Step = tuple[str, World, Process]


START = World(
    log=(Content("file", "created"), *([None] * (VERSIONS - 1))),
    staged=frozenset(),
    table=Ownership(),
    rows=(),
    acknowledged=frozenset({("created", 0)}),
)


def writer(name: str) -> Process:
    return Process("writer", name, "ask")


def small_writer(name: str) -> Process:
    """Its commits travel in the request, and live in the ledger until they are published."""
    return Process("small writer", name, "ask")


def guest(name: str) -> Process:
    """Another engine: it commits through the catalog only, knows no epochs, and publishes what it was told of."""
    return Process("guest", name, "ask")


def taker(name: str) -> Process:
    return Process("taker", name, "ask")


def releaser(name: str) -> Process:
    return Process("releaser", name, "begin")


def backfiller() -> Process:
    return Process("backfiller", "backfiller", "pick")


def post() -> Process:
    """Brings messages that have come already."""
    return Process("post", "post", "brings")


def reader() -> Process:
    return Process("reader", "reader", "ask")


def steps(world: World, process: Process, deviation: str) -> Iterator[Step]:
    match process.kind:
        case "writer" | "small writer":
            yield from _writer(world, process, deviation)
        case "guest":
            yield from _guest(world, process, deviation)
        case "taker":
            yield from _taker(world, process, deviation)
        case "releaser":
            yield from _releaser(world, process, deviation)
        case "backfiller":
            yield from _backfiller(world, process, deviation)
        case "reader":
            yield from _reader(world, process, deviation)
        case "post":
            yield from _post(world, process, deviation)


def merged(log: Sequence[Content | None], rows: Sequence[Row]) -> dict[int, Content]:
    commits = {row.version: Content("owned", row.txn) for row in rows}
    commits |= {version: content for version, content in enumerate(log) if content is not None}
    return commits


def _found(world: World, version: int | None) -> FoundCommit | None:
    content = None if version is None else world.log[version]
    return None if content is None else FoundCommit(txn_id=content.txn, timestamp=version)


def _put(world: World, version: int, content: Content) -> World | None:
    """Put-if-absent; None if the name is taken."""
    if world.log[version] is not None:
        return None
    return _overwrite(world, version, content)


def _overwrite(world: World, version: int, content: Content) -> World:
    return world._replace(log=(*world.log[:version], content, *world.log[version + 1 :]))


def _looking(world: World, process: Process, deviation: str, decided: str) -> Iterator[Step]:
    """Ask the owner, then list the log. The other order is one of the deviations."""
    first, second = ("list", "ask") if deviation == "listing before asking" else ("ask", "list")
    place = first if process.at == "ask" else second
    now = process
    if place == "ask":
        asked = tuple(row for row in world.rows if not row.marked)
        if deviation == "told without its bytes":
            asked = tuple(row for row in asked if not row.bytes)
        now = now._replace(asked=asked, epoch=world.table.epoch, up_to=_up_to(world, deviation))
    else:
        now = now._replace(listed=world.log)
    if process.at == "ask":
        if process.kind == "reader":
            now = now._replace(expected=world.acknowledged)
        yield place, world, now._replace(at="look")
        return
    assert now.asked is not None
    assert now.listed is not None
    known = merged(now.listed, now.asked)
    if now.up_to is not None:
        known |= {row.version: Content("owned", row.txn) for row in now.asked}
        known = {version: content for version, content in known.items() if version <= (now.up_to or 0)}
    latest = 0
    owner = None
    for version in range(VERSIONS):
        if version not in known:
            break
        latest, content = version, known[version]
        owner = content.txn if content.kind == "take" else None if content.kind == "free" else owner
    seen = Seen(epoch=now.epoch, rows=(), latest=latest, is_owned=owner is not None)
    now = now._replace(at=decided, seen=seen, version=latest + 1)
    yield place, world, now._replace(asked=None, listed=None, epoch=0, up_to=None)


def _up_to(world: World, deviation: str) -> int | None:
    """Above which a catalog says that there is nothing. While it releases a table, others may have gone on already."""
    states = [State.ACTIVE]
    if deviation == "latest version believed while releasing":
        states.append(State.RELEASING)
    if deviation == "latest version believed before asking":
        states.append(State.NONE)
    return world.table.latest if world.is_catalogs and world.table.state in states else None


def _guest(world: World, process: Process, deviation: str) -> Iterator[Step]:
    seen, name, version = process.seen, process.name, process.version
    match process.at:
        case "ask" | "look" if process.tries < 2:
            for label, same, now in _looking(world, process, deviation, "stage"):
                if now.seen is None or now.seen.is_owned:
                    yield label, same, now
                elif deviation == "guest that commits to the log of a free table":
                    yield label, _overwrite(same, now.version - 1, Content("owned", name)), _ended(now)
                else:
                    yield label, same, _ended(now)
        case "stage":
            yield "stages", world._replace(staged=world.staged | {(version, name)}), process._replace(at="ratify")
        case "ratify" if seen is not None:
            # The catalog itself knows the epoch of now: versions alone keep a guest of before from committing.
            today = seen._replace(epoch=world.table.epoch)
            for label, after, moved in _ratify(world, process, today, deviation):
                done = moved.at == "done"
                yield label, after, process._replace(at="publish", seen=None) if done else moved
        case "settle":
            yield from _settle(world, process, "ratify", deviation)
        case "publish":
            waiting = [row for row in world.rows if row.version <= version and world.log[row.version] is None]
            if waiting:
                first = min(waiting)
                after_put = _put(world, first.version, Content("owned", first.txn))
                yield f"publishes {first.version}", after_put or world, process
            else:
                yield "all is published", world, _ended(process)


def _writer(world: World, process: Process, deviation: str) -> Iterator[Step]:
    seen, name, version = process.seen, process.name, process.version
    match process.at:
        case "ask" | "look" if process.tries < 2:
            decided = "ratify" if process.kind == "small writer" else "stage"
            for label, same, now in _looking(world, process, deviation, decided):
                yield label, same, now if now.seen is None or now.seen.is_owned else now._replace(at="put")
        case "put":
            after = _put(world, version, Content("file", name))
            if after is None:
                mine = world.log[version] == Content("file", name)
                yield "put: taken", *_answer(world, process, committed=mine)
            else:
                yield "put", *_answer(after, process, committed=True)
                yield "put, reply lost", after, process
        case "stage":
            if deviation == "ratified before the file is durable":
                yield "stages later", world, process._replace(at="ratify")
            yield "stages", world._replace(staged=world.staged | {(version, name)}), process._replace(at="ratify")
        case "ratify" if seen is not None:
            yield from _ratify(world, process, seen, deviation)
        case "settle":
            yield from _settle(world, process, "ratify", deviation)


def _ratify(world: World, process: Process, seen: Seen, deviation: str) -> Iterator[Step]:
    name, version = process.name, process.version
    mine = any(row.txn == name and row.version == version for row in world.rows)
    mine |= version <= world.table.latest and world.log[version] == Content("owned", name)
    if mine and deviation != "no answer by txnId on retry":
        yield "ratify: first answer", *_answer(world, process, committed=True)
        return
    table = world.table
    if deviation == "ratifying while releasing" and table.state is State.RELEASING:
        table = _replace(table, state=State.ACTIVE)
    decision = ownership.ratify(table, version, epoch=seen.epoch, timestamp=version)
    if isinstance(decision, Ownership):
        row = Row(version, name, marked=False, bytes=process.kind == "small writer")
        after = world._replace(
            table=_replace(world.table, latest=decision.latest, latest_timestamp=decision.latest_timestamp),
            rows=(*world.rows, row),
        )
        yield "ratify", *_answer(after, process, committed=True)
        yield "ratify, reply lost", after, process
    elif decision is StepRefusal.UNSETTLED:
        yield "ratify: unsettled", world, process._replace(at="settle", after="ratify")
    else:
        yield f"ratify: {decision.name}", *_answer(world, process, committed=False)


def _answer(world: World, process: Process, *, committed: bool) -> tuple[World, Process]:
    if committed:
        acknowledged = world.acknowledged | {(process.name, process.version)}
        return world._replace(acknowledged=acknowledged), _ended(process)
    return world, process._replace(at="ask", seen=None, version=-1, tries=process.tries + 1)


def _ended(process: Process) -> Process:
    return Process(process.kind, process.name, "done")


def _settle(world: World, process: Process, then: str, deviation: str) -> Iterator[Step]:
    """Looking at the file and the ledger's step are two: others may come between them."""
    table = world.table
    if process.listed is None:
        wanted = table.change_version if table.state is State.PENDING else None
        content = None if wanted is None else world.log[wanted]
        if deviation == "owner that refuses a landed take-over" and table.state is State.PENDING:
            # Gives up on a promise without making sure that it cannot be redeemed.
            yield "settle: gives up", world._replace(table=Ownership(epoch=table.epoch)), process._replace(at=then)
        if content is None:
            yield "settle: nothing to see", world, process._replace(at="ask", seen=None, tries=process.tries + 1)
        else:
            yield "settle: looks", world, process._replace(listed=(content,), epoch=wanted or 0)
        return
    content = process.listed[0]
    assert content is not None
    back = process._replace(at=then, listed=None, epoch=0)
    if table.state is State.PENDING and table.change_version == process.epoch:
        table = ownership.settle(table, FoundCommit(txn_id=content.txn, timestamp=process.epoch))
    yield "settle", world._replace(table=table), back


def _taker(world: World, process: Process, deviation: str) -> Iterator[Step]:
    seen, version = process.seen, process.version
    takeover_id = f"{process.name}{process.tries}"
    match process.at:
        case "ask" | "look":
            yield from _looking(world, process, deviation, "promise")
        case "promise" if seen is not None and not seen.is_owned and version < VERSIONS and process.tries < 2:
            decision = ownership.promise(world.table, takeover_id, version, epoch=seen.epoch)
            if deviation == "promise that another take-over replaces" and isinstance(decision, Ownership):
                decision = _replace(decision, promises=(takeover_id,))
            if isinstance(decision, Ownership):
                after = _sent(world._replace(table=decision), Letter(takeover_id, version, seen.epoch))
                yield "promise", after, process._replace(at="put")
                yield "promise, reply lost", after, process
            elif decision is StepRefusal.OTHER_VERSION:
                yield "promise: unsettled", world, process._replace(at="settle")
            else:
                yield f"promise: {decision.name}", world, process._replace(at="ask", seen=None)
        case "settle":
            yield from _settle(world, process, "promise", deviation)
        case "put":
            content = Content("take", takeover_id)
            after_put = _put(world, version, content)
            if deviation == "take-over that overwrites" and after_put is None:
                after_put = _overwrite(world, version, content)
            if after_put is not None:
                yield "put", after_put, process._replace(at="confirm")
                yield "put, reply lost", after_put, process
            else:
                mine = world.log[version] == content
                yield "put: taken", world, process._replace(at="confirm" if mine else "withdraw")
        case "confirm":
            table = world.table
            if deviation == "confirmation not tied to the take-over id":
                if not table.is_owned:
                    table = _replace(table, state=State.ACTIVE, latest=version, backfilled=version)
            elif takeover_id in table.promises:
                table = ownership.settle(table, _found(world, table.change_version))
            yield "confirm", world._replace(table=table), _ended(process)
        case "withdraw":
            table = ownership.withdraw(world.table, takeover_id)
            again = process._replace(at="ask", seen=None, version=-1, tries=process.tries + 1)
            yield "withdraw", world._replace(table=table), again


def _releaser(world: World, process: Process, deviation: str) -> Iterator[Step]:
    table = world.table
    match process.at:
        case "begin":
            decision = ownership.begin_release(table, process.name)
            if isinstance(decision, Ownership) and (decision.change_version or 0) < VERSIONS:
                after = _sent(world._replace(table=decision), Letter(process.name, None, table.epoch))
                yield "begin", after, process._replace(at="copy")
            elif decision is StepRefusal.UNSETTLED:
                yield "begin: unsettled", world, process._replace(at="settle")
        case "settle":
            if process.tries < 2:
                yield from _settle(world, process, "begin", deviation)
        case "ask":
            yield "again", world, process._replace(at="begin")
        case "copy" if table.state is State.RELEASING:
            behind = table.backfilled < table.latest
            if behind and deviation != "releasing before all is backfilled":
                yield from _copy(world, process, deviation, table.backfilled + 1)
            else:
                yield "all is backfilled", world, process._replace(at="put", version=table.change_version or 0)
        case "mark":
            yield from _mark(world, process, "copy")
        case "put":
            after_put = _put(world, process.version, Content("free", process.name))
            if after_put is None:
                yield "put: there", world, process._replace(at="finish")
            else:
                yield "put", after_put, process._replace(at="finish")
                yield "put, reply lost", after_put, process
        case "finish":
            decision = ownership.finish_release(table, _found(world, process.version))
            if deviation == "releasing before all is backfilled" and decision is StepRefusal.NOT_BACKFILLED:
                decision = _replace(table, state=State.NONE, epoch=table.epoch + 1)
            if isinstance(decision, Ownership):
                yield "finish", world._replace(table=decision), _ended(process)


def _backfiller(world: World, process: Process, deviation: str) -> Iterator[Step]:
    table = world.table
    match process.at:
        case "pick":
            if table.is_owned and table.backfilled < table.latest:
                yield "picks", world, process._replace(at="copy", version=table.backfilled + 1, epoch=table.epoch)
            gone = [row for row in world.rows if row.marked]
            if deviation == "row forgotten before the copy is durable":
                gone = list(world.rows)
            if gone:
                left = tuple(row for row in world.rows if row != gone[0])
                yield f"forgets {gone[0].version}", world._replace(rows=left), process
        case "copy":
            if deviation == "row marked before the copy is durable":
                marked = tuple(
                    r._replace(marked=True, bytes=False) if r.version == process.version else r for r in world.rows
                )
                new = ownership.mark_backfilled(table, process.version, epoch=process.epoch)
                if new != table:
                    yield "marks first", world._replace(rows=marked, table=new), process
            yield from _copy(world, process, deviation, process.version)
        case "mark":
            yield from _mark(world, process, "pick")


def _copy(world: World, process: Process, deviation: str, version: int) -> Iterator[Step]:
    row = next((row for row in world.rows if row.version == version), None)
    marking = process._replace(at="mark", version=version, epoch=process.epoch or world.table.epoch)
    if row is None:
        # Published, marked and forgotten by another since it was picked.
        yield "copy: gone", world, process._replace(at="pick" if process.kind == "backfiller" else "copy")
        return
    if deviation == "bytes dropped before the copy is durable" and row.bytes:
        without = tuple(r._replace(bytes=False) if r == row else r for r in world.rows)
        yield "drops the bytes first", world._replace(rows=without), process
    after = _put(world, version, Content("owned", row.txn))
    yield "copy", (world if after is None else after), marking


def _mark(world: World, process: Process, then: str) -> Iterator[Step]:
    table = ownership.mark_backfilled(world.table, process.version, epoch=process.epoch)
    rows = world.rows
    if table != world.table:
        rows = tuple(r._replace(marked=True, bytes=False) if r.version <= process.version else r for r in rows)
    back = process._replace(at=then, version=-1, epoch=0)
    yield "mark", world._replace(table=table, rows=rows), back


def _reader(world: World, process: Process, deviation: str) -> Iterator[Step]:
    if process.at in ("ask", "look"):
        yield from _looking(world, process, deviation, "done")


def _sent(world: World, letter: Letter) -> World:
    return world if world.letters is None else world._replace(letters=world.letters | {letter})


def _post(world: World, process: Process, deviation: str) -> Iterator[Step]:
    for change_id, version, epoch in sorted(world.letters or (), key=str):
        if version is None:
            known = None if deviation == "release in any epoch" else epoch
            decision = ownership.begin_release(world.table, change_id, epoch=known)
        else:
            known = None if deviation == "promise in any epoch" else epoch
            decision = ownership.promise(world.table, change_id, version, epoch=known)
        if isinstance(decision, Ownership) and (decision.change_version or 0) < VERSIONS:
            yield f"brings {change_id} again", world._replace(table=decision), process


def _replace(table: Ownership, **changes: object) -> Ownership:
    values = {name: getattr(table, name) for name in table.__struct_fields__}
    return Ownership(**{**values, **changes})
