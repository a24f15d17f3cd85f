"""Data files that other clients wrote, where rows alone do not say enough; the rows are compared in tests/table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lakeseal.errors import DataFileMissing, UnsafePath
from lakeseal.log.data import DataFile, DataReader, ReadSpec
from lakeseal.log.delta_log import DeltaLog
from lakeseal.log.scan import Scan
from lakeseal.protocol.schema import StructType
from lakeseal.storage import open_store


def read(table: Path) -> pa.Table:
    store = open_store(table)
    return Scan(DeltaLog(store).snapshot(), store).to_arrow()


@pytest.mark.parametrize(
    "name", ["kernel-rs-data/unshredded-variant", "delta-rs-data/spark-shredded-variant-preview-delta"]
)
def test_variants_are_read_as_their_bytes_at_every_depth(shared_tables: Path, name: str) -> None:
    found = read(shared_tables / name)
    found.validate(full=True)
    variant = found["v"].type
    assert [f.name for f in variant] == ["metadata", "value"]
    assert found["array_of_variants"].type.value_type == variant
    assert found["map_of_variants"].type.item_type == variant
    assert found["array_of_struct_of_variants"].type.value_type.field("v").type == variant
    first = found["v"].drop_null()[0].as_py()
    assert first["metadata"][0] & 0x0F == 1  # the version of the encoding
    assert found.num_rows == 102


def test_int96_timestamps_beyond_the_range_of_nanoseconds_are_read(shared_tables: Path) -> None:
    # The independent reader that the other expectations come from wraps these around to 1816.
    found = read(shared_tables / "delta-rs-data" / "table_with_edge_timestamps")
    assert sorted(t.year for t in found["BIG_DATE"].to_pylist()) == [9999, 9999]


def test_a_log_that_climbs_out_of_its_table_is_refused(shared_tables: Path) -> None:
    table = shared_tables / "golden" / "data-reader-absolute-paths-escaped-chars" / "delta"
    path = "..//Users/scott.sandre/connectors/golden-tables/src/test/resources/golden/x/foo.snappy.parquet"
    with pytest.raises(UnsafePath, match="leaves the table"):
        list(DataReader(open_store(table), ReadSpec(schema=StructType())).read([DataFile(path=path)]))


def test_a_log_that_names_files_that_are_gone_says_which(shared_tables: Path) -> None:
    table = shared_tables / "golden" / "log-replay-special-characters-b" / "delta"
    with pytest.raises(DataFileMissing) as caught:
        read(table)
    assert (caught.value.table, caught.value.file) == (open_store(table).uri, "special%20p@%23h")
