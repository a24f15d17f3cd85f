"""What a person at a notebook or a prompt sees of objects, and other libraries' frames."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import lakeseal
from lakeseal.commit.transaction import CommitResult
from lakeseal.errors import Unsupported
from lakeseal.log.commit_summary import summaries

EVIL = "<script>alert('a')</script>"
ROWS = pa.table({"id": [1, 2, 3], "shop": ["north", "south", "north"]})


@pytest.fixture
def table(tmp_path: Path) -> lakeseal.Table:
    made = lakeseal.Table(tmp_path / "orders")
    made.write(ROWS, partition_by=["shop"])
    made.delete("id = 1")
    made.merge(pa.table({"id": [3, 4], "shop": ["north", "west"]}), "t.id = s.id").when_matched_update(
        {"shop": "s.shop"}
    ).when_not_matched_insert("*").execute()
    return made


def clicks(place: Path) -> lakeseal.Pipeline:
    (place / "in").mkdir()
    (place / "in" / "1.json").write_text('{"id": 1}\n{"id": 2}\n')
    source = f"{{type: files, path: '{place}/in', format: json, schema: 'id long'}}"
    (place / "p.yaml").write_text(
        f"{{name: clicks, ledger: 'sqlite:///{place}/ledger.db', datasets: [{{name: of_shops, source: {source}, "
        f"target: {{type: table, uri: '{place}/clicks'}}}}]}}"
    )
    return lakeseal.Pipeline.from_yaml(place / "p.yaml")


def test_reprs_are_one_line_and_say_what_it_is(table: lakeseal.Table, tmp_path: Path) -> None:
    assert repr(table) == f"Table({table.uri!r})"
    assert repr(table.snapshot()) == f"Snapshot({table.uri!r}, version=2, files=3)"
    done = table.write(pa.table({"id": [9], "shop": ["a\nb"]}))
    assert isinstance(done, CommitResult)
    assert repr(done).startswith(f"CommitResult({table.uri!r}, version=3, metrics={{'numFiles': 1,")
    catalog = lakeseal.Catalog(f"sqlite:///{tmp_path}/names.db")
    assert repr(catalog) == f"Catalog('sqlite:///{tmp_path}/names.db')"
    catalog.register("sales.orders", table.uri)
    assert repr(catalog.table("sales.orders")) == "Table('main.sales.orders')"
    repo = lakeseal.Repository.create(tmp_path / "repo")
    assert repr(repo) == f"Repository({repo.uri!r})"
    assert repo.uri.endswith("/repo")
    pipeline = clicks(tmp_path)
    assert repr(pipeline) == "Pipeline('clicks', datasets=1)"
    for one in (table, table.snapshot(), done, catalog, repo, pipeline):
        assert "\n" not in repr(one)


def test_a_table_in_a_notebook_shows_columns_size_and_the_last_commits(table: lakeseal.Table) -> None:
    html = table._repr_html_()
    for text in ("<b>Table</b>", ">shop<", ">string<", ">partition<", "version <b>2</b>", "files <b>3</b>", "MERGE"):
        assert text in html, text
    assert html.count("<rect") == 3
    assert "1 row added, 1 row updated" in html


def test_a_snapshot_in_a_notebook_shows_columns_size_and_the_commit_that_made_it(table: lakeseal.Table) -> None:
    html = table.snapshot()._repr_html_()
    texts = ("<b>Snapshot</b>", ">shop<", ">string<", ">partition<", "version <b>2</b>", "files <b>3</b>", "size <b>")
    for text in (*texts, "last commit <b>MERGE, 20", table.uri):
        assert text in html, text
    before = table.snapshot(0)._repr_html_()
    for text in ("version <b>0</b>", "files <b>2</b>", "last commit <b>WRITE, 20"):
        assert text in before, text


@pytest.mark.parametrize("said", [{}, {"operation": 7, "timestamp": "never"}, {"operation": "", "timestamp": 10**17}])
def test_a_snapshot_is_shown_whatever_its_commit_says_of_itself(
    table: lakeseal.Table, tmp_path: Path, said: dict[str, object]
) -> None:
    (tmp_path / "orders" / "_delta_log" / f"{3:020}.json").write_text(json.dumps({"commitInfo": said}) + "\n")
    html = lakeseal.Table(tmp_path / "orders").snapshot()._repr_html_()
    assert "version <b>3</b>" in html
    assert "last commit <b>unknown</b>" in html


def test_a_pipeline_in_a_notebook_shows_its_datasets_and_its_last_runs(tmp_path: Path) -> None:
    pipeline = clicks(tmp_path)
    html = pipeline._repr_html_()
    where = f"{tmp_path}/clicks<"
    for text in ("<b>Pipeline</b> clicks", ">of_shops<", ">FilesSource<", where, "last run <b>never</b>"):
        assert text in html, text
    assert "<rect" not in html
    pipeline.run()
    pipeline.run()
    html = pipeline._repr_html_()
    assert html.count("<rect") == 2
    assert "UTC, nothing_new</b>" in html, "the last one"
    assert "published: 2 rows" in html


def test_names_and_comments_of_a_table_are_text_in_a_notebook(tmp_path: Path) -> None:
    schema = pa.schema([pa.field(EVIL, pa.int64()), pa.field("b", pa.int64())])
    table = lakeseal.create(tmp_path / "t", schema, comments={"b": EVIL}, comment=EVIL)
    table.write(pa.table({EVIL: [1], "b": [2]}), user_metadata=EVIL)
    for html in (table._repr_html_(), table.snapshot()._repr_html_()):
        assert "<script" not in html
        assert html.count("&lt;script&gt;") >= 2


def test_what_a_strange_writer_records_is_shown_as_text(table: lakeseal.Table, tmp_path: Path) -> None:
    log = tmp_path / "orders" / "_delta_log"
    info = {
        "timestamp": "never",
        "operation": EVIL,
        "operationParameters": {EVIL: [EVIL]},
        "operationMetrics": {"numOutputRows": "9" * 400, "numFiles": -3, "numUpdatedRows": "٣", "numDeletedRows": True},
        "engineInfo": {"a": 1},
        "userMetadata": 7,
    }
    (log / f"{3:020}.json").write_text(json.dumps({"commitInfo": info}) + "\n")
    html = lakeseal.Table(tmp_path / "orders")._repr_html_()
    assert "<script" not in html
    newest = summaries(lakeseal.Table(tmp_path / "orders").commits(1))[0]
    assert (newest.rows, newest.files_added, newest.engine, newest.note) == (0, 0, "", "")
    assert newest.did == f'{EVIL}: ["{EVIL}"]'


def test_where_there_is_no_table_a_notebook_says_so(tmp_path: Path) -> None:
    assert "There is no table here" in lakeseal.Table(tmp_path / "none")._repr_html_()


def test_a_catalog_and_a_commit_have_cards(table: lakeseal.Table, tmp_path: Path) -> None:
    catalog = lakeseal.Catalog(f"sqlite:///{tmp_path}/names.db")
    catalog.register("sales.orders", table.uri)
    html = catalog._repr_html_()
    assert "main.sales.orders" in html
    assert "tables <b>1</b>" in html
    assert "schemas with tables <b>1</b>" in html
    for text in (">filesystem<", f">{table.uri}<", f">{datetime.now(UTC):%Y-}"):
        assert text in html, text
    done = table.write(ROWS)
    assert isinstance(done, CommitResult)
    assert "numOutputRows <b>3</b>" in done._repr_html_()


def test_a_repository_has_a_card(tmp_path: Path) -> None:
    repo = lakeseal.Repository.create(tmp_path / "repo")
    repo.write(ROWS, "main", "orders", message=EVIL)
    repo.create_branch("dev")
    repo.tag("v1", "main")
    repo.protect("main")
    html = repo._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    for text in ("<b>Repository</b>", repo.uri, "branches <b>2</b>", "tags <b>1</b>", ">dev<", ">protected<", ">v1<"):
        assert text in html, text
    assert "2 added, 0 changed, 0 removed" in html
    assert html.count("<rect") == len(repo.log()) == 3, "a bar for each commit"


def test_frames_of_other_libraries_have_the_rows(table: lakeseal.Table) -> None:
    expected = sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])
    assert table.to_polars().sort("id").to_dicts() == expected
    assert isinstance(table.to_polars(columns=["id"], where="id > 2"), pl.DataFrame)
    relation = table.to_duckdb()
    assert sorted(relation.fetchall()) == [(row["id"], row["shop"]) for row in expected]
    with duckdb.connect() as connection:
        mine = table.to_duckdb(version=0, connection=connection)
        assert mine.aggregate("count(*) AS n, max(id) AS m").fetchall() == [(3, 3)]


@pytest.mark.parametrize(
    ("package", "extra"), [("polars", "polars"), ("duckdb", "duckdb"), ("pandas", "pandas"), ("pyspark", "spark")]
)
def test_a_library_that_is_not_there_is_named_with_its_extra(
    table: lakeseal.Table, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    frame = {"polars": table.to_polars, "duckdb": table.to_duckdb, "pandas": table.to_pandas}
    with pytest.raises(Unsupported, match=rf"{package} is not installed.*lakeseal\[{extra}\]"):
        frame.get(package, lambda: table.to_spark(None))()  # type: ignore[arg-type]


def test_a_traceback_in_a_notebook_is_the_users_line_and_the_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(lakeseal.LakesealError) as caught:
        lakeseal.Table(tmp_path / "none").version()
    monkeypatch.delenv("LAKESEAL_DEBUG", raising=False)
    short = caught.value._render_traceback_()
    assert "test_notebooks.py" in short[0]
    assert 'lakeseal.Table(tmp_path / "none").version()' in short[0]
    assert short[-1] == f"TableNotFound: {caught.value}"
    assert not any("router.py" in line or "table.py" in line for line in short)
    monkeypatch.setenv("LAKESEAL_DEBUG", "1")
    assert any("table.py" in line for line in caught.value._render_traceback_())


def test_a_log_says_what_each_command_did(table: lakeseal.Table, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="lakeseal"):
        table.update({"shop": "'east'"}, "id = 4")
        table.delete("id = 400")
        table.vacuum(dry_run=True)
    told = [record.getMessage() for record in caplog.records]
    assert told[0].startswith(f"UPDATE is version 3 of {table.uri}: ")
    assert "numUpdatedRows 1" in told[0]
    assert told[1].startswith(f"{table.uri} changed nothing, version 3: ")
    assert told[2].startswith(f"VACUUM of {table.uri} would delete 0 files")
