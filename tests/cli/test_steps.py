from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeseal import ledger
from lakeseal.steps import leases
from lakeseal.steps.file_store import FileStepStore
from lakeseal.steps.ledger_store import LedgerStepStore
from lakeseal.storage import open_store
from support.published_rows import STORE, URN, Place, World

Run = Callable[..., Any]


@pytest.fixture(params=["ledger", "files"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    url = f"sqlite:///{tmp_path}/ledger.db"
    with ledger.open(url) as opened:
        world = World(Place(root=str(tmp_path), ledger=url), ledger=opened)
        if request.param == "files":
            world.steps = FileStepStore(open_store(tmp_path / "recorded" / "sequences"))
        yield world


@pytest.fixture
def steps(lakeseal: Run, world: World, tmp_path: Path) -> Run:
    """`lakeseal steps …` on the world's ledger, as JSON."""
    where = () if isinstance(world.steps, LedgerStepStore) else ("--steps", str(tmp_path / "recorded"))

    def run(command: str, *arguments: str, json: bool = True, places: bool = True) -> Any:
        options = ("--ledger", world.place.ledger, *where, *(("--json",) if json else ()))
        if places and command != "list":
            options += ("--place", world.files.uri, "--staging", world.files.uri)
        return lakeseal("steps", command, *arguments, *options)

    return run


def broken(world: World) -> None:
    """A sequence that was set aside, as one of its files was away."""
    world.steps.put(world.stage(0, 30))
    key = f"task-output/run-1/{URN}/2.txt"
    world.files.put("away", world.files.get(key))
    world.files.delete([key])
    assert URN in world.recover().not_clear


def mended(world: World) -> None:
    world.files.put(f"task-output/run-1/{URN}/2.txt", world.files.get("away"))


def test_what_is_recorded_is_listed_with_its_reason(steps: Run, world: World) -> None:
    assert steps("list").rows == []
    broken(world)

    (row,) = steps("list").rows

    assert (row["store"], row["dataset"], row["state"], row["steps"], row["tries"]) == (STORE, URN, "set_aside", 3, 1)
    assert "Neither" in row["reason"]
    assert steps("list", STORE).rows == [row]
    assert steps("list", "another").rows == []
    assert "set_aside" in steps("list", json=False).out


def test_a_sequence_is_shown_step_by_step(steps: Run, world: World) -> None:
    broken(world)

    told = steps("show", STORE, URN, "--verify").rows[0]

    assert [(step["kind"], step["done"]) for step in told["steps"]] == [
        ("fs-rename", True),
        ("fs-rename", False),
        ("high-watermark", False),
    ]
    assert told["thenRemoves"][0].endswith(f"task-output/run-1/{URN}/")
    assert "rename 1 files" in steps("show", STORE, URN, json=False).out


def test_a_retry_finishes_it_or_says_why_not(steps: Run, world: World) -> None:
    broken(world)

    ended = steps("retry", STORE, URN)
    assert ended.code == 1
    assert (ended.rows[0]["outcome"], "Neither" in ended.rows[0]["reason"]) == ("set_aside", True)

    mended(world)
    ended = steps("retry", STORE)
    assert ended.code == 0
    assert (ended.rows[0]["outcome"], ended.rows[0]["verified"], ended.rows[0]["executed"]) == ("finished", 1, 2)
    world.check(30)
    assert steps("list").rows == []


def test_a_retry_may_be_left_to_the_next_run(steps: Run, world: World) -> None:
    broken(world)
    mended(world)

    assert steps("retry", STORE, URN, "--later").code == 0

    assert steps("list").rows[0]["state"] == "open"
    assert world.published() != list(range(30))
    world.recover(world.take_turn())
    world.check(30)


def test_an_abort_takes_back_what_was_published(steps: Run, world: World) -> None:
    broken(world)
    assert world.published() != []

    ended = steps("abort", STORE, URN)

    assert (ended.code, ended.rows[0]["undone"]) == (0, 2)
    world.check(0)
    assert steps("list").rows == []


def test_what_is_not_there_is_an_error_with_a_hint(steps: Run) -> None:
    for command in ("show", "retry", "abort"):
        ended = steps(command, STORE, "absent")
        assert ended.code == 1
        assert '"kind":"not-found"' in ended.err


def test_nothing_is_touched_while_the_pipeline_runs(steps: Run, world: World) -> None:
    broken(world)
    leases.Leases(world.ledger).acquire(leases.of_pipeline(STORE), holder="a run")

    for command in ("retry", "abort"):
        ended = steps(command, STORE, URN)
        assert ended.code == 1
        assert '"kind":"lease-held"' in ended.err


def test_a_ledger_that_is_not_there_is_not_made(lakeseal: Run, tmp_path: Path) -> None:
    ended = lakeseal("steps", "list", "--ledger", f"sqlite:///{tmp_path}/typo.db", "--json")

    assert ended.code == 1
    assert '"kind":"not-found"' in ended.err
    assert list(tmp_path.iterdir()) == []


def test_a_record_is_followed_only_to_places_that_a_person_has_named(steps: Run, world: World, tmp_path: Path) -> None:
    broken(world)
    mended(world)

    for command in (("retry", STORE), ("abort", STORE, URN), ("show", STORE, URN, "--verify")):
        refused = steps(*command, places=False)
        assert refused.code == 1
        assert "not a place of this pipeline" in refused.err + refused.out
    assert steps("show", STORE, URN, places=False).code == 0
    elsewhere = steps("retry", STORE, "--place", str(tmp_path / "elsewhere"), places=False)
    assert elsewhere.code == 1
    assert world.files.list_keys("job-output/") == []

    assert steps("retry", STORE).code == 0
    assert steps("list").rows == []


def test_a_pipelines_file_says_which_places_its_steps_may_reach(steps: Run, world: World, tmp_path: Path) -> None:
    broken(world)
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"""
name: {STORE}
ledger: {world.place.ledger}
datasets:
  - name: {URN}
    source: {{type: files, path: {tmp_path}/landing, format: json, schema: "id long"}}
    target: {{type: directory, path: {tmp_path}/elsewhere, format: json}}
"""
    )
    refused = steps("retry", STORE, "--pipeline", str(file), places=False)
    assert refused.code == 1
    assert "not a place of this pipeline" in refused.out
    both = steps("retry", STORE, "--pipeline", str(file))
    assert "not both" in both.err
