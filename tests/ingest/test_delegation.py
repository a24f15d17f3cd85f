"""Datasets that tasks of Spark publish, each as soon as all of its orders have ended. What is published, and what not,
is in test_runs.py, for both ways."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from lakeseal.errors import StorageUnavailable
from lakeseal.ingest import Dataset, Retries, delegation
from lakeseal.ingest import run as running
from lakeseal.ingest.delegation import Delegation
from lakeseal.steps.fs_rename import FsRenameCommitStep
from lakeseal.steps.publishing import SequencePublisher
from lakeseal.steps.sequence import CommitSequence
from support.crashes import die
from support.marked_source import MarkedSource

pytestmark = pytest.mark.spark
AT_ONCE = Retries(times=2, first_pause_seconds=0)


def away(self: FsRenameCommitStep, context: Any) -> None:
    raise StorageUnavailable("The store is away")


def test_steps_of_many_datasets_are_done_and_recovered_by_tasks(
    lake: Any, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = delegation.FROM + 6
    datasets = []
    for n in range(count):
        lake.land("1.json", [{"id": n}], folder=f"in/{n}")
        datasets.append(Dataset(name=f"d{n}", source=lake.files(f"in/{n}"), target=lake.to_directory(f"out/{n}")))
    pipeline = lake.pipeline(*datasets, max_parallel=2)
    with monkeypatch.context() as patched:
        patched.setattr(FsRenameCommitStep, "execute", away)
        assert pipeline.run(check=False).state == "failed"
    assert len(pipeline.open_sequences()) == count
    for n in range(count):
        lake.land("2.json", [{"id": 1000 + n}], folder=f"in/{n}")
    # From here on the driver could not do a single rename.
    monkeypatch.setattr(FsRenameCommitStep, "execute", away)
    result = pipeline.run(spark)
    assert {(one.recovered, one.rows, one.steps) for one in result.datasets} == {(2, 1, 2)}
    assert all(lake.ids(f"out/{n}") == Counter([n, 1000 + n]) for n in range(count))
    assert pipeline.open_sequences() == {}


def test_a_dataset_is_there_to_read_while_tasks_of_another_are_still_at_work(
    lake: Any, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delegation, "FROM", 2)
    lake.land("1.json", [{"id": 7}])
    go_on = lake.place / "go on"
    pipeline = lake.pipeline(
        Dataset(name="slow", source=MarkedSource(path=str(go_on)), target=lake.to_directory("slow")),
        Dataset(name="early", source=lake.files(), target=lake.to_directory("early")),
    )
    run = threading.Thread(target=pipeline.run, args=(spark,))
    run.start()
    try:
        until = time.monotonic() + 100
        while not pipeline.watermarks("early"):
            assert time.monotonic() < until, "the early one is not published"
            time.sleep(0.05)
        assert lake.ids("early") == Counter([7])
        assert pipeline.watermarks("slow") == []
        assert run.is_alive()
    finally:
        go_on.touch()
        run.join()
    assert lake.ids("slow") == Counter([1])
    assert pipeline.history()[0].state == "published"


def test_a_worker_that_dies_costs_what_it_had_published_nothing_and_the_rest_a_retry(
    lake: Any, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delegation, "FROM", 2)
    died = lake.place / "died"
    lake.land("1.json", [{"id": n} for n in range(9)])
    dies = MarkedSource(path=str(died), kills=True)
    pipeline = lake.pipeline(
        Dataset(name="first", source=lake.files(), target=lake.to_directory("first"), retries=AT_ONCE),
        Dataset(name="dies", source=dies, target=lake.to_directory("dies"), retries=AT_ONCE),
        max_parallel=1,
    )
    result = pipeline.run(spark)
    assert died.exists()
    assert [one.state for one in result.datasets] == ["published", "published"]
    assert (lake.ids("first"), lake.ids("dies")) == (Counter(range(9)), Counter([1]))
    assert pipeline.run(spark).state == "nothing_new"


@pytest.mark.parametrize(
    ("where", "what"),
    [(SequencePublisher, "publish"), (CommitSequence, "finish")],
    ids=["report and commit", "record and steps"],
)
def test_a_task_that_dies_between_two_things_is_gone_on_from_by_another(
    lake: Any, spark: Any, monkeypatch: pytest.MonkeyPatch, where: type, what: str
) -> None:
    died = str(lake.place / "died")

    class Dying(Delegation):
        def open(self) -> AbstractContextManager[Any]:
            do: Callable[..., Any] = getattr(where, what)

            def once(*given: Any, **named: Any) -> Any:
                if not Path(died).exists():
                    Path(died).touch()
                    die()
                return do(*given, **named)

            setattr(where, what, once)
            return super().open()

    monkeypatch.setattr(delegation, "FROM", 1)
    monkeypatch.setattr(running, "Delegation", Dying)
    monkeypatch.setattr(FsRenameCommitStep, "execute", away)  # on the driver
    lake.land("1.json", [{"id": n} for n in range(9)])
    # It is not extracted again: what was reported is published.
    dataset = Dataset(name="a", source=lake.files(), target=lake.to_directory("t"), retries=Retries(times=0))
    result = lake.pipeline(dataset).run(spark).datasets[0]
    assert Path(died).exists()
    assert (result.state, result.rows, result.steps) == ("published", 9, 2)
    assert lake.ids() == Counter(range(9))
    assert not [file for file in lake.place.rglob("_lakeseal_*/**/*") if file.is_file()]
