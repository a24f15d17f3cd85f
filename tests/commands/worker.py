"""One of several writers: makes random changes to tables and says in each commit what it did.

python worker.py <seed> <commits> <uri>…
"""

from __future__ import annotations

import json
import random
import sys
import time
from typing import Any

import pyarrow as pa

from lakeseal import Table, errors
from lakeseal.commit.transaction import CommitResult

PARTS = 4
SERIAL = "Serializable"


def data(rows: list[tuple[int, int]]) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([i for i, _ in rows], pa.int64()),
            "part": pa.array([i % PARTS for i, _ in rows], pa.int64()),
            "v": pa.array([v for _, v in rows], pa.int64()),
        }
    )


def plan(chance: random.Random) -> dict[str, Any]:
    part = chance.randrange(PARTS)
    match chance.choice(["append", "delete", "update", "merge", "merge", "optimize"]):
        case "append":
            return {"do": "append", "rows": [[chance.randrange(60), chance.randrange(5)] for _ in range(3)]}
        case "delete":
            return {"do": "delete", "part": part, "below": chance.randrange(-50, 5)}
        case "update":
            return {"do": "update", "part": part, "factor": chance.choice([2, -1]), "plus": chance.randrange(3)}
        case "merge":
            ids = chance.sample(range(part, 60, PARTS), 3)
            return {"do": "merge", "part": part, "rows": [[i, chance.randrange(5)] for i in ids]}
        case _:
            return {"do": "optimize", "part": part}


def run(table: Table, step: dict[str, Any]) -> bool:
    told = json.dumps(step)
    match step["do"]:
        case "append":
            result = table.write(data(step["rows"]), user_metadata=told, isolation_level=SERIAL)
        case "delete":
            where = f"part = {step['part']} AND v < {step['below']}"
            result = table.delete(where, user_metadata=told, isolation_level=SERIAL)
        case "update":
            values = {"v": f"v * {step['factor']} + {step['plus']}"}
            result = table.update(values, f"part = {step['part']}", user_metadata=told, isolation_level=SERIAL)
        case "merge":
            on = f"t.part = {step['part']} AND t.part = s.part AND t.id = s.id"
            merge = table.merge(data(step["rows"]), on, user_metadata=told, isolation_level=SERIAL)
            result = merge.when_matched_update({"v": "t.v + s.v * 3"}).when_not_matched_insert().execute()
        case _:
            result = table.optimize(f"part = {step['part']}", user_metadata=told)
    return isinstance(result, CommitResult)


def replayed(rows: list[tuple[int, int]], step: dict[str, Any]) -> list[tuple[int, int]]:
    """What the step does to a plain list of (id, v)."""
    part = step.get("part")
    match step["do"]:
        case "append":
            return [*rows, *((i, v) for i, v in step["rows"])]
        case "delete":
            return [(i, v) for i, v in rows if i % PARTS != part or v >= step["below"]]
        case "update":
            return [(i, v * step["factor"] + step["plus"]) if i % PARTS == part else (i, v) for i, v in rows]
        case "merge":
            given = dict(map(tuple, step["rows"]))
            there = {i for i, _ in rows}
            updated = [(i, v + given[i] * 3) if i in given else (i, v) for i, v in rows]
            return [*updated, *((i, v) for i, v in given.items() if i not in there)]
        case _:
            return rows


def main(uri: str, seed: int, commits: int) -> None:
    chance = random.Random(seed)
    table = Table(uri)
    conflicts = done = 0
    while done < commits:
        step = plan(chance)
        try:
            done += run(table, step)
        except errors.ConcurrentModification:
            conflicts += 1
            time.sleep(chance.random() * 0.05)
    print(json.dumps({"conflicts": conflicts}))


if __name__ == "__main__":
    for uri in sys.argv[3:]:
        main(uri, int(sys.argv[1]), int(sys.argv[2]))
