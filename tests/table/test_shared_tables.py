"""Tables that other projects wrote give the rows that their authors, or an independent reader, say they have.

Cases are whatever the folder holds, so more of the same kind can be laid beside them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeseal import LakesealError, Table
from support.rows import rows

ROOT = Path(__file__).resolve().parents[2].parent / "shared" / "tables"

# Its writer's zone went into the expected timestamps; the log has them without one, which means UTC.
DOUBTFUL_COLUMNS = {"data-reader-partition-values": ["as_timestamp"]}
# deltalake, which wrote the expectation, wraps the year 9999 around to 1816.
WRONG_ORACLES = {"delta-rs-data__table_with_edge_timestamps"}


def folders(group: str) -> list[Path]:
    return sorted(path for path in (ROOT / group).glob("*") if path.is_dir())


def ids(paths: list[Path]) -> list[str]:
    return ["/".join(path.relative_to(ROOT).parts) for path in paths]


def parametrize(name: str, paths: list[Path]) -> pytest.MarkDecorator:
    absent = pytest.mark.skip(reason="the folder ../shared/tables with other projects' Delta tables is not here")
    if not ROOT.is_dir():
        return pytest.mark.parametrize(name, [pytest.param(None, marks=absent)])
    return pytest.mark.parametrize(name, paths, ids=ids(paths))


def expected(folder: Path) -> pa.Table:
    files = [f for f in sorted(folder.rglob("*.parquet")) if not f.name.startswith((".", "_"))]
    return pa.concat_tables([pq.ParquetFile(f).read() for f in files], promote_options="permissive")


def assert_rows(found: pa.Table, wanted: pa.Table) -> None:
    found.validate(full=True)
    assert sorted(found.column_names) == sorted(wanted.column_names)
    assert rows(found) == rows(wanted)


DAT = [case for table in folders("dat") for case in sorted((table / "expected").iterdir())]
GOLDEN = folders("golden")
ORACLES = sorted((ROOT / "oracle").glob("*.parquet"))


@parametrize("case", DAT)
def test_acceptance_cases_have_the_expected_version_protocol_and_rows(case: Path) -> None:
    stated = json.loads((case / "table_version_metadata.json").read_text())
    version = None if case.name == "latest" else int(case.name.removeprefix("v"))
    table = Table(case.parent.parent / "delta")
    snapshot = table.snapshot(version)
    assert snapshot.version == stated["version"]
    assert snapshot.protocol.min_reader_version == stated["min_reader_version"]
    assert snapshot.protocol.min_writer_version == stated["min_writer_version"]
    assert_rows(table.to_arrow(version=version), expected(case / "table_content"))


@parametrize("case", [case for case in GOLDEN if (case / "expected").is_dir()])
def test_golden_tables_have_the_expected_rows(case: Path) -> None:
    doubtful = DOUBTFUL_COLUMNS.get(case.name, [])
    found, wanted = Table(case / "delta").to_arrow(), expected(case / "expected")
    assert sorted(found.column_names) == sorted(wanted.column_names)
    assert_rows(found.drop_columns(doubtful), wanted.drop_columns(doubtful))


@parametrize("case", [case for case in GOLDEN if not (case / "expected").is_dir()])
def test_golden_logs_without_data_give_a_typed_error_or_a_log_state(case: Path) -> None:
    table = Table(case / "delta")
    try:
        snapshot = table.snapshot()
    except LakesealError as error:
        assert error.table
        assert error.hint
        return
    assert snapshot.version >= 0
    if snapshot.files.num_rows:
        with pytest.raises(LakesealError) as raised:
            table.to_arrow()
        assert raised.value.table
        assert raised.value.hint


@parametrize("oracle", ORACLES)
def test_tables_have_the_rows_that_an_independent_reader_saw(oracle: Path) -> None:
    table = Table(ROOT / oracle.stem.replace("__", "/", 1))
    found = table.to_arrow()
    if oracle.stem in WRONG_ORACLES:
        assert max(found["BIG_DATE"].to_pylist()).year == 9999
        return
    assert_rows(found, pq.ParquetFile(oracle).read())


@parametrize(
    "folder",
    [
        path
        for group in ("kernel-rs-data", "delta-rs-data")
        for path in folders(group)
        if not (ROOT / "oracle" / f"{group}__{path.name}.parquet").exists()
    ],
)
def test_tables_that_nobody_read_for_us_are_read_or_refused_by_name(folder: Path) -> None:
    try:
        found = Table(folder).to_arrow()
    except LakesealError as error:
        assert error.table
        assert error.hint
    else:
        found.validate(full=True)
