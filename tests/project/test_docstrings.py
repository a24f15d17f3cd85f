"""Every public method of what users hold says what it does, with an example, and the example runs."""

from __future__ import annotations

import contextlib
import doctest
import functools
import inspect
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeseal
from lakeseal import ledger
from lakeseal.clock import now_ms
from lakeseal.commands.merge.builder import MergeBuilder
from lakeseal.commit.transaction import CommitResult
from lakeseal.ingest.runs import RunResult
from lakeseal.log.snapshot import Snapshot
from lakeseal.service import tokens
from lakeseal.service.access import Grant
from lakeseal.transactions import TablePart, TablesTransaction

HELD = (
    lakeseal.Table,
    lakeseal.Catalog,
    lakeseal.Repository,
    lakeseal.Pipeline,
    MergeBuilder,
    Snapshot,
    CommitResult,
    TablesTransaction,
    TablePart,
    RunResult,
)
CALLED = tuple(one for name in lakeseal.__all__ if inspect.isfunction(one := getattr(lakeseal, name)))
ROOT = Path(__file__).resolve().parents[2]
FEATURES = {
    "delta.enableChangeDataFeed": "true",
    "delta.columnMapping.mode": "name",
    "delta.enableTypeWidening": "true",
}
SCHEMA = pa.schema([("id", pa.int64()), ("shop", pa.string()), ("price", pa.float64())])
ROWS = pa.table({"id": [1, 2, 3], "shop": ["north", "south", "north"], "price": [1.5, 2.0, 9.9]})


def documented(cls: type) -> Iterator[tuple[str, str]]:
    """Each public method and property, and its docstring; a field of a value has none of its own."""
    for name in dir(cls):
        member = inspect.getattr_static(cls, name)
        if name.startswith("_") or type(member).__name__ in ("member_descriptor", "getset_descriptor"):
            continue
        yield f"{cls.__name__}.{name}", inspect.getdoc(member) or ""


DOCSTRINGS = dict(one for cls in HELD for one in documented(cls))
VALUES = (CommitResult, TablesTransaction, TablePart, RunResult)
DOCSTRINGS |= {one.__name__: inspect.getdoc(one) or "" for one in (*VALUES, *CALLED)}


def _example(name: str) -> Any:
    return pytest.param(name, marks=[pytest.mark.spark] if "(spark" in DOCSTRINGS[name] else [])


def test_every_public_method_says_what_it_does_and_shows_it() -> None:
    assert len(DOCSTRINGS) > 160
    assert {one.__name__ for one in CALLED} == {*FUNCTIONS}
    assert [name for name, told in DOCSTRINGS.items() if not told.split(">>>")[0].strip() or ">>>" not in told] == []


def test_the_reference_has_all_that_users_hold_and_call() -> None:
    page = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8").splitlines()
    assert [one for one in (*HELD, *CALLED) if f"::: {one.__module__}.{one.__qualname__}" not in page] == []


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[], None]], Path]:
    """A folder with what examples begin with, made once and copied for each."""

    @functools.cache
    def folder(make: Callable[[], None]) -> Path:
        place = tmp_path_factory.mktemp("made")
        with contextlib.chdir(place):
            make()
        return place

    return folder


@pytest.mark.parametrize("name", [_example(name) for name in DOCSTRINGS])
def test_the_example_of_a_method_runs_and_gives_what_it_says(
    name: str, made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    make, opened = PREPARED[name.partition(".")[0]]
    shutil.copytree(made(make), tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"lakeseal": lakeseal, "pa": pa, "Snapshot": Snapshot, **opened()}
    if request.node.get_closest_marker("spark"):
        names["spark"] = request.getfixturevalue("spark")
    test = doctest.DocTestParser().get_doctest(DOCSTRINGS[name], names, name, None, None)
    said: list[str] = []
    failed = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=said.append).failed
    assert failed == 0, "".join(said)


def _orders() -> None:
    lakeseal.create("orders", SCHEMA, properties=FEATURES).write(ROWS)


def _partitioned() -> None:
    table = lakeseal.create("orders", SCHEMA, partition_by="shop", properties=FEATURES)
    table.write(ROWS.filter(pa.array([True, False, True])), txn=("nightly", 6))


def _merge() -> dict[str, Any]:
    news = pa.table({"id": [3, 4], "shop": ["south", "west"], "price": [10.0, 2.0]})
    return {"merge": lakeseal.Table("orders").merge(news, "t.id = s.id")}


def _nothing() -> None:
    """For what keeps absolute places, and cannot be copied."""


def _catalog() -> dict[str, Any]:
    catalog = lakeseal.Catalog("sqlite:///names.db", root="tables")
    catalog.create("sales.orders", SCHEMA)
    with ledger.open("sqlite:///names.db") as opened:
        token = tokens.create(opened, "etl", (Grant.from_text("reader:/nowhere"),), now=now_ms())[0]
    return {"catalog": catalog, "token_id": token.split("_")[1]}


def _repository() -> None:
    repo = lakeseal.Repository.create("repo")
    repo.write(ROWS, "main", "out/orders")
    repo.put("main", "notes/a.txt", b"hi", "a first note")
    repo.tag("v1", "main")
    repo.create_branch("try")
    repo.put("try", "notes/c.txt", b"new")
    repo.store.close()


def _pipeline() -> dict[str, Any]:
    Path("in").mkdir()
    Path("in/1.json").write_text('{"id": 1}\n{"id": 2}\n')
    source = '{type: files, path: "${root}/in", format: json, schema: "id long"}'
    Path("clicks.yaml").write_text(
        f"name: clicks\nledger: sqlite:///ledger.db\nparams: {{root: .}}\ndatasets:\n  - name: clicks\n"
        f'    source: {source}\n    target: {{type: table, uri: "${{root}}/clicks"}}\n'
    )
    return {"pipeline": lakeseal.Pipeline.from_yaml("clicks.yaml")}


def _owned() -> dict[str, Any]:
    tables = {name: lakeseal.create(name, SCHEMA, owner="sqlite:///ledger.db") for name in ("orders", "archive")}
    tables["orders"].write(ROWS)
    return {**tables, "part": lakeseal.transaction("sqlite:///ledger.db").table("orders")}


FUNCTIONS = ("convert", "create", "is_delta_table", "register", "snapshots", "sql", "transaction")
PREPARED: dict[str, tuple[Callable[[], None], Callable[[], dict[str, Any]]]] = {
    "Table": (_orders, lambda: {"orders": lakeseal.Table("orders")}),
    "CommitResult": (_orders, lambda: {"orders": lakeseal.Table("orders")}),
    "MergeBuilder": (_orders, _merge),
    "Snapshot": (_partitioned, lambda: {"snapshot": lakeseal.Table("orders").snapshot()}),
    "Catalog": (_nothing, _catalog),
    "Repository": (_repository, lambda: {"repo": lakeseal.Repository.open("repo")}),
    "Pipeline": (_nothing, _pipeline),
    "RunResult": (_nothing, _pipeline),
    "TablesTransaction": (_nothing, _owned),
    "TablePart": (_nothing, _owned),
    **dict.fromkeys(FUNCTIONS, (_orders, dict)),
    "transaction": (_nothing, _owned),
    "snapshots": (_nothing, _owned),
}
