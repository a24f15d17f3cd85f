"""Clients of three kinds over HTTP, through ways that lose, delay and double a tenth of the messages: one story."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakeseal.testing.proxy import Request
from support.histories import Schedule, _violations, history
from support.history_client import Told


def test_8_clients_of_three_kinds_for_4_seconds_are_told_one_story(tmp_path: Path) -> None:
    """`make trust` has 32 of them for ten minutes."""
    found = history(tmp_path, clients=8, seconds=4, seed=7, kills=1)
    assert found.violations == []
    assert found.commits > 8
    assert found.kills == 1
    assert sum(found.faults.values()) > 0


def test_the_seed_says_which_requests_of_a_client_fail() -> None:
    request = Request(method="POST", path="/", headers={})
    twice = [[schedule(request) for _ in range(200)] for schedule in (Schedule(3, "a"), Schedule(3, "a"))]
    assert twice[0] == twice[1]
    assert twice[0] != [Schedule(4, "a")(request) for _ in range(200)]


def _told(who: str, start: int, end: int | None, **more: object) -> Told:
    return Told(who=who, kind=str(more.pop("kind", "ours")), start=start, end=end, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("told", "broken"),
    [
        pytest.param([_told("r", 5, 6, saw={"t": (0, 0)})], "no order", id="a reader of the past"),
        pytest.param([_told("r", 5, 6, saw={"t": (1, 2)})], "F5", id="a file too many"),
        pytest.param([_told("w", 5, 6, txns={"t": "x"}, is_failed=True)], "F2", id="a failure that is there"),
        pytest.param([_told("w", 5, 6, txns={"t": "y"}, made={"t": 1})], "F1", id="a success that is not"),
        pytest.param(
            [
                _told("p", 5, 6, kind="behind", saw={"t": (1, 1)}),
                _told("p", 7, 8, kind="behind", saw={"t": (0, 0)}),
            ],
            "B1",
            id="a reader by path that goes back",
        ),
    ],
)
def test_what_is_no_story_is_told(tmp_path: Path, told: list[Told], broken: str) -> None:
    from lakeseal.storage import open_store

    store = open_store(tmp_path)
    actions = [{"commitInfo": {"txnId": "0"}}], [{"commitInfo": {"txnId": "x"}}, {"add": _ADD}]
    for version, lines in enumerate(actions):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        store.put(f"_delta_log/{version:020}.json", text.encode())
    first = _told("w", 1, 2, txns={"t": "x"}, made={"t": 1})
    found = list(_violations([*([] if broken in ("F1", "F2") else [first]), *told], {"t": store}))
    assert any(broken in one for one in found), found
    assert list(_violations([first], {"t": store})) == []


_ADD = {"path": "f", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
