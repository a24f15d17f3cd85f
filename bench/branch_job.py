"""branch-job: what it takes to make the files of a job count, on a branch and with Hadoop's committers.

`commit and merge beyond the data`: the tasks of a job have written 4,000 files into 4,000 partitions; what is timed is
the driver's `commit_job`: one commit on the job's branch, one merge into main. The files are only claimed to be there,
since nobody reads them. On local disk, with every write on disk before the call returns, and a SQLite ledger; into an
empty repository, and as an overwrite of as many files in a repository of 100,000.

With peers (`make bench-peers`) also the whole job, `one job on S3`: a frame of one row per partition, in two tasks,
written to an S3 server on loopback as Parquet. Ours is `Repository.write`; Hadoop's is `frame.write.parquet` through
S3A with FileOutputCommitter, version 1 (Spark's default) and version 2 (which is unsafe when tasks fail). Same frame,
same server, same session settings; each has written a small frame before. The server is moto's, in Python, and answers
a request in some milliseconds, as an S3 does; requests are what Hadoop's committers spend their time on.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import HERE, Subject, Timer

if TYPE_CHECKING:
    from harness import Report
    from pyspark.sql import DataFrame, SparkSession

    from lakeseal import Repository
    from lakeseal.testing.s3 import S3Server

FILES = int(os.environ.get("LAKESEAL_BENCH_FILES", "4000"))
OTHERS = 100_000
S3A_JARS = HERE.parent / ".venv-peers" / "s3a-jars.txt"


def main(report: Report) -> None:
    report.compare(
        f"commit and merge of {FILES:,} files beyond the data, new repository",
        [Subject(name="lakeseal", function=commit_alone, arguments={"others": 0})],
    )
    report.compare(
        f"commit and merge of {FILES:,} files beyond the data, overwriting as many beside {OTHERS:,}",
        [Subject(name="lakeseal", function=commit_alone, arguments={"others": OTHERS})],
    )
    if not (os.environ.get("LAKESEAL_BENCH_PEERS") and S3A_JARS.exists()):
        report.say("branch-job: SKIPPED Hadoop's committers; make bench-peers runs them where S3A can be had")
        return
    report.compare(
        f"one job on S3, {FILES:,} files in {FILES:,} partitions",
        [
            Subject(name="lakeseal", function=job_on_s3, arguments={"files": FILES}),
            Subject(name="FileOutputCommitter v1", function=job_on_s3a, arguments={"files": FILES, "version": 1}),
            Subject(name="FileOutputCommitter v2", function=job_on_s3a, arguments={"files": FILES, "version": 2}),
        ],
        targets={"FileOutputCommitter v1": 3.0, "FileOutputCommitter v2": 2.0},
        warm_up=False,
        repeats=1,
    )


def commit_alone(timer: Timer, others: int) -> dict[str, Any]:
    from lakeseal import Repository

    with scratch() as root:
        repo = Repository.create(root / "repo")
        if others:
            claimed_job(repo, "others", others, Timer())
            claimed_job(repo, "out", FILES, Timer())
        claimed_job(repo, "out", FILES, timer)
        return {"files": sum(table.num_rows for table in repo.store.entry_tables("main", "out")) - 1}


def claimed_job(repo: Repository, path: str, files: int, timer: Timer) -> None:
    import pyarrow as pa

    from lakeseal.commands.branch_write import BranchWriteCommand, PlannedBranchWrite
    from lakeseal.jobs.branch_commit_protocol import BranchCommitProtocol
    from lakeseal.jobs.file_commit_protocol import TaskContext, WrittenFile
    from lakeseal.protocol.arrow import from_arrow

    command = BranchWriteCommand(branch="main", path=path, mode="overwrite", partition_by=("k",))
    write = PlannedBranchWrite(repo.store, command, from_arrow(pa.schema({"k": pa.int64(), "v": pa.int64()})))
    spec = write.begin()
    assert spec is not None
    task = TaskContext(job_id=write.job_id, split=0)
    protocol = BranchCommitProtocol(path=path, job_id=write.job_id, **spec.protocol.options)
    protocol.setup_task(task)
    named = [protocol.new_task_file(task, f"k={n}", "-c000.snappy.parquet") for n in range(files)]
    written = [
        WrittenFile(key=file.key, size=900, modified_ms=0, num_records=1, checksum=f"sha256:{n:064x}")
        for n, file in enumerate(named)
    ]
    message = protocol.commit_task(task, written)
    with timer:
        write.commit([message])


def job_on_s3(timer: Timer, files: int) -> dict[str, Any]:
    from lakeseal import Repository

    with scratch() as root, session(root, {}) as (spark, s3):
        repo = Repository.create(
            s3.uri("repo"), ledger=f"sqlite:///{root}/ledger.db", storage_options=s3.storage_options
        )
        repo.write(partitions(spark, 20), "main", "warm", mode="overwrite", partition_by=["k"])
        with timer:
            done = repo.write(partitions(spark, files), "main", "out", mode="overwrite", partition_by=["k"])
        return {"files": done.files}


def job_on_s3a(timer: Timer, files: int, version: int) -> dict[str, Any]:
    from lakeseal.storage import open_store

    settings = {"spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": str(version)}
    with scratch() as root, session(root, settings) as (spark, s3):
        place = s3.uri("out").replace("s3://", "s3a://")
        partitions(spark, 20).write.mode("overwrite").partitionBy("k").parquet(f"{place}-warm")
        with timer:
            partitions(spark, files).write.mode("overwrite").partitionBy("k").parquet(place)
        found = open_store(s3.uri("out"), s3.storage_options).list(recursive=True)
        return {"files": sum(meta.key.endswith(".parquet") for meta in found)}


def partitions(spark: SparkSession, files: int) -> DataFrame:
    return spark.range(0, files, 1, 2).selectExpr("id AS k", "id * 2 AS v")


@contextmanager
def session(root: Path, settings: dict[str, str]) -> Iterator[tuple[SparkSession, S3Server]]:
    from lakeseal.spark.local_session import local_session
    from lakeseal.testing.s3 import s3_server

    with s3_server() as s3, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        options = s3.storage_options
        spark = local_session(
            "bench",
            settings={
                "spark.jars": ",".join(S3A_JARS.read_text(encoding="utf-8").split()),
                "spark.hadoop.fs.s3a.endpoint": s3.endpoint,
                "spark.hadoop.fs.s3a.endpoint.region": options["aws_region"],
                "spark.hadoop.fs.s3a.access.key": options["aws_access_key_id"],
                "spark.hadoop.fs.s3a.secret.key": options["aws_secret_access_key"],
                "spark.hadoop.fs.s3a.path.style.access": "true",
                "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
                "spark.local.dir": str(root / "local"),
                "spark.sql.warehouse.dir": str(root / "warehouse"),
                "spark.ui.enabled": "false",
                **settings,
            },
        )
        spark.sparkContext.setLogLevel("ERROR")
        try:
            yield spark, s3
        finally:
            spark.stop()


@contextmanager
def scratch() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="lakeseal-bench-"))
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)
