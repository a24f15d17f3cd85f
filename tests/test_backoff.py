"""Trying again, and that nobody does it by hand."""

from __future__ import annotations

import ast
import time
from pathlib import Path

import pytest

import lakeseal
from lakeseal.backoff import Backoff, Deadline

SRC = Path(lakeseal.__file__).parent


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(first_s=1, longest_s=5, least=1.0)
    assert [backoff.pause_s(tries) for tries in (1, 2, 3, 4, 1000)] == [1, 2, 4, 5, 5]


def test_chance_cuts_a_pause_and_leaves_its_least_share() -> None:
    backoff = Backoff(first_s=1, longest_s=8, least=0.25)
    found = [backoff.pause_s(3) for _ in range(200)]
    assert 1 <= min(found) < max(found) <= 4


def test_the_first_try_comes_at_once_and_the_others_after_pauses() -> None:
    pauses: list[float] = []
    backoff = Backoff(first_s=1, least=1.0)
    assert list(backoff.tries(most=4, sleep=pauses.append)) == [1, 2, 3, 4]
    assert pauses == [1, 2, 4]


def test_without_time_there_is_one_try() -> None:
    assert list(Backoff(first_s=1).tries(within_s=0)) == [1]


def test_the_last_pause_is_what_is_left_and_one_more_try_follows_it() -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        time.sleep(seconds)

    assert list(Backoff(first_s=600).tries(within_s=0.05, sleep=sleep)) == [1, 2]
    assert 0 < pauses[0] <= 0.05


def test_a_deadline_that_is_over_does_not_wait() -> None:
    deadline = Deadline(0)
    assert (deadline.is_over, deadline.left_s) == (True, 0)
    assert not deadline.wait(600)


@pytest.mark.parametrize(
    ("calls", "home"),
    [
        ({"time.time", "time.time_ns", "dt.datetime.now", "datetime.datetime.now", "datetime.now"}, "clock.py"),
        ({"_chance.uniform", "random.uniform", "random.random", "random.expovariate"}, "backoff.py"),
    ],
    ids=["clock", "chance"],
)
def test_one_module_asks_the_clock_and_one_cuts_pauses_at_random(calls: set[str], home: str) -> None:
    assert _callers(calls) == {home}


def test_nobody_sleeps_between_tries_but_by_backoff() -> None:
    # They wait for something else, and not longer than that takes.
    waits = {"owner/backfill.py", "steps/holder.py", "ingest/sources/rest.py"}
    assert {name for name in _callers({"time.sleep"}) if not name.startswith("testing/")} == waits


def _callers(calls: set[str]) -> set[str]:
    found = set()
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in calls:
                found.add(path.relative_to(SRC).as_posix())
    return found
