"""A lake with something of everything to show, and browsers that are signed in to a service of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pyarrow as pa

import lakeseal
from lakeseal.branches import embedded
from lakeseal.clock import now_ms
from lakeseal.service import tokens
from lakeseal.service.access import Grant
from lakeseal.service.service import Service

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
