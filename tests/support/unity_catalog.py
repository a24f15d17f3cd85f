"""A service with a catalog in it, and what speaks its protocol: plain requests, and DuckDB."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extensions  # type: ignore[import-untyped]
import httpx
import msgspec
import pyarrow as pa

import lakeseal
from lakeseal.catalog.names import CommitKind
from lakeseal.catalog.table_name import TableName
from lakeseal.clock import now_ms
from lakeseal.owner.config import OwnerConfig
from lakeseal.service import tokens
from lakeseal.service.access import Grant
from lakeseal.service.service import Service
from lakeseal.table import Table
from lakeseal.testing.service import service_inside

BASE = "/api/2.1/unity-catalog"
FIELDS = [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]
ERROR_TYPES = {
    "BadRequestException",
    "InvalidParameterValueException",
    "UnsupportedTableFormatException",
    "NotAuthorizedException",
    "PermissionDeniedException",
    "NotFoundException",
    "NoSuchCatalogException",
    "NoSuchSchemaException",
    "NoSuchTableException",
    "AlreadyExistsException",
    "CommitVersionConflictException",
    "UpdateRequirementConflictException",
    "ResourceExhaustedException",
    "TooManyRequestsException",
    "CommitStateUnknownException",
    "InternalServerErrorException",
    "NotImplementedException",
}
"""All that errors of UC Delta API v1 may be (`DeltaErrorType`)."""
SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string())])


class Catalog:
    """A service, and tables in it by name."""

    def __init__(self, url: str, service: Service, folder: Path) -> None:
        self.url = url
        self.service = service
        self.folder = folder
        self.token = self.login("admin")
        self.owner = OwnerConfig(url=url, token=self.token)
        self.http = httpx.Client(base_url=url + BASE, trust_env=False, verify=False, timeout=60)

    def login(self, *grants: str, name: str = "somebody") -> str:
        return tokens.create(self.service.ledger, name, tuple(map(Grant.from_text, grants)), now=now_ms())[0]

    def create(self, name: str, schema: pa.Schema = SCHEMA, kind: str = "catalog", **options: Any) -> Table:
        table = lakeseal.create(self.folder / name, schema, owner=self.owner, kind=kind, **options)
        self.register(name, table)
        return table

    def register(self, name: str, table: Table, kind: CommitKind = CommitKind.CATALOG) -> None:
        known = table.snapshot().properties.catalog_table_id
        named = TableName(schema="sales", table=name)
        self.service.names.register(named, f"file://{self.folder}/{name}", kind, table_id=known)

    def ask(self, method: str, path: str, body: Any = None, *, token: str | None = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token or self.token}"}
        return self.http.request(method, path, json=body, headers=headers)

    def path(self, name: str) -> str:
        return f"/delta/v1/catalogs/main/schemas/sales/tables/{name}"

    def load(self, name: str) -> dict[str, Any]:
        answer = self.ask("GET", self.path(name))
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def stage(
        self, name: str, version: int, *, txn_id: str | None = None, timestamp: int | None = None, **more: Any
    ) -> dict[str, Any]:
        """A file of a commit as another engine writes it, and how it is named in a request."""
        now = timestamp or now_ms() + version
        info = {"timestamp": now, "inCommitTimestamp": now, "operation": "WRITE", "txnId": txn_id or str(uuid.uuid4())}
        add = {"path": "x", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
        lines = [{"commitInfo": {**info, **more.pop("info", {})}}, {"add": {**add, **more}}]
        data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        return self.stage_bytes(name, version, data, now)

    def stage_bytes(self, name: str, version: int, data: bytes, timestamp: int) -> dict[str, Any]:
        file = f"{version:020d}.{uuid.uuid4()}.json"
        folder = self.folder / name / "_delta_log" / "_staged_commits"
        folder.mkdir(exist_ok=True)
        (folder / file).write_bytes(data)
        return {
            "version": version,
            "timestamp": timestamp,
            "file-name": file,
            "file-size": len(data),
            "file-modification-timestamp": timestamp,
        }

    def commit(
        self, name: str, staged: dict[str, Any], *requirements: dict[str, Any], token: str | None = None
    ) -> httpx.Response:
        body = {"requirements": list(requirements), "updates": [{"action": "add-commit", "commit": staged}]}
        return self.ask("POST", self.path(name), body, token=token)

    def duckdb(self, *, token: str | None = None, url: str | None = None) -> duckdb.DuckDBPyConnection:
        """With the catalog attached as `c`."""
        for name in ("httpfs", "delta", "unity_catalog"):
            duckdb_extensions.import_extension(name)
        connection = duckdb.connect()
        for name in ("httpfs", "delta", "unity_catalog"):
            connection.execute(f"LOAD {name}")
        said = f"TOKEN '{token or self.token}', ENDPOINT '{url or self.url}', AWS_REGION 'us-east-1'"
        connection.execute(f"CREATE SECRET (TYPE UNITY_CATALOG, {said})")
        attach(connection)
        return connection


def attach(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("ATTACH 'main' AS c (TYPE UNITY_CATALOG, DEFAULT_SCHEMA 'sales')")


@contextmanager
def open_catalog(folder: Path, **settings: Any) -> Iterator[Catalog]:
    folder.mkdir(exist_ok=True)
    with service_inside(**{"ledger": f"sqlite:///{folder}/ledger.db", "rate": 0, **settings}) as (url, service):
        found = Catalog(url, service, folder)
        try:
            yield found
        finally:
            found.http.close()


def version_0(staged: dict[str, Any]) -> list[dict[str, Any]]:
    """Version 0 as an engine writes it that does what it was told."""
    needed = staged["required-protocol"]
    now = now_ms()
    protocol = {
        "minReaderVersion": needed["min-reader-version"],
        "minWriterVersion": needed["min-writer-version"],
        "readerFeatures": needed["reader-features"],
        "writerFeatures": needed["writer-features"],
    }
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": msgspec.json.encode({"type": "struct", "fields": FIELDS}).decode(),
        "partitionColumns": [],
        "configuration": dict(staged["required-properties"]),
        "createdTime": now,
    }
    info = {"timestamp": now, "inCommitTimestamp": now, "operation": "CREATE TABLE", "txnId": str(uuid.uuid4())}
    return [{"commitInfo": info}, {"protocol": protocol}, {"metaData": metadata}]


def write_version(staged: dict[str, Any], lines: list[dict[str, Any]] | bytes, version: int = 0) -> Path:
    log = Path(staged["location"].removeprefix("file://")) / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    data = lines if isinstance(lines, bytes) else b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    (log / f"{version:020d}.json").write_bytes(data)
    return log
