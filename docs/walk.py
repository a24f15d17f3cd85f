"""The walk of a new user, with seconds: an empty environment, and what the docs say, typed one after the other.

    python docs/walk.py [WHAT]      WHAT is installed: "lakeseal", a wheel, or a checkout such as "."

Four ways in, each in a folder of its own. Seconds count from the first `pip install` of that way to its result, so what
is downloaded counts, too. Java is wanted for Spark (JAVA_HOME, or on the path). It fails where one takes too long.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

LIMITS = {"first commit": 120, "first write with Spark": 180, "a service with a token": 300, "a pipeline": 300}

FIRST_COMMIT = """
import pyarrow as pa
import lakeseal
orders = lakeseal.Table("orders")
orders.write(pa.table({"id": [1, 2, 3], "shop": ["north", "south", "north"]}), partition_by=["shop"])
print(orders.to_arrow(where="shop = 'north'").to_pylist())
assert orders.version() == 0
"""

FIRST_SPARK = """
import os, sys
from pyspark.sql import SparkSession
import lakeseal
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = SparkSession.builder.master("local[2]").getOrCreate()
lakeseal.Table("numbers").write(spark.range(1000).selectExpr("id", "id % 4 AS shop"), partition_by=["shop"])
assert lakeseal.Table("numbers").to_spark(spark).where("shop = 1").count() == 250
"""

THROUGH_SERVICE = """
import sys
import pyarrow as pa
import lakeseal
orders = lakeseal.Table("orders", owner=sys.argv[1])  # the token is that of LAKESEAL_TOKEN
orders.write(pa.table({"id": [1]}))
orders.write(pa.table({"id": [2]}))
assert orders.version() == 1
"""


class Newcomer:
    """Somebody with an empty environment in an empty folder."""

    def __init__(self, place: Path, what: str) -> None:
        self.place = place
        self.what = what
        asks = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "LAKESEAL_"))}
        self.environment = asks
        place.mkdir()
        self.run(sys.executable, "-m", "venv", "env")

    def run(self, *words: str, **more: str) -> str:
        ended = subprocess.run(
            words, cwd=self.place, env={**self.environment, **more}, capture_output=True, text=True, check=False
        )
        if ended.returncode:
            raise SystemExit(f"{' '.join(words[:4])} …\n{ended.stdout}{ended.stderr}")
        return ended.stdout

    def install(self, extra: str = "") -> None:
        what = f"{self.what}[{extra}]" if extra else self.what
        self.python("-m", "pip", "install", "--quiet", what)

    def python(self, *words: str, **more: str) -> str:
        return self.run("env/bin/python", *words, **more)

    def lakeseal(self, *words: str) -> str:
        return self.run("env/bin/lakeseal", *words)


def first_commit(user: Newcomer) -> None:
    user.install()
    user.python("-c", FIRST_COMMIT)


def first_spark(user: Newcomer) -> None:
    user.install("spark")
    user.python("-c", FIRST_SPARK)


def service(user: Newcomer) -> None:
    user.install("server")
    ledger = "sqlite:///ledger.db"
    made = user.lakeseal("owner", "token", "create", "me", "--ledger", ledger, "--grant", "admin", "--json")
    words = ["env/bin/lakeseal", "serve", "--ledger", ledger, "--listen", "127.0.0.1:0", "--json"]
    log = (user.place / "service.log").open("w")  # what it says while it works
    with (
        log,
        subprocess.Popen(
            words, cwd=user.place, env=user.environment, stdout=subprocess.PIPE, stderr=log, text=True
        ) as served,
    ):
        assert served.stdout is not None
        try:
            url = json.loads(served.stdout.readline())["url"]
            user.python("-c", THROUGH_SERVICE, url, LAKESEAL_TOKEN=json.loads(made)["token"])
        finally:
            served.terminate()


def pipeline(user: Newcomer) -> None:
    user.install()
    user.lakeseal("ingest", "init", "people")
    user.run("sh", "-c", "cd people && ../env/bin/lakeseal ingest run pipeline.yaml --no-spark")
    rows = user.lakeseal("read", "people/lake/people", "--owner", "sqlite:///people/ledger.db", "--json")
    assert len(rows.splitlines()) == 2, rows


def walk(what: str) -> dict[str, float]:
    ways: tuple[Callable[[Newcomer], None], ...] = (first_commit, first_spark, service, pipeline)
    if Path(what).exists():
        what = str(Path(what).resolve())
    took = {}
    with tempfile.TemporaryDirectory(prefix="lakeseal-walk-") as folder:
        for (name, limit), way in zip(LIMITS.items(), ways, strict=True):
            user = Newcomer(Path(folder, way.__name__), what)
            start = time.monotonic()
            way(user)
            took[name] = time.monotonic() - start
            print(f"{name}: {took[name]:.0f} s, of {limit}", flush=True)
    return took


if __name__ == "__main__":
    seconds = walk(sys.argv[1] if len(sys.argv) > 1 else "lakeseal")
    sys.exit(any(seconds[name] > limit for name, limit in LIMITS.items()))
