"""Deletion vectors inside the log, in both ways that writers fill up their text: deltalake says which rows are left."""

from __future__ import annotations

import json
from pathlib import Path

import deltalake
import pyarrow as pa

import lakeseal
from lakeseal.protocol.deletion_vectors import encode, z85_encode
from oracles.rows import same_rows
from oracles.seeds import case, cases

ROWS = 200


def z85_filled_in_the_text(data: bytes) -> str:
    whole = len(data) // 4 * 4
    absent = -len(data) % 4
    return z85_encode(data[:whole]) + (
        "#" * absent + z85_encode(bytes(absent) + data[whole:])[absent:] if absent else ""
    )


def test_rows_hidden_by_an_inline_vector_are_those_that_deltalake_hides(tmp_path: Path) -> None:
    for seed in cases(20, 500):
        with case(seed) as chance:
            uri = tmp_path / str(seed)
            table = lakeseal.create(
                uri, pa.schema([("x", pa.int64())]), properties={"delta.enableDeletionVectors": "true"}
            )
            table.write(pa.table({"x": list(range(ROWS))}))
            gone = sorted(chance.sample(range(ROWS), chance.choice([1, 2, 3, 50])))
            data = encode(gone)
            text = chance.choice([z85_encode, z85_filled_in_the_text])(data)
            commits = uri / "_delta_log"
            actions = [json.loads(line) for line in (commits / f"{1:020d}.json").read_text().splitlines()]
            add = next(action["add"] for action in actions if "add" in action)
            vector = {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": len(gone)}
            remove = {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}
            lines = [{"remove": remove}, {"add": {**add, "deletionVector": vector}}]
            (commits / f"{2:020d}.json").write_text("\n".join(map(json.dumps, lines)))
            judge = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(uri)).execute("select x from t")
            expected = pa.table(judge.read_all()).to_pylist()
            assert len(expected) == ROWS - len(gone)
            same_rows(lakeseal.Table(uri).to_arrow().to_pylist(), expected, text)
