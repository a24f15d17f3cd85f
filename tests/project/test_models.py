"""Merge-if, commit steps and catalog commits, walked through to their ends; whatever gets them wrong is caught."""

from __future__ import annotations

import pytest

from models import catalog_model, merge_if_model, steps_model
from models.catalog_model import engine, publisher, reader, transaction
from models.exploring import Violation, explore
from models.merge_if_model import collector, job, resetter
from models.steps_model import run

JOBS = (job("a"), job("b"), resetter(), collector())
RUNS = (run("a"), run("b"), run("c"))
ENGINES = (engine("e1"), transaction("both1"), transaction("both2"), publisher(), reader())


def test_jobs_that_merge_at_the_same_time_come_to_one_branch() -> None:
    assert merge_if_model.count(*JOBS) > 5_000


def test_runs_that_take_each_others_turn_publish_every_row_once() -> None:
    assert steps_model.count(*RUNS) > 10_000


def test_engines_and_transactions_of_a_catalog_come_to_one_history() -> None:
    assert catalog_model.count(*ENGINES) > 5_000


@pytest.mark.parametrize("deviation", merge_if_model.DEVIATIONS)
def test_every_way_of_getting_a_merge_wrong_is_caught(deviation: str) -> None:
    with pytest.raises(Violation):
        merge_if_model.count(*JOBS, deviation=deviation)


@pytest.mark.parametrize("deviation", steps_model.DEVIATIONS)
def test_every_way_of_getting_a_run_wrong_is_caught(deviation: str) -> None:
    with pytest.raises(Violation):
        steps_model.count(*RUNS, deviation=deviation)


@pytest.mark.parametrize("deviation", catalog_model.DEVIATIONS)
def test_every_way_of_getting_a_catalogs_commit_wrong_is_caught(deviation: str) -> None:
    with pytest.raises(Violation):
        catalog_model.count(*ENGINES, deviation=deviation)


def test_a_walk_visits_every_state_and_tells_how_it_got_to_a_broken_one() -> None:
    def steps(number: int) -> list[tuple[str, int]]:
        return [("up", number + 1), ("down", number - 1)] if abs(number) < 3 else []

    assert explore(0, steps, lambda _: "") == 7
    with pytest.raises(Violation, match="it is 2\nup\nup"):
        explore(0, steps, lambda number: "it is 2" if number == 2 else "")
    with pytest.raises(MemoryError):
        explore(0, lambda number: [("up", number + 1)], lambda _: "", most_states=100)
