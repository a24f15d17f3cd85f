"""Change capture: what happens to one table happens to another, in order, each change once.

The source here is a Lakeseal table with its change feed; `type: postgres` and Debezium's topics are said the same way.

    python examples/cdc_pipeline.py /tmp/lake
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

import lakeseal

YAML = """
name: customers
ledger: sqlite:///{lake}/ledger.db
datasets:
  - name: customers
    source: {{type: table, uri: {lake}/customers}}
    target: {{type: table, uri: {lake}/copy, mode: cdc, keys: [id]}}
"""


def run(lake: str) -> list[dict[str, object]]:
    customers = lakeseal.Table(f"{lake}/customers")
    rows = pa.table({"id": [1, 2, 3], "name": ["Ada", "Bob", "Cyd"]})
    customers.write(rows, properties={"delta.enableChangeDataFeed": "true"})
    file = Path(lake, "customers.yaml")
    file.write_text(YAML.format(lake=lake), encoding="utf-8")
    pipeline = lakeseal.Pipeline.from_yaml(file)
    pipeline.run()
    customers.update({"name": "'Bea'"}, "id = 2")
    customers.delete("id = 3")
    pipeline.run()
    pipeline.run()  # there is nothing new
    found: list[dict[str, object]] = (
        lakeseal.Table(f"{lake}/copy", owner=f"sqlite:///{lake}/ledger.db").to_arrow().sort_by("id").to_pylist()
    )
    return found


if __name__ == "__main__":
    print(run(sys.argv[1] if sys.argv[1:] else "lake"))
