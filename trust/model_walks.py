"""Models: the protocols of ownership, merge-if, commit steps and catalog commits, walked through to their ends.

Every interleaving of the steps of a few processes is visited, with answers that are lost, messages that come twice and
processes that stop at any point, and the invariants are looked at in every state. Each known way of getting it wrong is
walked through too, and has to be caught: otherwise the walk would show nothing. The steps of ownership, and of commits
to a catalog, are the functions that the owner itself runs in its ledger transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from report import Report

from models import catalog_model, merge_if_model, ownership_model, steps_model
from models.exploring import Violation
from models.ownership_exploration import Violation as OwnershipViolation
from models.ownership_exploration import explore
from models.ownership_model import Process, backfiller, guest, post, reader, releaser, small_writer, taker, writer

Walk = Callable[[str], int]
"""With a deviation, or with none: the number of states."""

OWNERSHIP: list[tuple[list[Process], dict[str, bool], tuple[str, ...]]] = [
    ([writer("w1"), taker("t"), releaser("r"), backfiller(), reader()], {}, ownership_model.DEVIATIONS),
    ([small_writer("w1"), taker("t"), releaser("r"), backfiller(), reader()], {}, ownership_model.DEVIATIONS),
    ([writer("w1"), small_writer("w2"), taker("t"), releaser("r")], {}, ownership_model.DEVIATIONS),
    ([small_writer("w1"), taker("t"), taker("u"), releaser("r")], {}, ownership_model.DEVIATIONS),
    ([writer("w1"), small_writer("w2"), taker("t"), backfiller()], {}, ownership_model.DEVIATIONS),
    (
        [small_writer("w1"), taker("t"), taker("u"), releaser("r"), reader(), post()],
        {"is_doubled": True},
        ownership_model.DOUBLED_DEVIATIONS,
    ),
    (
        [guest("g1"), taker("t"), releaser("r"), backfiller(), reader()],
        {"is_catalogs": True},
        ownership_model.CATALOG_DEVIATIONS,
    ),
    (
        [guest("g1"), small_writer("w1"), taker("t"), releaser("r")],
        {"is_catalogs": True},
        ownership_model.CATALOG_DEVIATIONS,
    ),
    (
        [small_writer("w1"), taker("t"), releaser("r"), reader()],
        {"is_catalogs": True},
        ownership_model.CATALOG_DEVIATIONS,
    ),
    ([writer("w1"), small_writer("w2"), taker("t"), releaser("r"), backfiller()], {}, ()),
]


def main(report: Report) -> None:
    for model, walks in _walks().items():
        if report.only and report.only not in model:
            continue
        states, caught, missed = looked_at(walks)
        report.count(f"{model}: states", states)
        report.count(f"{model}: deviations, all caught", caught)
        for deviation in missed:
            report.violation(f"{model}: {deviation} is not caught")
        report.say(f"{model}: {states} states, {caught} deviations caught")


def looked_at(walks: list[tuple[Walk, tuple[str, ...]]]) -> tuple[int, int, list[str]]:
    """States, deviations that were caught, and those that were not. What the walks themselves find is raised."""
    states = sum(walk("") for walk, _ in walks)
    deviations = list(dict.fromkeys(one for _, some in walks for one in some))
    missed = [one for one in deviations if not any(_catches(walk, one) for walk, known in walks if one in known)]
    return states, len(deviations) - len(missed), missed


def _catches(walk: Walk, deviation: str) -> bool:
    try:
        walk(deviation)
    except (Violation, OwnershipViolation):
        return True
    return False


def _walks() -> dict[str, list[tuple[Walk, tuple[str, ...]]]]:
    jobs = [merge_if_model.job(name) for name in "abc"]
    return {
        "ownership": list(_of_ownership()),
        "merge-if": [
            (
                lambda deviation: merge_if_model.count(
                    *jobs, merge_if_model.resetter(), merge_if_model.collector(), deviation=deviation
                ),
                merge_if_model.DEVIATIONS,
            )
        ],
        "steps": [
            (
                lambda deviation: steps_model.count(*map(steps_model.run, "abc"), deviation=deviation),
                steps_model.DEVIATIONS,
            )
        ],
        "catalog commits": [
            (
                lambda deviation: catalog_model.count(
                    catalog_model.engine("e1"),
                    catalog_model.engine("e2", 1),
                    catalog_model.transaction("both1"),
                    catalog_model.transaction("both2"),
                    catalog_model.publisher(0),
                    catalog_model.reader(),
                    deviation=deviation,
                ),
                catalog_model.DEVIATIONS,
            )
        ],
    }


def _of_ownership() -> Iterator[tuple[Walk, tuple[str, ...]]]:
    for cast, kind, deviations in OWNERSHIP:
        yield (lambda deviation, cast=cast, kind=kind: explore(cast, deviation=deviation, **kind)), deviations
