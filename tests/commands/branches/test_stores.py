"""Jobs on object stores: the same, with the ledger elsewhere."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lakeseal import Repository
from lakeseal.errors import InvalidArgument
from lakeseal.testing.s3 import S3Server


@pytest.mark.parametrize("format", ["parquet", "csv", "json", "orc"])
def test_jobs_write_to_s3_and_are_read_and_exported_from_it(
    s3: S3Server, shared_ledger: str, tmp_path: Path, format: str
) -> None:
    uri = s3.uri(f"repo {format}")
    repo = Repository.create(uri, ledger=shared_ledger, storage_options=s3.storage_options)
    rows = pa.table({"n": list(range(20)), "p": [f"é {n % 3}/" for n in range(20)]})
    for mode in ("append", "append", "overwrite"):
        repo.write(rows, "main", "out dir/é", format=format, mode=mode, partition_by="p")
    again = Repository.open(uri, ledger=shared_ledger, storage_options=s3.storage_options)
    assert again.to_arrow("main", "out dir/é").sort_by("n").to_pydict() == rows.to_pydict()
    assert again.to_arrow("main~1", "out dir/é").num_rows == 40
    assert again.export("main", "out dir/é", tmp_path / "plain").copied == 3
    target = s3.uri(f"plain {format}")
    assert again.export("main", "out dir/é", target, s3.storage_options).copied == 3
    assert again.export("main", "out dir/é", target, s3.storage_options).copied == 0


def test_a_repository_beyond_this_disk_needs_a_ledger(s3: S3Server) -> None:
    with pytest.raises(InvalidArgument, match="ledger"):
        Repository.create(s3.uri("nowhere"), storage_options=s3.storage_options)
