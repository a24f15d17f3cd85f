"""Which random cases a test looks at: a few new ones every day, as many as asked for, or the one that failed.

    LAKESEAL_HUNT=1000 make test ARGS="tests/oracles"    a thousand cases of each
    LAKESEAL_HUNT=3%                                      three hundredths of a test's long form
    LAKESEAL_HUNT_FROM=5000                               from that seed on, not from today's
    LAKESEAL_SEED=20261116003                             this one only

The long form of a test, `full` cases, is run by LAKESEAL_HUNT=100%.

Where the environment has CI=true the seeds are the same every day: a gate judges the change, not the day. What a new
day's seed finds is for whoever works here, and becomes an example by hand.
"""

from __future__ import annotations

import datetime as dt
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

FIXED = 20261117000


def cases(short: int, full: int) -> Sequence[int]:
    """The seeds of this run: `short` of them unless more, or one, was asked for."""
    one = os.environ.get("LAKESEAL_SEED")
    if one:
        return [int(one)]
    start = int(os.environ.get("LAKESEAL_HUNT_FROM") or _first())
    return range(start, start + _count(os.environ.get("LAKESEAL_HUNT"), short, full))


def _first() -> int:
    if os.environ.get("CI") == "true":
        return FIXED
    return 1000 * int(dt.date.today().strftime("%Y%m%d"))


def _count(asked: str | None, short: int, full: int) -> int:
    if not asked:
        return short
    return max(1, round(full * float(asked[:-1]) / 100)) if asked.endswith("%") else int(asked)


@contextmanager
def case(seed: int) -> Iterator[random.Random]:
    """All of a case's chance comes from here, and its failure says how to see it again."""
    try:
        yield random.Random(seed)
    except BaseException as error:
        error.add_note(f"seed {seed}: see it again with LAKESEAL_SEED={seed}")
        raise
