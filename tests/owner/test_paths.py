"""One table by many paths: its owner knows it by each of them."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

import lakeseal
from lakeseal import Table
from lakeseal.commit.proposal import Operation
from lakeseal.commit.transaction import OptimisticTransaction
from lakeseal.errors import PolicyRefused
from lakeseal.log.files import add_actions
from lakeseal.owner import endpoint
from lakeseal.owner.config import OwnerConfig
from lakeseal.owner.connect import connect
from lakeseal.storage import identity, open_store

SCHEMA = pa.schema({"x": pa.int64()})


def rows(*x: int) -> pa.Table:
    return pa.table({"x": pa.array(x, pa.int64())})


@pytest.fixture
def owner(tmp_path: Path) -> OwnerConfig:
    """Nothing of what it ratifies is in the log soon."""
    return OwnerConfig(url=f"sqlite:///{tmp_path}/ledger.db", batch_size=1000)


@pytest.fixture
def table(tmp_path: Path, owner: OwnerConfig) -> Table:
    (tmp_path / "real").mkdir()
    table = lakeseal.create(tmp_path / "real" / "t", SCHEMA, owner=owner)
    table.write(rows(1))
    os.symlink(tmp_path / "real" / "t", tmp_path / "link")
    os.symlink(tmp_path / "link", tmp_path / "link-to-link")
    os.symlink("real", tmp_path / "directory")
    return table


SPELLINGS = (
    "{root}/link",
    "{root}/link/",
    "{root}/link-to-link",
    "{root}/directory/t",
    "file://{root}/link",
    "FILE://{root}/directory/t/",
    "file:{root}/link",
    "/{root}/real//t/",
    "{root}/real/../real/./t",
    "link",
    "./directory/t/",
    "real/t",
)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_table_is_read_and_written_whole_by_whatever_path_it_is_opened(
    table: Table, owner: OwnerConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    monkeypatch.chdir(tmp_path)
    other = Table(spelling.format(root=tmp_path), owner=owner)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert other.version() == 1
        other.write(rows(2))
        assert sorted(table.to_arrow()["x"].to_pylist()) == [1, 2]
        assert sorted(other.to_arrow()["x"].to_pylist()) == [1, 2]
        [snapshot] = lakeseal.snapshots(owner, [spelling.format(root=tmp_path)])
        assert snapshot.version == 2


def test_a_transaction_has_one_part_for_a_table_by_two_paths(table: Table, owner: OwnerConfig, tmp_path: Path) -> None:
    with lakeseal.transaction(owner) as txn:
        assert txn.table(table).to_arrow().num_rows == 1
        txn.table(tmp_path / "link").write(rows(5))
    assert table.version() == 2


def test_a_table_is_created_taken_over_and_released_by_a_link(owner: OwnerConfig, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    os.symlink("real", tmp_path / "link")
    created = lakeseal.create(tmp_path / "link" / "t", SCHEMA, owner=owner)
    assert Table(tmp_path / "real" / "t", owner=owner).version() == 0
    created.write(rows(1))
    Table(tmp_path / "real" / "t", owner=owner).release()
    assert created.to_arrow().num_rows == 1
    created.take_over(owner)
    created.write(rows(2))
    assert Table(tmp_path / "real" / "t", owner=owner).to_arrow().num_rows == 2
    assert connect(owner).get_commits(identity(open_store(tmp_path / "link" / "t"))).latest == created.version()


def test_a_table_that_has_the_name_of_a_link_keeps_it(
    owner: OwnerConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    os.symlink("real", tmp_path / "link")
    with monkeypatch.context() as before:
        before.setattr(endpoint, "identity", lambda store: store.uri)
        lakeseal.create(tmp_path / "link" / "t", SCHEMA, owner=owner).write(rows(1))
    link = open_store(tmp_path / "link" / "t")
    assert connect(owner).attach(link) == link.uri
    assert Table(tmp_path / "link" / "t", owner=owner).to_arrow().num_rows == 1


def test_a_vacuum_through_a_link_keeps_files_that_the_log_names_by_another_path(tmp_path: Path) -> None:
    real = Table(tmp_path / "real")
    real.write(rows(1))
    for name, target in (("link", "real"), ("other", tmp_path / "real")):
        os.symlink(target, tmp_path / name)
    # As a writer does that names its files by whole URIs.
    [add] = add_actions(real.snapshot().files)
    for path in ("real", "other"):
        route = real._router.route()
        txn = OptimisticTransaction.begin(route.log, route.owner)
        copied = tmp_path / "real" / f"{path}.parquet"
        copied.write_bytes((tmp_path / "real" / add.path).read_bytes())
        txn.commit([replace(add, path=f"file://{tmp_path}/{path}/{copied.name}")], Operation(name="WRITE"))
    for path in ("link", "real"):
        assert Table(tmp_path / path).vacuum(0, enforce_retention_duration=False).deleted == ()
    assert real.to_arrow().num_rows == 3


@pytest.mark.parametrize("said", ["link", "directory", "real"])
@pytest.mark.parametrize("opened", ["link", "real/t"])
def test_a_policy_holds_by_whatever_path_it_names_its_tables(
    table: Table, owner: OwnerConfig, tmp_path: Path, said: str, opened: str
) -> None:
    careful = replace(owner, policies=({"policy": "append-only", "tables": f"file://{tmp_path}/{said}"},))
    with pytest.raises(PolicyRefused):
        Table(tmp_path / opened, owner=careful).delete("x = 1")
