"""Delta Spark at the end of a pipe; run by `.venv-peers/bin/python`, which this file's neighbour `peers.py` makes.

Each line of the input is JSON, `{"code": "...", "args": {...}}`. The code runs with `spark` and the arguments as its
names; what it leaves in `result` comes back as a line `{"result": ...}`, and what it raises as `{"error": "..."}`.
"""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

JARS = Path(sys.prefix) / "delta-jars.txt"
# Classes that Delta's commit coordinators are linked with; of what these need themselves, Spark has its own.
COORDINATORS = Path(sys.prefix) / "dynamodb-jars.txt"

KAFKA = Path(sys.prefix) / "spark-kafka-jars.txt"
# Of what the source of Kafka needs, Spark has the rest itself.
OF_KAFKA = ("org.apache.spark_", "org.apache.kafka_", "org.apache.commons_")


def start() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    jars = JARS.read_text(encoding="utf-8").splitlines()[1:]
    if COORDINATORS.exists():
        more = COORDINATORS.read_text(encoding="utf-8").splitlines()
        jars += [jar for jar in more if Path(jar).name.startswith("com.amazonaws")]
    if KAFKA.exists():
        more = KAFKA.read_text(encoding="utf-8").splitlines()
        jars += [jar for jar in more if Path(jar).name.startswith(OF_KAFKA)]
    settings = {
        "spark.jars": ",".join(jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        # Delta computes a table's state in this many tasks, 50 if nobody says, and each generates its code anew.
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.driver.memory": os.environ.get("DELTA_SPARK_MEMORY", "2g"),
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.master(os.environ.get("DELTA_SPARK_MASTER", "local[2]"))
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main() -> None:
    # What Spark and the code print must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    spark = start()
    for line in sys.stdin:
        asked = json.loads(line)
        names = {"spark": spark, **asked.get("args", {})}
        try:
            exec(asked["code"], names)
            answer = {"result": names.get("result")}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer, default=str) + "\n")
        answers.flush()
    spark.stop()


if __name__ == "__main__":
    main()
