"""A driver with a Spark of its own that runs a pipeline again and again, to be killed:
`python killed_driver.py <YAML> <file to write after the first run>`."""

from __future__ import annotations

import sys
from pathlib import Path

from lakeseal.ingest import Pipeline
from lakeseal.spark.local_session import local_session

if __name__ == "__main__":
    spark = local_session("killed", cores=1, settings={"spark.driver.memory": "1g"})
    pipeline = Pipeline.from_yaml(sys.argv[1])
    while True:
        pipeline.run(spark)
        Path(sys.argv[2]).touch()
