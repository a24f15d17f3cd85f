"""Runs of a pipeline over one dataset, each of which may be killed at any point, or go on as a zombie when another run
has taken its turn.

A run takes the turn (a larger epoch), claims the dataset, finishes the sequence that an earlier run left, and only then
reads the watermark, takes new rows, and records a sequence: publish the rows, advance the watermark. It runs the steps,
each of which looks first whether it was done, and removes the sequence at the end. `deviation` makes one step wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from models.exploring import explore

DEVIATIONS = (
    "extracts before an open sequence is finished",
    "publishes without looking whether it was done",
    "watermark before the rows",
    "sequence removed before its last step",
    "record of a run that lost its turn",
    "watermark advanced by a run that lost its turn",
    "watermark read before the dataset is claimed",
    "claim that lets an older run record",
)
BATCHES = 2
"""In the source."""


class Sequence(NamedTuple):
    """By whom it was recorded tells it from another one of the same batch: the source may have had other rows then."""

    batch: int
    epoch: int


class World(NamedTuple):
    turn: int = 0
    claimed: int = 0
    sequence: Sequence | None = None
    published: tuple[Sequence, ...] = ()
    """Whose rows are in the table, in the order in which they came."""
    watermark: int = 0
    went_back: bool = False


class Run(NamedTuple):
    name: str
    at: str = "take the turn"
    epoch: int = 0
    sequence: Sequence = Sequence(0, 0)
    """That it is at."""
    watermark: int = 0


State = tuple[World, tuple[Run, ...]]
Step = tuple[str, World, Run]


def run(name: str) -> Run:
    return Run(name)


def count(*runs: Run, deviation: str = "") -> int:
    """Of states; raises `Violation` where an invariant breaks."""

    def steps(state: State) -> Iterator[tuple[str, State]]:
        world, cast = state
        for place, one in enumerate(cast):
            for label, after, moved in _steps(world, one, deviation):
                yield f"{one.name}: {label}", (after, (*cast[:place], moved, *cast[place + 1 :]))

    return explore((World(), runs), steps, lambda state: _broken(state[0]))


def _steps(world: World, run: Run, deviation: str) -> Iterator[Step]:
    match run.at:
        case "take the turn":
            # The lease of whoever had it has run out, or so it is believed: that one may still be at work.
            after = world._replace(turn=world.turn + 1)
            is_early = deviation == "watermark read before the dataset is claimed"
            yield "takes the turn", after, run._replace(at="read early" if is_early else "claim", epoch=after.turn)
        case "read early":
            yield "reads the watermark", world, run._replace(at="claim", watermark=world.watermark)
        case "claim":
            if run.epoch < world.claimed:
                yield "is fenced", world, run._replace(at="over")
            else:
                claimed = world._replace(claimed=run.epoch)
                kept = world if deviation == "claim that lets an older run record" else claimed
                yield "claims the dataset", kept, run._replace(at="look")
        case "look":
            if world.sequence is None or deviation == "extracts before an open sequence is finished":
                yield "finds nothing open", world, run._replace(at="extract")
            else:
                yield "finds a sequence", world, run._replace(at=_first(deviation), sequence=world.sequence)
        case "extract":
            read = run.watermark if deviation == "watermark read before the dataset is claimed" else world.watermark
            if read < BATCHES:
                yield "extracts", world, run._replace(at="record", sequence=Sequence(read + 1, run.epoch))
        case "record":
            may = run.epoch >= world.claimed or deviation == "record of a run that lost its turn"
            is_free = world.sequence is None or deviation == "extracts before an open sequence is finished"
            if may and is_free:
                recorded = world._replace(sequence=run.sequence)
                yield "records", recorded, run._replace(at=_first(deviation))
            elif not may:
                yield "is fenced", world, run._replace(at="over")
        case "publish":
            done = run.sequence in world.published and deviation != "publishes without looking whether it was done"
            after = world if done else world._replace(published=(*world.published, run.sequence))
            following = "remove" if deviation == "watermark before the rows" else "advance"
            early = deviation == "sequence removed before its last step"
            yield "publishes", after, run._replace(at="remove" if early else following)
        case "advance":
            yield from _advance(world, run, deviation)
        case "remove":
            # By what it holds: a sequence that was recorded since is another one.
            mine = world.sequence == run.sequence
            may = run.epoch >= world.claimed
            following = "advance" if deviation == "sequence removed before its last step" else "look"
            if may:
                after = world._replace(sequence=None) if mine else world
                yield "removes the sequence", after, run._replace(at=following)
            else:
                yield "is fenced", world, run._replace(at="over")


def _first(deviation: str) -> str:
    return "advance" if deviation == "watermark before the rows" else "publish"


def _advance(world: World, run: Run, deviation: str) -> Iterator[Step]:
    following = {
        "watermark before the rows": "publish",
        "sequence removed before its last step": "look",
    }.get(deviation, "remove")
    if world.turn != run.epoch and deviation != "watermark advanced by a run that lost its turn":
        yield "is fenced", world, run._replace(at="over")
    elif world.watermark == run.sequence.batch:
        yield "finds it advanced", world, run._replace(at=following)
    elif world.watermark == run.sequence.batch - 1 or deviation == "watermark advanced by a run that lost its turn":
        to = run.sequence.batch
        back = world.went_back or to < world.watermark
        yield "advances", world._replace(watermark=to, went_back=back), run._replace(at=following)


def _broken(world: World) -> str:
    if len({one.batch for one in world.published}) != len(world.published):
        return f"W2: rows are there twice: {world.published}"
    if world.went_back:
        return "W4: the watermark went back"
    if world.watermark > len(world.published):
        return f"W3: the watermark is {world.watermark}, and the table has {world.published}"
    if world.sequence is None and world.watermark != len(world.published):
        return f"W3, W6: nothing is open, the watermark is {world.watermark}, and the table has {world.published}"
    if world.sequence is not None and world.sequence.batch not in (world.watermark, world.watermark + 1):
        return f"W5: {world.sequence} was recorded while the watermark is {world.watermark}"
    return ""
