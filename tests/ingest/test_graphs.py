"""Datasets that are made of others: in order, in one commit where they share the ledger, and right after any death."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakeseal import Table
from lakeseal.errors import InvalidArgument
from lakeseal.ingest import Pipeline
from lakeseal.ingest.jobs import LocalJobs
from lakeseal.ingest.yaml_file import parse_pipeline
from lakeseal.owner.ledger_owner import LedgerOwner

SHOP = """
name: shop
ledger: sqlite:///{root}/ledger.db
datasets:
  - name: report
    source: {{type: datasets, inputs: [totals]}}
    transform: "SELECT count(*) AS cities, sum(spent) AS spent FROM totals"
    target: {{type: table, uri: {root}/report, mode: replace}}
  - name: totals
    source: {{type: datasets, inputs: [orders, people]}}
    transform: >
      SELECT p.city, sum(o.price) AS spent, count(*) AS orders
      FROM orders o JOIN people p ON o.person = p.id GROUP BY p.city
    quality:
      - {{rule: "spent >= 0", on_fail: error_table}}
    target: {{type: table, uri: {root}/totals, mode: replace{owner}}}
  - name: orders
    source: {{type: files, path: {root}/in/orders, format: json, schema: "person long, price long"}}
    target: {{type: table, uri: {root}/orders}}
  - name: people
    source: {{type: files, path: {root}/in/people, format: json, schema: "id long, n long, city string"}}
    target: {{type: table, uri: {root}/people, mode: upsert, keys: [id], sequence_by: n}}
"""


class Shop:
    def __init__(self, root: Path, owner: str = "") -> None:
        self.root, self.files = root, 0
        for name in ("orders", "people"):
            (root / "in" / name).mkdir(parents=True)
        self.file = root / "shop.yaml"
        self.file.write_text(SHOP.format(root=root, owner=owner))
        self.orders: list[tuple[int, int]] = []
        self.people: dict[int, tuple[int, str]] = {}

    @property
    def pipeline(self) -> Pipeline:
        return Pipeline.from_yaml(self.file)

    def land(self, name: str, *rows: dict[str, Any]) -> None:
        self.files += 1
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (self.root / "in" / name / f"{self.files:05}.json").write_text(text)
        for row in rows:
            if name == "orders":
                self.orders.append((row["person"], row["price"]))
            elif row["n"] > self.people.get(row["id"], (-1, ""))[0]:
                self.people[row["id"]] = (row["n"], row["city"])

    def rows(self, name: str, version: int | None = None) -> list[dict[str, Any]]:
        return Table(self.root / name, owner=f"sqlite:///{self.root}/ledger.db").to_arrow(version).to_pylist()

    def totals(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for person, price in self.orders:
            if person in self.people:
                found[self.people[person][1]] += price
        return found

    def check(self) -> None:
        assert {row["city"]: row["spent"] for row in self.rows("totals")} == dict(self.totals())
        cities = len(self.totals())
        assert self.rows("report") == [{"cities": cities, "spent": sum(self.totals().values()) if cities else None}]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    made.land("people", {"id": 1, "n": 1, "city": "Ulm"}, {"id": 2, "n": 1, "city": "Bonn"})
    made.land("orders", {"person": 1, "price": 5}, {"person": 2, "price": 7}, {"person": 1, "price": 3})
    return made


def test_what_is_made_of_others_is_worked_out_behind_them_and_only_when_they_have_changed(shop: Shop) -> None:
    result = shop.pipeline.run()
    assert [one.name for one in result.datasets] == ["orders", "people", "totals", "report"]
    assert result.state == "published"
    shop.check()
    assert shop.pipeline.run().state == "nothing_new"
    shop.land("people", {"id": 1, "n": 2, "city": "Bonn"})
    again = shop.pipeline.run()
    assert {one.name: one.state for one in again.datasets} == {
        "orders": "nothing_new",
        "people": "published",
        "totals": "published",
        "report": "published",
    }
    shop.check()


def test_all_tables_of_a_graph_are_one_commit_with_the_watermarks(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[Any] = []
    ratify = LedgerOwner.ratify

    def counted(self: LedgerOwner, batch: Any) -> Any:
        batches.append(batch)
        return ratify(self, batch)

    shop.pipeline.run()
    shop.land("orders", {"person": 1, "price": 1})
    monkeypatch.setattr(LedgerOwner, "ratify", counted)
    result = shop.pipeline.run()
    assert [(len(one.commits), len(one.guards)) for one in batches] == [(3, 1)]  # people are read, and as they were
    moved = Counter(one.key["dataset"] for one in batches[0].records if "dataset" in one.key)
    assert moved == {"orders": 1, "totals": 1, "report": 1}
    marks = {mark.partition: mark.value for mark in shop.pipeline.watermarks("totals")}
    versions = {name: list(marks[name]["version"].values()) for name in ("orders", "people")}
    assert versions == {"orders": [result.dataset("orders").version], "people": [1]}


def test_a_rule_that_fails_leaves_that_dataset_out_and_its_counts_are_kept(shop: Shop) -> None:
    shop.land("orders", {"person": 2, "price": -100})
    result = shop.pipeline.run()
    assert result.dataset("totals").broken == {"spent >= 0": 1}
    assert result.dataset("totals").to_error_table == 1
    assert shop.pipeline.history(1)[0].dataset("totals").broken == {"spent >= 0": 1}
    text = shop.file.read_text().replace("on_fail: error_table", "on_fail: fail")
    shop.file.write_text(text)
    shop.land("people", {"id": 3, "n": 1, "city": "Kiel"})
    failed = shop.pipeline.run(check=False)
    assert {one.name: one.state for one in failed.datasets} == {
        "orders": "nothing_new",
        "people": "published",
        "totals": "failed",
        "report": "nothing_new",
    }
    assert (failed.dataset("totals").error or {})["kind"] == "quality-failed"
    shop.land("orders", {"person": 2, "price": 200})
    assert shop.pipeline.run().state == "published"
    shop.check()


def test_a_transform_that_reads_otherwise_is_worked_out_again(shop: Shop) -> None:
    shop.pipeline.run()
    shop.file.write_text(shop.file.read_text().replace("sum(spent) AS spent", "max(spent) AS spent"))
    result = shop.pipeline.run()
    assert {one.name for one in result.datasets if one.state == "published"} == {"report"}
    assert shop.rows("report") == [{"cities": 2, "spent": 8}]


def test_a_table_of_the_file_system_in_between_comes_in_a_wave_of_its_own(tmp_path: Path) -> None:
    shop = Shop(tmp_path, owner=", owner: none")
    shop.land("people", {"id": 1, "n": 1, "city": "Ulm"})
    shop.land("orders", {"person": 1, "price": 5})
    result = shop.pipeline.run()
    assert (result.state, result.dataset("totals").steps) == ("published", 2)
    shop.check()


def test_one_dataset_alone_is_made_of_the_tables_that_are_there(shop: Shop) -> None:
    early = shop.pipeline.run(datasets=["report"], check=False)
    assert (early.dataset("report").error or {})["kind"] == "source-not-found"
    shop.pipeline.run()
    shop.land("orders", {"person": 2, "price": 9})
    shop.pipeline.run(datasets=["orders"])
    assert shop.pipeline.run(datasets=["totals"]).rows == 2
    assert shop.pipeline.run().state == "published"  # the report is behind
    shop.check()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("inputs: [totals]", "inputs: [total]"), r":6:\d+: datasets\[0\]\.source: 'report' is made of 'total'"),
        (("inputs: [orders, people]", "inputs: [orders, report]"), "report ← totals ← report"),
        (("inputs: [totals]", "inputs: [report]"), "report ← report"),
        (("uri: ROOT/report, mode: replace", "uri: ROOT/report"), "must not stay"),
        (("uri: ROOT/orders}", "uri: ROOT/orders}\n    transform: 7"), "transform"),
    ],
)
def test_names_that_are_not_there_and_circles_are_refused(change: tuple[str, str], told: str) -> None:
    text = SHOP.format(root="ROOT", owner="").replace(*change)
    with pytest.raises(InvalidArgument, match=told):
        Pipeline(parse_pipeline(text))


def test_a_commit_that_others_squeeze_in_is_worked_in(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be rebased over, and the watermark would name a version that was not read."""
    shop.pipeline.run()
    shop.land("orders", {"person": 1, "price": 1})
    transform, squeezed = LocalJobs.transform, []

    def faster(self: LocalJobs, *given: Any) -> Any:
        if not squeezed:
            squeezed.append(Table(shop.root / "orders", owner=f"sqlite:///{shop.root}/ledger.db"))
            squeezed[0].write(pa.table({"person": [2], "price": [1000]}))
        return transform(self, *given)

    monkeypatch.setattr(LocalJobs, "transform", faster)
    assert shop.pipeline.run().state == "published"
    shop.orders.append((2, 1000))
    shop.check()
    assert shop.pipeline.run().state == "nothing_new"


def test_random_graphs_are_their_functions_after_every_run(tmp_path: Path) -> None:
    rng = random.Random(12)
    shop = Shop(tmp_path)
    for run in range(5):
        if rng.random() < 0.7:
            shop.land("people", *({"id": rng.randrange(4), "n": run, "city": rng.choice("abc")} for _ in range(3)))
        if rng.random() < 0.7 or run == 0:
            shop.land("orders", *({"person": rng.randrange(5), "price": rng.randrange(9)} for _ in range(4)))
        shop.pipeline.run()
        shop.check()


@pytest.mark.spark
def test_sql_and_python_over_several_datasets_run_on_spark(
    shop: Shop, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that stands in a file beside the pipeline, with one of its own that executors run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shouted.py").write_text(
        "from pyspark.sql import functions as F\n\n"
        "def loud(text):\n    return text.upper() + '!'\n\n"
        "def shouted(totals, people):\n"
        "    named = totals.join(people, 'city').groupBy('city').agg(F.count('*').alias('people'))\n"
        "    return named.withColumn('city', F.udf(loud)('city'))\n"
    )
    text = shop.file.read_text().replace("inputs: [totals]", "inputs: [totals, people]")
    query = '"SELECT count(*) AS cities, sum(spent) AS spent FROM totals"'
    shop.file.write_text(text.replace(query, '{python: "shouted.py:shouted"}'))
    assert shop.pipeline.validate()["report"] is None
    assert shop.pipeline.run(spark).state == "published"
    assert {row["city"]: row["spent"] for row in shop.rows("totals")} == dict(shop.totals())
    assert sorted(row["city"] for row in shop.rows("report")) == ["BONN!", "ULM!"]
    assert shop.pipeline.run(spark).state == "nothing_new"
    (tmp_path / "shouted.py").write_text((tmp_path / "shouted.py").read_text().replace("'!'", "'?'"))
    assert {one.name for one in shop.pipeline.run(spark).datasets if one.state == "published"} == {"report"}
    assert sorted(row["city"] for row in shop.rows("report")) == ["BONN?", "ULM?"]
    shop.file.write_text(shop.file.read_text().replace("py:shouted", "py:whispered"))
    assert "whispered" in str(shop.pipeline.validate()["report"])
