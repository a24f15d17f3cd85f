"""Whatever a public method changes, the logger of its module says at INFO, once."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from lakeseal import ledger
from lakeseal.clock import now_ms
from lakeseal.service import tokens
from lakeseal.service.access import Grant

SCHEMA = pa.schema([("id", pa.int64()), ("shop", pa.string()), ("size", pa.int32())])
ROWS = pa.table({"id": [1, 2], "shop": ["north", "south"], "size": pa.array([1, 2], pa.int32())})
NEWS = pa.table({"id": [3], "shop": ["west"], "size": pa.array([3], pa.int32())})
FEATURES = {
    "delta.enableDeletionVectors": "true",
    "delta.columnMapping.mode": "name",
    "delta.enableTypeWidening": "true",
}

Cases = dict[str, tuple[Callable[[Any], Callable[[], object]], str]]
"""By method: what makes a call of it ready, and what the line about that must say."""


def _after(*before: Callable[[Any], object], do: Callable[[Any], object]) -> Callable[[Any], Callable[[], object]]:
    """The calls before are not looked at."""

    def prepared(held: Any) -> Callable[[], object]:
        for one in before:
            one(held)
        return lambda: do(held)

    return prepared


def _commit(name: str) -> str:
    return rf"^{name} is version \d+ of file:///"


TABLE: Cases = {
    "write": (_after(do=lambda t: t.write(NEWS)), _commit("WRITE")),
    "delete": (_after(do=lambda t: t.delete("id = 1")), _commit("DELETE")),
    "update": (_after(do=lambda t: t.update({"shop": "'x'"}, "id = 1")), _commit("UPDATE")),
    "merge": (
        _after(do=lambda t: t.merge(NEWS, "t.id = s.id").when_not_matched_insert("*").execute()),
        _commit("MERGE"),
    ),
    "optimize": (_after(lambda t: t.write(NEWS), do=lambda t: t.optimize()), _commit("OPTIMIZE")),
    "purge": (_after(lambda t: t.delete("id = 1"), do=lambda t: t.purge()), _commit("REORG")),
    "vacuum": (_after(do=lambda t: t.vacuum(dry_run=True)), "^VACUUM of "),
    "restore": (_after(lambda t: t.delete("id = 1"), do=lambda t: t.restore(version=0)), _commit("RESTORE")),
    "clone": (_after(do=lambda t: t.clone("copy")), _commit("CLONE")),
    "cluster_by": (_after(do=lambda t: t.cluster_by("id")), _commit("CLUSTER BY")),
    "set_properties": (_after(do=lambda t: t.set_properties({"a": "b"})), _commit("SET TBLPROPERTIES")),
    "add_feature": (_after(do=lambda t: t.add_feature("changeDataFeed")), _commit("SET TBLPROPERTIES")),
    "drop_feature": (
        _after(lambda t: t.add_feature("vacuumProtocolCheck"), do=lambda t: t.drop_feature("vacuumProtocolCheck")),
        _commit("DROP FEATURE"),
    ),
    "upgrade": (_after(do=lambda t: t.upgrade(3, 7)), _commit("SET TBLPROPERTIES")),
    "add_constraint": (_after(do=lambda t: t.add_constraint("c", "id > 0")), _commit("ADD CONSTRAINT")),
    "drop_constraint": (
        _after(lambda t: t.add_constraint("c", "id > 0"), do=lambda t: t.drop_constraint("c")),
        _commit("DROP CONSTRAINT"),
    ),
    "add_columns": (_after(do=lambda t: t.add_columns(pa.schema([("n", pa.int64())]))), _commit("ADD COLUMNS")),
    "move_column": (_after(do=lambda t: t.move_column("shop", first=True)), _commit("CHANGE COLUMN")),
    "drop_column": (_after(do=lambda t: t.drop_column("shop")), _commit("DROP COLUMNS")),
    "drop_columns": (_after(do=lambda t: t.drop_columns(["shop"])), _commit("DROP COLUMNS")),
    "rename_column": (_after(do=lambda t: t.rename_column("shop", "place")), _commit("RENAME COLUMN")),
    "change_type": (_after(do=lambda t: t.change_type("size", "long")), _commit("CHANGE COLUMN")),
    "set_default": (_after(do=lambda t: t.set_default("id", 7)), _commit("CHANGE COLUMN")),
    "drop_default": (
        _after(lambda t: t.set_default("id", 7), do=lambda t: t.drop_default("id")),
        _commit("CHANGE COLUMN"),
    ),
    "set_not_null": (_after(do=lambda t: t.set_not_null("id")), _commit("CHANGE COLUMN")),
    "drop_not_null": (
        _after(lambda t: t.set_not_null("id"), do=lambda t: t.drop_not_null("id")),
        _commit("CHANGE COLUMN"),
    ),
    "sync_identity": (
        _after(
            lambda t: lakeseal.create(
                "n", pa.schema([("id", pa.int64())]), identity={"id": lakeseal.Identity(always=False)}
            ).write(pa.table({"id": [41]})),
            do=lambda t: lakeseal.Table("n").sync_identity("id"),
        ),
        _commit("SYNC IDENTITY"),
    ),
    "set_comment": (_after(do=lambda t: t.set_comment("id", "a number")), _commit("CHANGE COLUMN")),
    "generate": (
        _after(
            lambda t: lakeseal.create("plain", SCHEMA),
            do=lambda t: lakeseal.Table("plain").generate(),
        ),
        "^GENERATE wrote 1 manifests of version 0 of ",
    ),
    "checkpoint": (_after(do=lambda t: t.checkpoint()), "has a checkpoint of version 1$"),
    "compact_log": (_after(do=lambda t: t.compact_log(0, 1)), r"^the commits 0 to 1 of .* are one file"),
    "cleanup": (_after(do=lambda t: t.cleanup()), "^a cleanup of the log of .* deleted 0 files"),
    "take_over": (_after(do=lambda t: t.take_over("sqlite:///own.db")), "^TAKE OVER is version 2 of .*: managed"),
    "release": (
        _after(lambda t: t.take_over("sqlite:///own.db"), do=lambda t: t.release()),
        "^RELEASE is version 3 of ",
    ),
}
CATALOG: Cases = {
    "create": (_after(do=lambda c: c.create("sales.new", SCHEMA)), "main.sales.new is the name of a new table at "),
    "making": (_after(do=lambda c: _make(c)), "main.sales.copy is the name of a new table at "),
    "register": (
        _after(lambda c: lakeseal.create("plain", SCHEMA), do=lambda c: c.register("sales.plain", "plain")),
        "main.sales.plain is the name of the table at ",
    ),
    "create_schema": (_after(do=lambda c: c.create_schema("raw")), "main.raw is a new schema"),
    "drop_schema": (
        _after(lambda c: c.create_schema("raw"), do=lambda c: c.drop_schema("raw")),
        "the schema main.raw was dropped",
    ),
    "rename": (
        _after(do=lambda c: c.rename("sales.orders", "sales.all")),
        "main.sales.orders was renamed to main.sales.all",
    ),
    "drop": (
        _after(do=lambda c: c.drop("sales.orders", delete_files=True)),
        "main.sales.orders was dropped, with its files",
    ),
    "grant": (
        _after(do=lambda c: c.grant("sales.orders", "reader", to=_token())),
        "the token .* was made reader of sales.orders",
    ),
    "abandon": (
        _after(lambda c: _begin(c), do=lambda c: c.abandon(c.unfinished()[0].table_id)),
        "the table .* which was begun, was forgotten",
    ),
}
REPOSITORY: Cases = {
    "create": (_after(do=lambda r: lakeseal.Repository.create("another").store.close()), "is a new repository"),
    "write": (_after(do=lambda r: r.write(ROWS, "main", "out")), r"a write to out is commit \w{12} of main: 1 files, "),
    "put": (_after(do=lambda r: r.put("main", "b", b"")), r"b put there is commit \w{12} of main"),
    "export": (_after(do=lambda r: r.export("main", "", "plain")), "all of main was exported to .*: 1 files copied"),
    "create_branch": (_after(do=lambda r: r.create_branch("dev")), r"dev is a new branch at commit \w{12}"),
    "delete_branch": (_after(do=lambda r: r.delete_branch("try")), "the branch try was deleted"),
    "protect": (_after(do=lambda r: r.protect("main")), "main is protected, with 0 rules"),
    "tag": (_after(do=lambda r: r.tag("v2", "main")), r"v2 is a new tag of commit \w{12}"),
    "delete_tag": (_after(do=lambda r: r.delete_tag("v1")), "the tag v1 was deleted"),
    "merge": (_after(do=lambda r: r.merge("try", "main")), r"try was merged as commit \w{12} of main: 1 files added"),
    "revert": (_after(do=lambda r: r.revert("main", "main")), r"main undone is commit \w{12} of main"),
    "cherry_pick": (_after(do=lambda r: r.cherry_pick("main", "try")), r"try done again is commit \w{12} of main"),
    "reset": (_after(do=lambda r: r.reset("try", "main")), r"try was set to commit \w{12}"),
    "gc": (_after(do=lambda r: r.gc(dry_run=True)), "gc would remove 0 objects"),
}
PIPELINE: Cases = {
    "run": (_after(do=lambda p: p.run()), r"^the run .* of clicks is over, published: 2 rows, 1 of 1 datasets "),
    "backfill": (
        _after(do=lambda p: p.backfill("clicks", "1.json", "2.json")),
        "^the run .* of clicks is over, published: 2 rows",
    ),
    "resume": (
        _after(lambda p: _fail(p), do=lambda p: p.resume()),
        "^the run .* of clicks is over, published: 2 rows",
    ),
    "run_every": (_after(do=lambda p: next(p.run_every(None, 60))), "^the run .* of clicks is over, published"),
    "reset": (_after(lambda p: p.run(), do=lambda p: p.reset("clicks")), "^clicks: the watermarks of clicks were set"),
}
CHANGES = {
    lakeseal.Table: TABLE,
    lakeseal.Catalog: CATALOG,
    lakeseal.Repository: REPOSITORY,
    lakeseal.Pipeline: PIPELINE,
}
LOOKS = {
    lakeseal.Table: "changes changes_spark commits detail exists files history name place schema snapshot to_arrow "
    "to_batches to_duckdb to_pandas to_polars to_spark uri version",
    lakeseal.Catalog: "catalogs schemas show table tables unfinished",
    lakeseal.Repository: "branches diff jobs list log open read stat tags to_arrow to_batches to_spark uri",
    lakeseal.Pipeline: "from_yaml history name open_sequences plan validate watermarks",
}
"""Methods that change nothing."""


def _make(catalog: lakeseal.Catalog) -> None:
    with catalog.making("sales.copy") as place:
        lakeseal.create(place, SCHEMA)


def _begin(catalog: lakeseal.Catalog) -> None:
    with pytest.raises(ZeroDivisionError), catalog.making("sales.copy") as place:
        lakeseal.create(place, SCHEMA)
        1 / 0  # noqa: B018


def _fail(pipeline: lakeseal.Pipeline) -> None:
    moved = Path("in").rename("out")
    pipeline.run(check=False)
    moved.rename("in")


def _token() -> str:
    with ledger.open("sqlite:///names.db") as opened:
        made = tokens.create(opened, "etl", (Grant.from_text("reader:/nowhere"),), now=now_ms())[0]
    return made.split("_")[1]


def _table() -> lakeseal.Table:
    table = lakeseal.create("orders", SCHEMA, properties=FEATURES)
    table.write(ROWS)
    return table


def _catalog() -> lakeseal.Catalog:
    catalog = lakeseal.Catalog("sqlite:///names.db", root="tables")
    catalog.create("sales.orders", SCHEMA)
    return catalog


def _repository() -> lakeseal.Repository:
    repo = lakeseal.Repository.create("repo")
    repo.put("main", "a", b"a")
    repo.tag("v1", "main")
    repo.create_branch("try")
    repo.put("try", "c", b"c")
    return repo


def _pipeline() -> lakeseal.Pipeline:
    Path("in").mkdir()
    Path("in/1.json").write_text('{"id": 1}\n{"id": 2}\n')
    Path("p.yaml").write_text(
        """{name: clicks, ledger: "sqlite:///ledger.db", datasets: [{name: clicks,
            source: {type: files, path: in, format: json, schema: "id long"}, target: {type: table, uri: clicks}}]}"""
    )
    return lakeseal.Pipeline.from_yaml("p.yaml")


BEGIN = {
    lakeseal.Table: _table,
    lakeseal.Catalog: _catalog,
    lakeseal.Repository: _repository,
    lakeseal.Pipeline: _pipeline,
}
LOGGERS = {
    lakeseal.Table: ("lakeseal.table", "lakeseal.commit.transaction"),
    lakeseal.Catalog: ("lakeseal.catalogs",),
    lakeseal.Repository: ("lakeseal.repository",),
    lakeseal.Pipeline: ("lakeseal.ingest.pipeline",),
}


@pytest.mark.parametrize("cls", CHANGES)
def test_of_each_public_method_it_is_known_whether_it_changes_something(cls: type) -> None:
    public = {name for name in dir(cls) if not name.startswith("_")}
    assert public == {*CHANGES[cls], *LOOKS[cls].split()}


@pytest.mark.parametrize(
    ("cls", "name"), [pytest.param(cls, name, id=f"{cls.__name__}.{name}") for cls in CHANGES for name in CHANGES[cls]]
)
def test_what_a_method_changed_is_one_line_of_the_log(
    cls: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    prepare, told = CHANGES[cls][name]
    call = prepare(BEGIN[cls]())
    caplog.clear()  # of whoever made the logger say more, as a page of the docs does
    with caplog.at_level(logging.INFO, logger="lakeseal"):
        call()
    lines = [record for record in caplog.records if record.name in LOGGERS[cls]]
    assert [record.levelname for record in lines] == ["INFO"], caplog.text
    assert re.search(told, lines[0].getMessage()), lines[0].getMessage()


def test_names_of_others_stay_on_their_line_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    repo = _repository()
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="lakeseal"):
        repo.put("main", "a\x85b\u2028c", b"")
    (line,) = caplog.records
    assert len(line.getMessage().splitlines()) == 1
