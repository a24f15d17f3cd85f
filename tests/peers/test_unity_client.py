"""PyPI's `unitycatalog-client` accepts every answer of the service: each of its methods for what a catalog of tables
has, in an environment of its own, since it does not go with our pydantic."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from support.unity_catalog import ERROR_TYPES, FIELDS, Catalog, open_catalog, version_0, write_version

pytestmark = pytest.mark.peers

PYTHON = Path(__file__).resolve().parents[2] / ".venv-peers" / "unity" / "bin" / "python"
TYPES = pa.schema(
    [
        ("id", pa.int64()),
        ("price", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("place", pa.struct([("x", pa.float64()), ("at", pa.timestamp("us", tz="UTC"))])),
    ]
)


def ask(catalog: Catalog, *parts: str, **said: Any) -> dict[str, Any]:
    asked = {"url": catalog.url, "token": catalog.token, "parts": parts, **said}
    program = Path(__file__).with_name("unity_client.py")
    done = subprocess.run(
        [str(PYTHON), str(program)], input=json.dumps(asked), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_client_accepts_every_answer(tmp_path: Path) -> None:
    if not PYTHON.exists():
        pytest.skip("unitycatalog-client is not set up here: `make peers` does it where PyPI answers")
    (tmp_path / "lake").mkdir()
    root = f"file://{tmp_path}"
    lent = [
        {"prefix": root, "operation": operation, "config": {"s3.access-key-id": "key", "s3.secret-access-key": "x"}}
        for operation in ("READ", "READ_WRITE")
    ]
    roots = (f"{root}/lake", root)
    with open_catalog(tmp_path, roots=roots, credentials=tuple(lent), publish_every_s=3600.0) as catalog:
        orders = catalog.create("orders", TYPES)
        old = catalog.create("old", kind="coordinated")
        catalog.create("spare")
        commit = catalog.stage("old", 1)
        known = {"table_id": old.snapshot().properties.catalog_table_id, "table_uri": old.uri}
        answers = ask(
            catalog,
            "lists",
            "preview",
            "delta",
            "begun",
            "absent",
            table="orders",
            **known,
            preview_commit={name.replace("-", "_"): value for name, value in commit.items()},
            commit=catalog.stage("orders", 1),
            place=f"{root}/lake/another",
        )
        check_lists(answers["lists"])
        check_delta(answers["delta"])
        assert (orders.version(), old.version()) == (1, 1)
        assert set(answers["absent"].values()) == {404}
        staged = answers["begun"]["staged"]
        assert len(answers["begun"]["lent"]["storage-credentials"]) == 1
        write_version(staged, version_0(staged))
        new = {
            "name": "new",
            "location": staged["location"],
            "table-type": "MANAGED",
            "columns": {"type": "struct", "fields": FIELDS},
            "protocol": staged["required-protocol"],
            "properties": staged["required-properties"],
            "last-commit-timestamp-ms": 0,
        }
        told = catalog.ask("GET", "/delta/preview/commits", {**known, "start_version": 0}).json()
        answers = ask(catalog, "told", "made", new=new, told=told)
        assert answers["told"]["told"]["latest_table_version"] == 1
        assert [one["file_name"] for one in answers["told"]["told"]["commits"]] == [commit["file-name"]]
        made = answers["made"]["made"]
        assert made["metadata"]["table-uuid"] == staged["table-id"]
        assert made["metadata"]["columns"]["fields"] == FIELDS


def check_lists(found: dict[str, Any]) -> None:
    assert [one["name"] for one in found["catalogs"]["catalogs"]] == ["main"]
    assert [one["name"] for one in found["schemas"]["schemas"]] == ["extra", "sales"]
    assert (found["catalog"]["name"], found["schema"]["full_name"]) == ("main", "main.sales")
    assert [one["name"] for one in found["tables"]["tables"]] == ["old", "orders", "spare"]
    assert [one["name"] for one in found["tables after"]["tables"]] == ["old", "orders"]
    assert [one["name"] for one in found["table"]["columns"]] == TYPES.names
    assert found["metastore"]["metastore_id"]


def check_delta(found: dict[str, Any]) -> None:
    assert found["config"]["protocol-version"] == "1.0"
    assert (found["loaded"]["latest-table-version"], found["updated"]["latest-table-version"]) == (0, 1)
    assert [one["version"] for one in found["updated"]["commits"]] == [1]
    assert [one["name"] for one in found["loaded"]["metadata"]["columns"]["fields"]] == TYPES.names
    for name in ("lent", "lent place"):
        (one,) = found[name]["storage-credentials"]
        assert one["config"]["s3.access-key-id"] == "key"
    assert found["missing"] == 404
    assert set(found["error types"]) == ERROR_TYPES
