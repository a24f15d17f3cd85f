"""What every way to an owner must do."""

from __future__ import annotations

import uuid

import pytest

from contracts.endpoint_contract import OwnerEndpointContract
from contracts.owner_contract import CommitOwnerContract, OwnedTable
from lakeseal.owner.connect import connect
from lakeseal.owner.endpoint import OwnerEndpoint
from lakeseal.owner.managed_owner import ManagedOwner
from lakeseal.storage import Store, open_store
from lakeseal.testing.s3 import S3Server
from support.wired_owner import WiredOwner


@pytest.fixture(params=["memory", "sqlite", "postgresql", "over a wire"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def reach(way: str, request: pytest.FixtureRequest, batch_size: int) -> OwnerEndpoint:
    match way:
        case "memory":
            return connect(f"memory://{uuid.uuid4().hex}", batch_size=batch_size)
        case "over a wire":
            return WiredOwner(request.getfixturevalue("open_owner")(batch_size=batch_size))
        case _:
            url = request.getfixturevalue("sqlite_url" if way == "sqlite" else "postgres_url")
            endpoint: OwnerEndpoint = request.getfixturevalue("open_owner")(url, batch_size=batch_size)
            return endpoint


class TestEndpoint(OwnerEndpointContract):
    @pytest.fixture
    def endpoint(self, way: str, request: pytest.FixtureRequest) -> OwnerEndpoint:
        return reach(way, request, 1000)

    @pytest.fixture
    def stores(self) -> list[Store]:
        return [open_store(f"memory://{uuid.uuid4().hex}/{name}") for name in "abc"]


class TestEndpointOnS3(OwnerEndpointContract):
    @pytest.fixture
    def endpoint(self, request: pytest.FixtureRequest) -> OwnerEndpoint:
        return reach("sqlite", request, 1000)

    @pytest.fixture
    def stores(self, s3: S3Server) -> list[Store]:
        return [open_store(s3.uri(f"{uuid.uuid4().hex}/{name}"), s3.storage_options) for name in "abc"]


class TestManagedOwner(CommitOwnerContract):
    @pytest.fixture(params=[1, 2, 100], ids="batchSize{}".format)
    def owned(self, way: str, request: pytest.FixtureRequest, memory: Store) -> OwnedTable:
        return OwnedTable(ManagedOwner(reach(way, request, request.param), memory), memory)


class TestManagedOwnerOnS3(CommitOwnerContract):
    @pytest.fixture
    def owned(self, request: pytest.FixtureRequest, s3: S3Server) -> OwnedTable:
        store = open_store(s3.uri(f"{uuid.uuid4().hex}/table"), s3.storage_options)
        return OwnedTable(ManagedOwner(reach("sqlite", request, 2), store), store)
