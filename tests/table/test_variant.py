"""Columns of variants: any value in two binaries, written and read as they are, with and without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import VariantVal

import lakeseal
from lakeseal import errors
from lakeseal.protocol.arrow import to_arrow_type
from lakeseal.protocol.features import reader_features
from lakeseal.protocol.schema import VARIANT

JSON = ['{"a": 1, "b": [true, null, "x"]}', None, "12.50", '"text"', '{"a": {"deep": -1e10}}']
TYPE = to_arrow_type(VARIANT)


def variants(texts: list[str | None]) -> pa.Array:
    values = [None if text is None else VariantVal.parseJson(text) for text in texts]
    return pa.array([v and {"metadata": v.metadata, "value": v.value} for v in values], TYPE)


def rows(first: int, texts: list[str | None]) -> pa.Table:
    ids = pa.array(range(first, first + len(texts)), pa.int64())
    return pa.table({"id": ids, "v": variants(texts)}, pa.schema([("id", pa.int64()), pa.field("v", TYPE)]))


def held(table: pa.Table) -> list[tuple[int, Any]]:
    read = [(row["id"], row["v"]) for row in table.to_pylist()]
    return sorted((n, v and VariantVal(v["value"], v["metadata"]).toPython()) for n, v in read)


def meant(first: int, texts: list[str | None]) -> list[tuple[int, Any]]:
    return [(first + n, text and VariantVal.parseJson(text).toPython()) for n, text in enumerate(texts)]


@pytest.mark.parametrize(("vectors", "shredding"), [("false", "false"), ("true", "false"), ("false", "true")])
def test_variants_are_written_rewritten_and_merged_as_they_are(tmp_path: Path, vectors: str, shredding: str) -> None:
    table = lakeseal.Table(tmp_path)
    properties = {
        "delta.enableDeletionVectors": vectors,
        "delta.enableChangeDataFeed": "true",
        "delta.enableVariantShredding": shredding,
    }
    table.write(rows(0, JSON), properties=properties)
    features = reader_features(table.snapshot().protocol)
    assert "variantType" in features
    assert ("variantShredding" in features) == (shredding == "true")
    assert held(table.to_arrow()) == meant(0, JSON)

    table.write(rows(5, JSON[:2]))
    table.delete("id = 2")
    table.update({"id": "id + 100"}, "id = 4")
    merge = table.merge(rows(0, ['{"new": 1}', "7"]), "t.id = s.id")
    merge.when_matched_update("*").when_not_matched_insert("*").execute()
    table.optimize()

    now = {0: {"new": 1}, 1: 7, 3: "text", 5: meant(0, JSON)[0][1], 6: None, 104: meant(0, JSON)[4][1]}
    assert held(lakeseal.Table(tmp_path).to_arrow()) == sorted(now.items())
    assert held(table.to_arrow(where="v IS NULL")) == [(6, None)]
    table.checkpoint()
    assert held(lakeseal.Table(tmp_path).to_arrow()) == sorted(now.items())


def test_what_cannot_be_done_by_variants_is_refused(tmp_path: Path) -> None:
    table = lakeseal.Table(tmp_path)
    for how in ({"partition_by": ["v"]}, {"cluster_by": ["v"]}):
        with pytest.raises(errors.LakesealError):
            table.write(rows(0, JSON), **how)
    assert not table.exists()
    table.write(rows(0, JSON))
    for condition in ("v = 1", "v > v", "v IN (1)"):
        with pytest.raises(errors.LakesealError):
            table.delete(condition)
    with pytest.raises(errors.LakesealError):
        table.optimize(zorder_by=["v"])
    assert table.version() == 0
    lakeseal.sql(f"CREATE TABLE delta.`{tmp_path}/sql` (id INT, v VARIANT)")
    assert lakeseal.Table(tmp_path / "sql").snapshot().schema.field("v").type == VARIANT
