"""Keep the classes of Spark that tests load in an archive, from which a JVM maps them instead of reading, checking and
linking ten thousand of them anew.

    . .venv/lakeseal-env.sh && .venv/bin/python scripts/spark_classes.py .venv/spark-classes.jsa

A JVM that is started with -XX:SharedArchiveFile=<the archive> takes half the CPU until its first rows; one that finds
an archive of another Java or of other jars goes on without it. Made once for a Java and a PySpark; a Java that cannot
make one leaves none, and nothing fails.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pyspark

from lakeseal import Table
from lakeseal.spark.local_session import local_session


def main() -> None:
    archive = Path(sys.argv[1])
    written_for = archive.with_suffix(".txt")
    release = Path(os.environ["JAVA_HOME"]) / "release"
    wanted = f"PySpark {pyspark.__version__}\n{release.read_text() if release.exists() else ''}"
    if written_for.exists() and written_for.read_text() == wanted:
        return
    print("setup: keeping Spark's classes for the JVMs of the tests (once)", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        make(archive, Path(folder))
    written_for.write_text(wanted)


def make(archive: Path, folder: Path) -> None:
    archive.unlink(missing_ok=True)
    options = f"-XX:ArchiveClassesAtExit={archive.resolve()} -Xlog:disable"
    places = {"spark.local.dir": f"{folder}/local", "spark.sql.warehouse.dir": f"{folder}/warehouse"}
    settings = {**places, "spark.driver.extraJavaOptions": options}
    spark = local_session("classes", settings=settings, log=folder / "log")
    java = spark.sparkContext._gateway.proc
    try:
        use(spark, folder)
    finally:
        spark.stop()
        java.stdin.close()
        java.wait()  # the archive is written when it ends


def use(spark: pyspark.sql.SparkSession, folder: Path) -> None:
    """What most tests do, so that its classes are in the archive."""
    table = Table(folder / "t")
    table.write(spark.range(20).selectExpr("id", "id % 3 AS p", "cast(id AS string) AS s"), partition_by=["p"])
    merge = table.merge(spark.sql("SELECT 3L AS id, 0L AS p, 'x' AS s"), "t.id = s.id")
    merge.when_matched_update("*").when_not_matched_insert("*").execute()
    table.to_spark(spark, where="id > 3").groupBy("p").count().orderBy("p").collect()


if __name__ == "__main__":
    main()
