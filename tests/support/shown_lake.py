"""A lake with something of everything to show, and browsers that are signed in to a service of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pyarrow as pa
import pytest

import lakeseal
from lakeseal.branches import embedded
from lakeseal.clock import now_ms
from lakeseal.errors import NotAllowed, RunFailed
from lakeseal.service import tokens
from lakeseal.service.access import Grant
from lakeseal.service.client import HttpOwner
from lakeseal.service.service import Service
from lakeseal.steps.books import LedgerBooks
from lakeseal.steps.fs_rename import FsRenameCommitStep
from lakeseal.steps.sequence import CommitSequence
from lakeseal.steps.store import SequenceState

EVIL = "<script>alert('x')</script>"
MARK = re.compile(r'name="form" value="([0-9a-f]{64})"')


class Shown(NamedTuple):
    url: str
    service: Service
    root: Path
    ledger: str

    def token(self, name: str, *grants: str) -> str:
        return tokens.create(self.service.ledger, name, tuple(map(Grant.from_text, grants)), now=now_ms())[0]

    @contextmanager
    def browser(self, token: str | None = None) -> Iterator[httpx.Client]:
        """Signed in by the form, as a person would."""
        asks: dict[str, Any] = {"headers": {"Accept": "text/html"}, "follow_redirects": True}
        with httpx.Client(base_url=self.url, trust_env=False, timeout=60, **asks) as client:
            if token is not None:
                page = client.get("/sign-in")
                signed = client.post("/sign-in?next=/", data={"form": mark(page.text), "token": token})
                assert signed.status_code == 200, signed.text
            yield client

    @property
    def repository(self) -> lakeseal.Repository:
        return lakeseal.Repository(embedded.open(self.root / "repo", ledger=self.service.ledger))


def mark(html: str) -> str:
    found = MARK.search(html)
    assert found is not None
    return found[1]


def fill(root: Path, ledger: str) -> None:
    """Tables with and without names and owners, a repository with two branches, a pipeline that ran twice."""
    catalog = lakeseal.Catalog(ledger, root=root / "tables")
    schema = pa.schema([("id", pa.int64()), ("shop", pa.string()), (EVIL, pa.string())])
    orders = catalog.create("sales.orders", schema, root / "orders", partition_by=["shop"])
    for day in range(1, 5):
        rows = {"id": [day, day * 10], "shop": ["north", EVIL], EVIL: ["<b>bold</b>", None]}
        orders.write(pa.table(rows), user_metadata=f"day {day} {EVIL}")
    orders.delete("id = 1")
    managed = catalog.create("sales.managed", schema, root / "managed", kind="managed")
    managed.write(pa.table({"id": [1], "shop": ["north"], EVIL: ["x"]}))
    catalog.create("secret.salaries", schema, root / "secret" / "salaries")
    repo = lakeseal.Repository.create(root / "repo", ledger=ledger)
    repo.write(pa.table({"a": [1, 2]}), "main", "out/a", message="first rows")
    repo.create_branch("try")
    repo.write(pa.table({"a": [3]}), "try", "out/b", message=f"new {EVIL}")
    assert isinstance(repo.store, embedded.EmbeddedBranchStore)
    repo.store.close()
    source = root / "incoming"
    source.mkdir()
    (source / "1.json").write_text('{"id": 1, "name": "one"}\n{"id": -2, "name": "two"}\n')
    config = root / "clicks.yaml"
    config.write_text(
        f"""name: clicks
ledger: {ledger}
datasets:
  - name: clicks
    source: {{type: files, path: {source}, format: json, schema: "id long, name string"}}
    target: {{type: table, uri: {root / "clicks"}}}
    quality: [{{rule: "id > 0", on_fail: error_table}}]
    error_table: {root / "bad"}
"""
    )
    assert lakeseal.Pipeline.from_yaml(config).run().rows == 1
    (source / "2.json").write_text('{"id": 3, "name": "three"}\n')
    assert lakeseal.Pipeline.from_yaml(config).run().rows == 1


def fill_more(shown: Shown) -> None:
    """What is long and wide, and what went wrong: in a service that runs."""
    root, catalog = shown.root, lakeseal.Catalog(shown.ledger, root=shown.root / "tables")
    _wide(catalog, root)
    rob, carla = shown.token("rob", "reader"), shown.token("carla", "writer")
    rows = pa.table({"id": [5], "shop": ["east"], EVIL: ["x"]})
    lakeseal.Table(root / "managed", owner=HttpOwner(shown.url, token=carla)).write(rows)
    with pytest.raises(NotAllowed):
        lakeseal.Table(root / "managed", owner=HttpOwner(shown.url, token=rob)).write(rows)
    shown.token("the nightly jobs of the shops in the north", f"writer:{root}/orders", f"reader:{root}/secret/salaries")
    repo = shown.repository
    repo.create_branch("a-branch-for-the-corrections-of-march-with-a-long-name", "main")
    repo.put("try", "notes/a.txt", b"a", f"at length {EVIL} why the numbers of March had to be put in again, as agreed")
    fill_late(shown)


def _wide(catalog: lakeseal.Catalog, root: Path) -> None:
    told = {"comment": "what was paid, with tax, in the currency of the shop"}
    nested = pa.struct([("street", pa.string()), ("city", pa.string()), ("marks", pa.list_(pa.string()))])
    fields = [pa.field("id", pa.int64(), nullable=False), pa.field("price", pa.decimal128(18, 2), metadata=told)]
    fields += [pa.field("address", nested), pa.field("day", pa.date32()), pa.field("shop", pa.string())]
    fields += [pa.field(f"measure_number_{number:02}", pa.float64()) for number in range(30)]
    properties = {"delta.appendOnly": "true", "delta.logRetentionDuration": "interval 30 days", "owner.team": "x" * 200}
    table = catalog.create(
        "sales.a_table_with_a_name_that_somebody_took_some_time_to_think_of",
        pa.schema(fields),
        root / "wide",
        partition_by=["day", "shop"],
        properties=properties,
    )
    for number in range(12):
        row: dict[str, Any] = {"id": number, "price": None, "day": None, "shop": "a shop with a name" * (number % 4)}
        row |= {"address": {"street": "of a long name " * 20, "city": "y", "marks": ["a", "b"]}}
        row |= {f"measure_number_{at:02}": number * at / 7 for at in range(30)}
        table.write(pa.Table.from_pylist([row], pa.schema(fields)), user_metadata="said at length, " * (number % 5) * 4)


def fill_late(shown: Shown) -> None:
    """A pipeline whose source is not there, and steps that were tried three times."""
    config = shown.root / "late.yaml"
    config.write_text(
        f"""name: late
ledger: {shown.ledger}
datasets:
  - name: orders
    source: {{type: sql, url: "sqlite:///{shown.root}/nowhere/source.db", table: orders, column: id, schema: "id long"}}
    target: {{type: table, uri: {shown.root / "late"}}}
"""
    )
    with pytest.raises(RunFailed):
        lakeseal.Pipeline.from_yaml(config).run()
    steps = LedgerBooks(shown.service.ledger).sequences
    move = FsRenameCommitStep.of(f"file://{shown.root}/from", f"file://{shown.root}/to", [])
    steps.put(CommitSequence.builder("late", "items").add(move).build())
    status = steps.status("late", "items")
    assert status is not None
    why = f"The disk {EVIL} is full: {shown.root}/to/a/file/with/a/long/name/part-00000-873de518-baca-455f-a0c1.parquet"
    checksum, epoch = status.checksum, status.epoch
    steps.note("late", "items", state=SequenceState.SET_ASIDE, tries=3, reason=why, checksum=checksum, epoch=epoch)
