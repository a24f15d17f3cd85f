"""What a run tells others: alerts, lineage, metrics. Whoever does not listen holds nothing up."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeseal.errors import InvalidArgument
from lakeseal.ingest import Alert, Dataset, Lineage, RunMetrics
from lakeseal.ingest.live_counts import CountsPlace, OrderCounts
from lakeseal.ingest.progress import Reached, RunProgress, size_text
from lakeseal.storage import StoreSpec
from support.marked_source import SteadySource
from support.webhook import Webhook, webhook


@pytest.fixture
def receiver() -> Iterator[Webhook]:
    with webhook() as running:
        yield running


def _pipeline(lake: Any, **options: Any) -> Any:
    good = Dataset(name="good", source=lake.files("one"), target=lake.to_table("good"))
    bad = Dataset(name="bad", source=lake.files("two"), target=lake.to_table("bad"))
    lake.land("1.json", [{"id": 1}, {"id": 2}], "one")
    lake.land("1.json", ["torn"], "two")
    return lake.pipeline(good, bad, **options)


def test_a_run_that_fails_is_told_once_with_its_reason_and_one_that_does_not_is_not(
    lake: Any, receiver: Webhook
) -> None:
    alert = Alert(webhook=f"{receiver.url}/hook", headers={"Authorization": "Bearer x"})
    pipeline = _pipeline(lake, alerts=(alert,))
    result = pipeline.run(check=False)
    (told,) = receiver.told
    assert (told["pipeline"], told["run"], told["state"], told["rows"]) == ("test", result.run_id, "partly", 2)
    assert list(told["failed"]) == ["bad"]
    assert "line 1 is no row" in told["text"]
    assert receiver.headers[0]["Authorization"] == "Bearer x"
    lake.land("1.json", [{"id": 3}], "two")
    assert pipeline.run().state == "published"
    assert len(receiver.told) == 1
    assert "Bearer" not in repr(pipeline.config.alerts)


def test_a_receiver_that_is_busy_is_asked_again_and_one_that_is_away_is_a_note(lake: Any, receiver: Webhook) -> None:
    receiver.answers = [503, 500]
    away = Alert(webhook="http://127.0.0.1:1/nobody")
    pipeline = _pipeline(lake, alerts=(Alert(webhook=receiver.url), away))
    result = pipeline.run(check=False)
    assert len(receiver.told) == 1
    assert [note.partition(":")[0] for note in result.notes] == ["An alert could not be told"]
    assert pipeline.history(1)[0].notes == result.notes
    assert sorted(lake.ids("good").elements()) == [1, 2]


def test_what_is_told_to_one_address_does_not_go_to_another(lake: Any, receiver: Webhook) -> None:
    receiver.answers = [302, 302, 302]
    result = _pipeline(lake, alerts=(Alert(webhook=receiver.url),)).run(check=False)
    assert receiver.told == []
    assert "302" in result.notes[0]


def _check_events(events: list[dict[str, Any]], result: Any, lake: Any) -> None:
    assert [(one["job"]["name"], one["eventType"]) for one in events] == [
        ("test.good", "START"),
        ("test.bad", "START"),
        ("test.good", "COMPLETE"),
        ("test.bad", "FAIL"),
    ]
    good = events[2]
    assert good["run"]["runId"] == events[0]["run"]["runId"] != events[1]["run"]["runId"]
    assert uuid.UUID(good["run"]["runId"])
    assert good["run"]["facets"]["parent"]["run"]["runId"] == result.run_id
    assert good["inputs"] == [{"namespace": "file", "name": f"{lake.place}/one"}]
    (output,) = good["outputs"]
    assert (output["namespace"], output["name"]) == ("file", f"{lake.place}/good")
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 2
    assert "is no row" in events[3]["run"]["facets"]["errorMessage"]["message"]
    assert {"eventTime", "producer", "schemaURL"} <= good.keys()


def test_lineage_goes_to_a_file(lake: Any) -> None:
    file = lake.place / "told" / "lineage.json"
    result = _pipeline(lake, lineage=Lineage(file=str(file))).run(check=False)
    _check_events([json.loads(line) for line in file.read_text().splitlines()], result, lake)


def test_lineage_goes_to_an_address(lake: Any, receiver: Webhook) -> None:
    result = _pipeline(lake, lineage=Lineage(url=f"{receiver.url}/api/v1/lineage")).run(check=False)
    _check_events(receiver.told, result, lake)


def test_names_of_places_have_no_passwords(lake: Any, broker: Any) -> None:
    from lakeseal.ingest import KafkaSource, SqlSource
    from lakeseal.ingest.lineage import _place

    topic = KafkaSource(brokers=broker.address, topic="t", schema="id long", options={"sasl.password": "secret"})
    assert _place(topic.place()) == {"namespace": f"kafka://{broker.address}", "name": "t"}
    rows = SqlSource(url="postgresql+psycopg://user:secret@host/db", table="orders", column="id")
    assert "secret" not in str(_place(rows.place()))
    assert _place("s3://user:secret@bucket/a/b") == {"namespace": "s3://bucket", "name": "a/b"}


def test_metrics_are_a_whole_file_of_the_last_run(lake: Any) -> None:
    file = lake.place / "metrics" / "ingest.prom"
    pipeline = _pipeline(lake, metrics=RunMetrics(file=str(file)), name='a "b"')
    pipeline.run(check=False)
    text = file.read_text()
    assert 'lakeseal_ingest_rows{pipeline="a \\"b\\"",dataset="good"} 2' in text
    assert 'lakeseal_ingest_failed{pipeline="a \\"b\\"",dataset="bad"} 1' in text
    for line in text.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) \w+ .+|\w+\{(\w+="(?:[^"\\]|\\.)*",?)+\} [0-9.e+]+', line), line
    pipeline.run(check=False)
    assert 'dataset="good"} 0\n' in file.read_text()
    assert [path.name for path in file.parent.iterdir()] == ["ingest.prom"]


def test_a_place_that_cannot_be_written_is_a_note(lake: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = {"lineage": Lineage(file=f"{tmp_path}/file/x"), "metrics": RunMetrics(file=f"{tmp_path}/file/y")}
    result = _pipeline(lake, **told).run(check=False)
    assert len(result.notes) == 2
    assert sorted(lake.ids("good").elements()) == [1, 2]


def test_metrics_take_the_place_of_no_device(lake: Any) -> None:
    """Who runs as root and names /dev/null would take it from everybody."""
    device = lake.place / "device"
    os.mkfifo(device)
    result = _pipeline(lake, metrics=RunMetrics(file=str(device))).run(check=False)
    assert [note.rpartition(": ")[2] for note in result.notes] == ["it is no file"]
    assert device.is_fifo()


@pytest.mark.parametrize("make", [lambda: Alert(webhook="ftp://x"), Lineage, lambda: Lineage(file="a", url="http://b")])
def test_an_address_that_is_none_is_refused(make: Any) -> None:
    with pytest.raises(InvalidArgument):
        make()


def test_progress_says_how_far_each_dataset_is(lake: Any) -> None:
    seen: dict[str, list[tuple[str, Reached]]] = {"good": [], "bad": []}

    class Watching(RunProgress):
        def stage(self, dataset: str, what: str, reached: Reached) -> None:
            seen[dataset].append((what, reached))

    _pipeline(lake).run(check=False, progress=Watching())
    stages = dict(seen["good"])
    assert stages["reading"].behind > 0
    assert stages["reading"].rows is None
    end = stages["published"]
    assert (end.rows, end.behind) == (2, 0)
    assert end.bytes > 0
    assert end.rate.endswith(" rows/s")
    assert seen["bad"][-1][0] == "failed"
    assert [size_text(n) for n in (None, 0, 999, 1500, 2_500_000)] == ["", "0 B", "999 B", "1.5 kB", "2.5 MB"]


class Looking(RunProgress):
    """Ends the source once it was told twice of rows that are still being read, each time of more."""

    every_s = 0.05

    def __init__(self, mark: Path) -> None:
        self._mark = mark
        self.while_reading: list[Reached] = []
        self.left: list[str] = []

    def stage(self, dataset: str, what: str, reached: Reached) -> None:
        if what == "reading" and reached.rows is not None:
            self.while_reading.append(reached)
            if self.while_reading[0].rows != reached.rows:
                self._mark.touch()
        elif what == "publishing":
            self.left = [str(path) for path in self._mark.parent.glob("t/_lakeseal_staging/**/*") if path.is_file()]


def _looked_at(lake: Any, spark: Any = None) -> None:
    looking = Looking(lake.place / "mark")
    dataset = Dataset(name="steady", source=SteadySource(path=str(lake.place / "mark")), target=lake.to_table())
    result = lake.pipeline(dataset).run(spark, progress=looking)
    first, last = looking.while_reading[0], looking.while_reading[-1]
    assert 0 < first.rows < last.rows <= result.rows
    assert first.bytes == first.rows * 8
    assert first.behind == 10**6 - first.bytes, "what was read is not behind any more"
    assert first.rate.endswith(" rows/s")
    assert looking.left, "told by way of the staging area"
    assert not list(lake.place.glob("t/_lakeseal_staging/**/*")), "and gone with it"


def test_progress_says_how_far_tasks_are_while_they_read(lake: Any) -> None:
    _looked_at(lake)


@pytest.mark.spark
def test_progress_says_how_far_tasks_of_spark_are_while_they_read(lake: Any, spark: Any) -> None:
    _looked_at(lake, spark)


def test_who_cannot_be_told_how_far_tasks_are_is_shown_nothing_of_it(lake: Any) -> None:
    """The staging area takes nothing: the run is published all the same."""

    class Ending(RunProgress):
        every_s = 0.05

        def stage(self, dataset: str, what: str, reached: Reached) -> None:
            assert what != "reading" or reached.rows is None

    place = CountsPlace(store=StoreSpec(uri=str(lake.place / "file" / "x")), every_s=0.0)
    (lake.place / "file").write_text("")
    counts = OrderCounts(place, 0)
    counts.read(1, 1, 1)
    assert place.read() is None
    lake.land("1.json", [{"id": 1}])
    dataset = Dataset(name="a", source=lake.files(), target=lake.to_table())
    assert lake.pipeline(dataset).run(progress=Ending()).rows == 1
