"""Pipelines whose ledger is a team's database, or behind a service."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeseal.cli import main
from lakeseal.clock import now_ms
from lakeseal.errors import InvalidArgument, LeaseHeld, NotAllowed, NotAuthenticated
from lakeseal.ingest import Dataset, Pipeline, Retries
from lakeseal.service import tokens
from lakeseal.service.access import Grant
from lakeseal.service.client import HttpOwner
from lakeseal.service.service import Service
from lakeseal.steps.leases import Leases, of_pipeline
from lakeseal.testing.proxy import ProxyFault, Request, faulty_proxy
from lakeseal.testing.service import service_inside


@pytest.fixture
def serving() -> Iterator[tuple[str, Service]]:
    with service_inside(rate=0, batch_size=1) as running:
        yield running


def token(service: Service, grant: str) -> str:
    return tokens.create(service.ledger, "somebody", (Grant.from_text(grant),), now=now_ms())[0]


def every_target(lake: Any, **options: Any) -> Pipeline:
    """One dataset for each way in which rows and watermarks are published."""
    sets = {"source": lake.files(), "retries": Retries(times=1, first_pause_seconds=0)}
    return lake.pipeline(
        Dataset(name="joint", target=lake.to_table("j"), **sets),
        Dataset(name="joint too", target=lake.to_table("k"), **sets),
        Dataset(name="steps", target=lake.to_table("s", owner="none"), **sets),
        Dataset(name="directory", target=lake.to_directory("d"), **sets),
        **options,
    )


def check_life_of(pipeline: Pipeline, lake: Any) -> None:
    lake.land("1.json", [{"id": 1}])
    assert [one.rows for one in pipeline.run().datasets] == [1] * 4
    lake.land("2.json", [{"id": 2}, {"id": 3}])
    assert [one.rows for one in pipeline.run().datasets] == [2] * 4
    assert pipeline.run().state == "nothing_new"
    for name in "sd":
        assert lake.ids(name) == Counter([1, 2, 3])
    assert len(pipeline.watermarks()) == 8
    assert [run.state for run in pipeline.history()] == ["nothing_new", "published", "published"]
    pipeline.reset("directory", {mark.partition: mark.value for mark in pipeline.watermarks("directory")[:1]})
    assert pipeline.run().dataset("directory").rows == 2


def test_a_pipeline_runs_on_a_ledger_in_postgresql(lake: Any, postgres_url: str) -> None:
    lake.ledger = postgres_url
    check_life_of(every_target(lake), lake)
    assert lake.ids("j") == lake.ids("k") == Counter([1, 2, 3])


def test_a_pipeline_runs_on_the_ledger_of_a_service(lake: Any, serving: tuple[str, Service]) -> None:
    url, service = serving
    writer = token(service, "writer")
    pipeline = every_target(lake, ledger=url, token=writer)
    check_life_of(pipeline, lake)
    assert writer not in repr(pipeline.config)
    owner = HttpOwner(url, token=writer)
    found = {one.table.rpartition("/")[2]: one.latest for one in owner.tables()}
    assert found == {"j": 2, "k": 2}  # made, and two commits of rows and watermarks together
    owner.close()
    lease = Leases(service.ledger).acquire(of_pipeline("test"), holder="another")
    with pytest.raises(LeaseHeld, match="another"):
        pipeline.run()
    Leases(service.ledger).release(lease)


def test_a_service_lets_pipelines_in_by_their_role(lake: Any, serving: tuple[str, Service]) -> None:
    url, service = serving
    lake.land("1.json", [{"id": 1}])
    with pytest.raises(NotAuthenticated):
        every_target(lake, ledger=url).run()
    for grant in ("reader", f"writer:{lake.place}"):
        with pytest.raises(NotAllowed, match="writer for all tables"):
            every_target(lake, ledger=url, token=token(service, grant)).run()
    assert every_target(lake, ledger=url, token=token(service, "reader")).watermarks() == []
    own = HttpOwner(url, token=token(service, "writer"))
    with pytest.raises(InvalidArgument, match="no pipeline's lease"):
        own.books().leases.acquire("publisher", holder="an intruder")
    own.close()


def test_a_service_whose_every_call_loses_an_answer_once_still_gets_each_row_once(
    lake: Any, serving: tuple[str, Service]
) -> None:
    url, service = serving
    asked: set[str] = set()

    def lose_first(request: Request) -> ProxyFault | None:
        is_first = request.path not in asked
        asked.add(request.path)
        return ProxyFault.LOSE_REPLY if is_first else None

    with faulty_proxy(url, lose_first) as proxy:
        pipeline = every_target(lake, ledger=proxy.endpoint, token=token(service, "writer"))
        check_life_of(pipeline, lake)
    assert {"/v1/ratify", "/v1/put-sequence", "/v1/advance-watermarks", "/v1/acquire-lease"} <= asked


def test_steps_that_were_set_aside_are_retried_through_the_service(
    lake: Any, serving: tuple[str, Service], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url, service = serving
    monkeypatch.setenv("LAKESEAL_TOKEN", token(service, "writer"))
    lake.land("1.json", [{"id": 1, "name": "x"}])
    in_the_way: Path = lake.place / "d" / "name=x"
    in_the_way.parent.mkdir()
    in_the_way.touch()
    file = lake.place / "p.yaml"
    file.write_text(
        f"""
name: test
ledger: {url}
token: ${{LAKESEAL_TOKEN}}
datasets:
  - name: d
    source: {{type: files, path: {lake.place}/landing, format: json, schema: "id long, name string"}}
    target: {{type: directory, path: {lake.place}/d, partition_by: [name]}}
    retries: {{times: 1, first_pause_seconds: 0}}
"""
    )
    assert main(["ingest", "run", str(file), "--no-spark"]) == 1
    capsys.readouterr()
    assert main(["steps", "list", "--ledger", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "set_aside"
    in_the_way.unlink()
    assert main(["steps", "retry", "test", "--ledger", url, "--pipeline", str(file)]) == 0
    assert main(["ingest", "run", str(file), "--no-spark"]) == 0
    assert lake.ids("d") == Counter([1])
