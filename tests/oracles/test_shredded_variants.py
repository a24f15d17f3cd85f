"""Shredded variants of DuckDB's are the documents that were given to it; Spark's own decoder looks at them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import VariantVal

from lakeseal.log.physical import Projection
from lakeseal.protocol.schema import VARIANT, StructField
from oracles.seeds import case, cases

SHORT, FULL = 6, 500
# DuckDB is at fault itself with texts of 64 bytes, and with names that differ in case only.
_TEXTS = ("", "a", "é", "x" * 63, "x" * 65, "日本" * 40, '"', "\U0001f600")
_NAMES = ("a", "b", "é", "C", "x y", "日本", "\U0001f600", "z" * 70)


def test_variants_that_duckdb_has_shredded_are_the_documents_that_it_was_given(tmp_path: Path) -> None:
    for seed in cases(SHORT, FULL):
        with case(seed) as chance:
            shape = _shape(chance, 3)
            given = [None if chance.random() < 0.1 else _document(chance, shape) for _ in range(chance.randint(1, 60))]
            target = tmp_path / f"{seed}.parquet"
            texts = pa.table({"t": pa.array([None if g is None else json.dumps(g[0]) for g in given], pa.string())})
            with duckdb.connect() as connection:
                connection.register("texts", texts)
                connection.sql(f"COPY (SELECT t::JSON::VARIANT AS v FROM texts) TO '{target}' (FORMAT parquet)")
            with pq.ParquetFile(target) as file:
                projection = Projection.of([StructField("v", VARIANT)], file.schema_arrow, "none")
                found = [projection.apply(batch)[0] for batch in file.iter_batches(7)]
            read = [v for array in found for v in array.to_pylist()]
            assert [v and VariantVal(v["value"], v["metadata"]).toPython() for v in read] == [g and g[0] for g in given]


Shape = Any


def _shape(chance: random.Random, depth: int) -> Shape:
    """What documents mostly look like, so that there is something to shred."""
    roll = chance.random()
    if depth and roll < 0.5:
        return {name: _shape(chance, depth - 1) for name in chance.sample(_NAMES, k=chance.randint(1, 4))}
    if depth and roll < 0.65:
        return [_shape(chance, depth - 1)]
    return chance.choice(("text", "integer", "boolean", "null"))


def _document(chance: random.Random, shape: Shape) -> tuple[Any]:
    """In a tuple: it may be None."""
    if chance.random() < 0.1:
        shape = _shape(chance, 1)
    match shape:
        case dict():
            names = [name for name in shape if chance.random() < 0.8]
            found = {name: _document(chance, shape[name])[0] for name in names}
            if chance.random() < 0.2:
                found[chance.choice(_NAMES)] = chance.choice((1, "x", None, [1], {"k": True}))
            return (found,)
        case list():
            return (
                [
                    _document(chance, shape[0])[0]
                    for _ in range(chance.randint(0, 300 if chance.random() < 0.05 else 4))
                ],
            )
        case "text":
            return (chance.choice(_TEXTS),)
        case "integer":
            return (chance.choice((0, -1, 127, 128, 70_000, 2**40, -(2**63))),)
        case "boolean":
            return (chance.random() < 0.5,)
        case _:
            return (None,)
