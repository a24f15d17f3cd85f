"""Jobs that merge into one branch at the same time, somebody who resets it, and a collection of garbage.

A job looks where the branch stands, writes a file with its tree and its commit, and asks the ledger to move the head
from there to here. The ledger's answer may be lost; then the ledger runs the same move again, however late. `deviation`
makes one step wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from models.exploring import explore

DEVIATIONS = (
    "head moved from wherever it is",
    "head moved in any epoch",
    "move not fenced by a collection",
    "head moved before its file is there",
    "lost answer taken for a refusal",
    "tree made of the own files only",
    "collection that does not look at the heads",
)
_TRIES = 2


class Commit(NamedTuple):
    name: str
    parents: tuple[str, ...]
    files: frozenset[str]


class World(NamedTuple):
    commits: frozenset[Commit]
    stored: frozenset[str]
    """Commits whose file is in the store."""
    head: str
    epoch: int
    collection: int
    placed: tuple[str, ...]
    """All that the head was ever moved to, in their order."""
    resets: int = 0
    acknowledged: frozenset[str] = frozenset()


class Process(NamedTuple):
    kind: str
    name: str
    at: str = "look"
    head: str = ""
    epoch: int = 0
    collection: int = 0
    commit: str = ""
    tries: int = 0


State = tuple[World, tuple[Process, ...]]

START = World(
    commits=frozenset({Commit("root", (), frozenset({"old"}))}),
    stored=frozenset({"root"}),
    head="root",
    epoch=1,
    collection=0,
    placed=("root",),
)


def job(name: str) -> Process:
    return Process("job", name)


def resetter() -> Process:
    return Process("resetter", "resetter")


def collector() -> Process:
    return Process("collector", "collector")


def count(*cast: Process, deviation: str = "") -> int:
    """Of states; raises `Violation` where an invariant breaks."""

    def steps(state: State) -> Iterator[tuple[str, State]]:
        world, processes = state
        for place, process in enumerate(processes):
            for label, after, moved in _steps(world, process, deviation):
                yield f"{process.name}: {label}", (after, (*processes[:place], moved, *processes[place + 1 :]))

    return explore((START, cast), steps, lambda state: _broken(state[0]))


Step = tuple[str, World, Process]


def _steps(world: World, process: Process, deviation: str) -> Iterator[Step]:
    match process.kind:
        case "job":
            yield from _job(world, process, deviation)
        case "resetter":
            yield from _resetter(world, process, deviation)
        case "collector":
            yield from _collector(world, process, deviation)


def _of(world: World, name: str) -> Commit:
    return next(one for one in world.commits if one.name == name)


def _history(world: World, name: str) -> frozenset[str]:
    found, waiting = set[str](), [name]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += _of(world, one).parents
    return frozenset(found)


def _job(world: World, process: Process, deviation: str) -> Iterator[Step]:
    match process.at:
        case "look":
            seen = process._replace(head=world.head, epoch=world.epoch, collection=world.collection)
            yield "looks", world, seen._replace(at="write")
        case "write":
            mine = f"{process.name}{process.tries}"
            there = frozenset() if deviation == "tree made of the own files only" else _of(world, process.head).files
            made = Commit(mine, (process.head,), there | {process.name})
            known = world._replace(commits=world.commits | {made})
            if deviation == "head moved before its file is there":
                yield "writes nothing yet", known, process._replace(at="move", commit=mine)
                return
            yield "writes", known._replace(stored=known.stored | {mine}), process._replace(at="move", commit=mine)
        case "move":
            yield from _move(world, process, deviation)
        case "again" if process.tries < _TRIES:
            yield "begins again", world, process._replace(at="look", commit="", tries=process.tries + 1)


def _move(world: World, process: Process, deviation: str) -> Iterator[Step]:
    again = process._replace(at="again")
    moved = _moved(world, process, deviation)
    done = process._replace(at="done")
    if moved is not None:
        acknowledged = moved._replace(acknowledged=moved.acknowledged | {process.commit})
        yield "moves the head", acknowledged, done
        if deviation == "lost answer taken for a refusal":
            yield "moves the head, answer lost", moved, again
        else:
            yield "moves the head, answer lost", moved, process
    elif process.commit in world.placed:
        # It was ours, and perhaps it was built upon: history tells.
        is_there = process.commit in _history(world, world.head)
        kept = world._replace(acknowledged=world.acknowledged | {process.commit}) if is_there else world
        yield "moved it before", kept, done
    else:
        yield "is refused", world, again


def _moved(world: World, process: Process, deviation: str) -> World | None:
    if world.collection != process.collection and deviation != "move not fenced by a collection":
        return None
    same = world.head == process.head or deviation == "head moved from wherever it is"
    in_epoch = world.epoch == process.epoch or deviation in (
        "head moved in any epoch",
        "head moved from wherever it is",
    )
    if not (same and in_epoch):
        return None
    return world._replace(head=process.commit, epoch=world.epoch + 1, placed=(*world.placed, process.commit))


def _resetter(world: World, process: Process, deviation: str) -> Iterator[Step]:
    """Back to where the branch was before its last commit, once."""
    match process.at:
        case "look" if _of(world, world.head).parents:
            before = _of(world, world.head).parents[0]
            seen = process._replace(head=world.head, epoch=world.epoch, collection=world.collection, commit=before)
            yield "looks", world, seen._replace(at="move")
        case "move":
            moved = _moved(world, process, deviation)
            done = process._replace(at="done")
            if moved is None:
                yield "is refused", world, done
                return
            # What it takes back, nobody is owed any more.
            gone = _history(world, world.head) - _history(moved, moved.head)
            left = moved.acknowledged - gone
            yield "resets", moved._replace(acknowledged=left, resets=1, placed=world.placed), done


def _collector(world: World, process: Process, deviation: str) -> Iterator[Step]:
    match process.at:
        case "look":
            kept = (
                frozenset()
                if deviation == "collection that does not look at the heads"
                else _history(world, world.head)
            )
            garbage = ",".join(sorted(world.stored - kept))
            after = world._replace(collection=world.collection + 1)
            yield "looks at the heads", after, process._replace(at="delete", commit=garbage)
        case "delete":
            gone = frozenset(process.commit.split(","))
            yield "deletes garbage", world._replace(stored=world.stored - gone), process._replace(at="done")


def _broken(world: World) -> str:
    history = _history(world, world.head)
    lost = world.acknowledged - history
    if lost:
        return f"G1, G2: {sorted(lost)} was acknowledged and is not in the branch"
    if len(set(world.placed)) != len(world.placed):
        return f"G1: the head was moved twice to the same commit: {world.placed}"
    jobs = [one[:-1] for one in history if one != "root"]
    if len(set(jobs)) != len(jobs):
        return f"G4: a job is there twice: {sorted(history)}"
    files = _of(world, world.head).files
    wanted = frozenset(jobs) | {"old"}
    if files != wanted:
        return f"G2: the branch holds {sorted(files)} and not {sorted(wanted)}"
    if world.head not in world.stored or not history <= world.stored | {"root"}:
        return f"the branch leads to {sorted(history - world.stored)}, which is not in the store"
    return ""
