"""Targets that go by their names in the catalog."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import lakeseal
from lakeseal.errors import InvalidArgument, TableNotFound
from lakeseal.ingest.yaml_file import parse_pipeline

PIPELINE = """\
name: clicks
ledger: {ledger}
datasets:
  - name: events
    source: {{type: files, path: {landing}, format: json, schema: "id long"}}
    target: {{type: table, uri: {target}}}
"""


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"sqlite:///{tmp_path}/lake.db"
    monkeypatch.setenv("LAKESEAL_CATALOG", url)
    return url


def _pipeline(tmp_path: Path, ledger: str, target: str) -> lakeseal.Pipeline:
    landing = tmp_path / "landing"
    landing.mkdir(exist_ok=True)
    (landing / "a.json").write_text("\n".join(json.dumps({"id": number}) for number in range(3)))
    return lakeseal.Pipeline(parse_pipeline(PIPELINE.format(ledger=ledger, landing=landing, target=target)))


@pytest.mark.parametrize("kind", ["filesystem", "managed"])
def test_a_pipeline_publishes_to_a_table_by_its_name(tmp_path: Path, ledger: str, kind: str) -> None:
    table = lakeseal.Catalog().create("sales.events", pa.schema([("id", pa.int64())]), kind=kind)
    pipeline = _pipeline(tmp_path, ledger, "Sales.events")
    pipeline.run()
    pipeline.run()
    assert sorted(table.to_arrow()["id"].to_pylist()) == [0, 1, 2]


def test_a_target_without_a_table_is_told_before_anything_runs(tmp_path: Path, ledger: str) -> None:
    with pytest.raises(TableNotFound, match=r"main\.sales\.events"):
        _pipeline(tmp_path, ledger, "sales.events")


def test_two_names_of_one_place_are_one_target(tmp_path: Path, ledger: str) -> None:
    table = lakeseal.Catalog().create("sales.events", pa.schema([("id", pa.int64())]))
    text = PIPELINE.format(ledger=ledger, landing=tmp_path, target="sales.events")
    again = text.partition("datasets:\n")[2].replace("sales.events", table.uri).replace("name: events", "name: again")
    with pytest.raises(InvalidArgument, match="Two datasets go to"):
        lakeseal.Pipeline(parse_pipeline(text + again))


def test_a_pipeline_is_told_which_catalog_has_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKESEAL_CATALOG", f"sqlite:///{tmp_path}/other.db")
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{tmp_path}/lake.db"
    catalog = lakeseal.Catalog(url)
    table = catalog.create("sales.events", pa.schema([("id", pa.int64())]))
    text = PIPELINE.format(ledger=url, landing=tmp_path, target="sales.events")
    text += text.partition("datasets:\n")[2].replace("sales.events", "people").replace("name: events", "name: people")
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(TableNotFound, match=r"main\.sales\.events"):
        lakeseal.Pipeline.from_yaml(tmp_path / "p.yaml")
    for named in (url, catalog):
        pipeline = lakeseal.Pipeline.from_yaml(tmp_path / "p.yaml", catalog=named)
        targets = {one.name: one.target.uri for one in pipeline.config.datasets}
        assert targets == {"events": table.uri, "people": "people"}
