"""A task's memory does not grow with its rows or its partitions: measured in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, sys
import numpy as np
import pyarrow as pa
from lakeseal.protocol.arrow import from_arrow
from lakeseal.protocol.schema import StructType
from lakeseal.storage import LocalStore
from lakeseal.jobs.delayed_commit_protocol import DelayedCommitProtocol
from lakeseal.jobs.file_commit_protocol import TaskContext
from lakeseal.files.file_schema import FileSchema
from lakeseal.files.parquet_file import Compression
from lakeseal.files.partition_split import PartitionSplit
from lakeseal.jobs.rolling_files import Limits
from lakeseal.jobs.task_writer import TaskWriter
from lakeseal.files.uploads import Uploads

root, rows, partitions = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
random = np.random.default_rng(0)
names = pa.array([f"partition-{n:05d}" for n in range(partitions)])
words = pa.array([f"word number {n}" for n in range(50_000)])

def batches():
    for _ in range(rows // 10_000):
        columns = {f"n{n}": pa.array(random.integers(0, 2**40, 10_000)) for n in range(5)}
        columns |= {f"f{n}": pa.array(random.random(10_000)) for n in range(2)}
        columns |= {f"s{n}": words.take(pa.array(random.integers(0, 50_000, 10_000))) for n in range(2)}
        columns["p"] = names.take(pa.array(random.integers(0, partitions, 10_000)))
        yield pa.RecordBatch.from_pydict(columns)

protocol = DelayedCommitProtocol(path=root)
task = TaskContext(job_id="delta", split=0)
protocol.setup_task(task)
schema = from_arrow(next(batches()).schema)
by = ["p"] if partitions > 1 else []
writer = TaskWriter(
    protocol=protocol, task=task, uploads=Uploads(LocalStore(root)), schema=FileSchema(schema, by, mapped=False),
    split=PartitionSplit([schema.field(name) for name in by], mapped=False), compression=Compression(),
    indexed=StructType(schema.fields[:9]), limits=Limits(), spill_directory=sys.argv[4],
)
for batch in batches():
    writer.write(batch)
files = writer.finish()
message = protocol.commit_task(task, files).to_json()
# Not ru_maxrss, which a new process takes over from the one that started it.
peak = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) * 1024
print(json.dumps({"files": len(files), "rows": sum(f.num_records for f in files), "peak": peak}))
"""


@pytest.mark.parametrize(("rows", "partitions"), [(4_000_000, 4000), (4_000_000, 30), (4_000_000, 1)])
def test_a_task_of_ten_columns_stays_under_one_gigabyte(tmp_path: Path, rows: int, partitions: int) -> None:
    table, spill = tmp_path / "table", tmp_path / "spill"
    table.mkdir()
    spill.mkdir()
    command = [sys.executable, "-c", SCRIPT, str(table), str(rows), str(partitions), str(spill)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    print(result)
    assert (result["files"], result["rows"]) == (partitions, rows)
    assert result["peak"] < 2**30
    assert list(spill.iterdir()) == []
