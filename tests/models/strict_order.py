"""Whether what many clients did to several tables can be told as one story, in one order that fits their clocks.

Every operation has a beginning and an end on one clock, and says which version of which table it saw and which it made.
An operation that had ended before another began comes before it; whoever made a version comes behind whoever made the
one before it; who saw a version comes behind its maker and before the maker of the next. If these can't all be so,
there is no order, and somebody has seen a half of something, or the past.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from msgspec import Struct

NEVER = 2**62


class Done(Struct, frozen=True, kw_only=True):
    name: str
    start: int
    end: int = NEVER
    """`NEVER`: nobody was told of it, so it may have happened at any time since."""
    saw: Mapping[str, int] = {}
    """Versions by table."""
    made: Mapping[str, int] = {}


def check_one_order(done: Iterable[Done]) -> int:
    """The number of operations; `AssertionError` names those that go round in a circle."""
    all_done = list(done)
    after: dict[int, list[int]] = defaultdict(list)
    makers: dict[tuple[str, int], int] = {}
    for place, one in enumerate(all_done):
        assert one.start <= one.end, f"{one} ended before it began"
        for made in one.made.items():
            assert made not in makers, f"F1: {made} was made twice: by {all_done[makers[made]].name} and by {one.name}"
            makers[made] = place
    for (table, version), place in makers.items():
        if (table, version + 1) in makers:
            after[place].append(makers[table, version + 1])
    for place, one in enumerate(all_done):
        for table, version in one.saw.items():
            if (table, version) in makers:
                _before(after, makers[table, version], place)
            if (table, version + 1) in makers:
                _before(after, place, makers[table, version + 1])
    count = len(all_done)
    # Moments are places too, each behind the one before it, so that who came before whom needs no pair of operations.
    moments = sorted({moment for one in all_done for moment in (one.start, one.end) if moment != NEVER})
    places = {moment: count + number for number, moment in enumerate(moments)}
    for place in range(count, count + len(moments) - 1):
        after[place].append(place + 1)
    for place, one in enumerate(all_done):
        # At one and the same moment they overlap: who begins is behind all earlier moments only.
        if places[one.start] > count:
            after[places[one.start] - 1].append(place)
        if one.end != NEVER:
            after[place].append(places[one.end])
    _check_no_circle(all_done, after, count + len(moments))
    return count


def _before(after: dict[int, list[int]], first: int, second: int) -> None:
    if first != second:
        after[first].append(second)


def _check_no_circle(done: list[Done], after: Mapping[int, list[int]], count: int) -> None:
    waits = [0] * count
    for seconds in after.values():
        for second in seconds:
            waits[second] += 1
    free = [place for place in range(count) if not waits[place]]
    left = count
    while free:
        left -= 1
        for second in after.get(free.pop(), ()):
            waits[second] -= 1
            if not waits[second]:
                free.append(second)
    if left:
        circle = [done[place] for place in range(len(done)) if waits[place]]
        raise AssertionError("B5, T2: there is no order for these: " + "; ".join(map(str, circle[:8])))
